"""Matrix products of PyTorch's CPU tensors with the bits of a GPU's library."""
