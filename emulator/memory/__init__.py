"""Everything with an address, without threads and opcodes: bytes, tensor maps, mbarriers."""
