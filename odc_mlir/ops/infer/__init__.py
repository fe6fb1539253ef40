"""Shape functions and verifiers of operators: one module per family, and shared rules."""
