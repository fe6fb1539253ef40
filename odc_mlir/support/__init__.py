"""Helpers on IR for all dialects: constant bytes, locations, text files, diagnostics."""
