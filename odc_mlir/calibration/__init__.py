"""Recorded statistics of tensors: records, files, and checks of coverage. Independent of IR."""
