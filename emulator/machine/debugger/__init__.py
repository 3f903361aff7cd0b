"""Debugger: a launch that stops before any statement, goes back, and shows what it holds. It runs
on the reference engine, whose threads it looks at."""
