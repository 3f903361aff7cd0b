"""The commands: each module answers one kind of question with an ``Answer``."""
