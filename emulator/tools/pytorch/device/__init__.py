"""A device "cuda" for a PyTorch that is built without CUDA: its tensors live in CPU memory."""
