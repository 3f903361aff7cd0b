"""All engines: what they share. Statements that mean the same to each are stated here once, and ask
an engine for operands, memory and threads; nothing here knows an engine."""
