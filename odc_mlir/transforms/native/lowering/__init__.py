"""Lowerings of operators to calls of kernels on buffers."""
