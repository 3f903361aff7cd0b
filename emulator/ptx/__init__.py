"""PTX statements as they stand in a file, run on a simulated warp or warpgroup."""
