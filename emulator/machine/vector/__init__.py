"""The engine on NumPy: a register is an array over the lanes of many thread blocks."""
