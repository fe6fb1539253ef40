"""Executes models and compiled packages on host kernels and devices; knows nothing of the compiler's IR."""
