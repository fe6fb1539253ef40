"""Passes on ``circle`` operators; what they share lies in the folders."""
