"""IREE as a target of odc-mlir."""
