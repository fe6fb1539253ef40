"""Patterns of named rewrites (:mod:`odc_mlir.transforms.circle.rewrites.table`) that no other pass defines."""
