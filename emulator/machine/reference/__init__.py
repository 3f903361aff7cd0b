"""Reference engine: the specification. It runs a launch one thread at a time, in Python integers,
as the manual has it, and imports no other engine, no checks and nothing that is there to be
fast."""
