"""Passes that quantise: from recorded ranges to models on quantised types."""
