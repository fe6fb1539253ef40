"""What recording a model found out: statistics of tensors, files of them, and what they cannot say. Free of IR."""
