"""Everything with an address, without threads and opcodes: spaces of bytes, tensor maps, mbarriers."""
