"""Decisions about numbers: schemes, ranges, options, limits and verdicts. These modules do not use the IR."""
