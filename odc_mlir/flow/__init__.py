"""Flows: the commands that make a product of a model, read from files of ours and of ONE, run as far as needed."""
