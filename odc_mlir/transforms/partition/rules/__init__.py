"""Placement rules of the NPU, and the checks of the rules."""
