"""Fragments and whole products as pictures and pages."""
