"""Shape functions and verifiers of operators, and common rules."""
