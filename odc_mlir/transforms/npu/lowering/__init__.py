"""One lowering for each family of operators, from ``circle`` to ``npu``."""
