"""What quantising knows about numbers: recorded statistics, ranges, parameters, schemes, verdicts. Free of IR."""
