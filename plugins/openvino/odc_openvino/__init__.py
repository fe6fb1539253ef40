"""OpenVINO's devices as targets of odc-mlir."""
