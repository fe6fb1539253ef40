"""Quantising passes: from recorded ranges to models on quantised types."""
