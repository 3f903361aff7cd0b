"""Studies of numerics: how far sums are off, over k, and which precision they are made with."""
