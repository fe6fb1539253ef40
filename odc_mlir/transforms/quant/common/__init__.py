"""Shared code of the quantising passes."""
