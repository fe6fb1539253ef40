"""Recorded statistics of tensors, their files, and checks of their coverage. Independent of IR."""
