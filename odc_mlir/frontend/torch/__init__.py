"""Import of exported PyTorch programs. The rows of :mod:`.table` convert operators to ``circle`` operations."""
