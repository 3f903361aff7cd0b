"""Everything that has an address: spaces of bytes, and the matrices that lie in them."""
