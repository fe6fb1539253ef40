"""Host kernels: functions that prepare an operator and return the function that computes it.

Prepared functions accept operand arrays in operand order (None for omitted operands) and return result arrays. Kernels
accept any batch and image size. Kernels read constants from the node, so an executor may pass None for a constant.
Docstrings describe the computation of the prepared function.
"""
