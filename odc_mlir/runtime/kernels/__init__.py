"""Host kernels: a function per operator, which prepares the operator and returns the function that computes it.

Prepared functions accept operand arrays in operand order (None for omitted ones) and return result arrays. They also
accept batch and image sizes other than the static ones. Constants come from the node, so an executor may pass None.
Docstrings describe what the prepared function computes.
"""
