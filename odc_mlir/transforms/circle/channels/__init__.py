"""Analyses of quantised channels: ranges, classes of channels, and unneeded channels."""
