"""wgmma descriptors: decoded, checked, compared with the one that a tile needs."""
