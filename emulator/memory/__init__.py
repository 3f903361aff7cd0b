"""Everything with an address, without threads and opcodes: memories, tensor maps, mbarriers."""
