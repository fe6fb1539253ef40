"""Interpretation of IR at any stage, as a reference to compare stages."""
