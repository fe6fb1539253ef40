"""Passes on ``circle`` operators; the folders hold shared code."""
