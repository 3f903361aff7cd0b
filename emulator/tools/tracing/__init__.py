"""A launch as a page: what every warp executed and when, and what its registers held then."""
