"""Patterns of the rewrites that :mod:`odc_mlir.transforms.circle.rewrites.table` names and no pass of its own needs."""
