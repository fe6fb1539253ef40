"""Shape functions and verifiers of operators, one module per family, with the rules that families share."""
