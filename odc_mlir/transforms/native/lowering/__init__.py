"""Lowerings of operators to kernels on buffers, and kernels to loops."""
