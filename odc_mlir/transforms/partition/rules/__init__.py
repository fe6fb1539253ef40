"""Placement rules of the NPU and their checks."""
