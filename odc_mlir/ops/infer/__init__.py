"""Shape functions and verifiers of operators, and their common rules."""
