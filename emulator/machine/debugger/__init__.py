"""A launch that stops before any statement, goes back, and shows what it holds."""
