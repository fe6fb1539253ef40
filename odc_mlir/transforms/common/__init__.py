"""Helpers of passes at several levels."""
