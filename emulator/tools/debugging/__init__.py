"""The debugger in a terminal, and for editors."""
