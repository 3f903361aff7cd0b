"""Runs the instructions of the table on a GPU of this machine; see capture.py."""
