"""Helpers that passes at several levels share."""
