"""Decisions about numbers: schemes, ranges, options, limits and verdicts. Free of IR."""
