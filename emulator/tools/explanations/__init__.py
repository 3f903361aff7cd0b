"""Explanations of results, and of where two results part."""
