"""Whole matrices instead of the registers of lanes: one instruction's worth, or any size."""
