"""What has an address, without threads and opcodes: spaces of bytes, tensor maps, mbarriers."""
