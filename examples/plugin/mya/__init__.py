"""A made-up accelerator: it multiplies matrices, adds, and knows two functions, all of real numbers."""
