"""Helpers on IR that no dialect owns: constant bytes, locations, text files, diagnostics."""
