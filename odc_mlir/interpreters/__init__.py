"""Interpretation of IR after any stage, to compare stages with each other; a reference, not the runtime."""
