"""Patterns of the rewrites that :mod:`odc_mlir.transforms.rewrites` names and no pass of its own needs."""
