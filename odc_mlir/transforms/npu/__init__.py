"""Passes from ``circle`` operators to instructions of the NPU."""
