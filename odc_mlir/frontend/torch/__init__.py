"""Import of exported PyTorch programs. The rows of :mod:`.table` convert their operators to ``circle`` operations."""
