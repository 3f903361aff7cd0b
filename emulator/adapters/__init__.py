"""Doors from other people's tools: what makes their code compute with this package's instructions.

Nothing here is imported by the rest of the package, and no tool is imported before it is asked for.
"""
