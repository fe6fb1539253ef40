"""What is decided about numbers: schemes, ranges, parameters, and the verdict. Free of IR."""
