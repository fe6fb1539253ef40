"""Passes from ``circle`` operators to machine code of processors."""
