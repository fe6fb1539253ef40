"""Lowering patterns of ``convert-circle-to-npu``, by families of operators, and the analyses that they need."""
