"""What the command line shows: each module answers one kind of question with an ``Answer``."""
