"""Host kernels: ``kernel(node)`` prepares everything that can be, and returns the function that runs the operator.

Prepared functions take operand arrays in operand order (None for those left out) and return result arrays. They accept
other batch and image sizes than the static ones. Constants are taken from the node, so an executor may pass None there.
"""
