"""Runs graphs and plans: binding, shapes, units, kernels in order."""
