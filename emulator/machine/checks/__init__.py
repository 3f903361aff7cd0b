"""Checks of a running kernel: what is wrong in it by rule, also where its results are right."""
