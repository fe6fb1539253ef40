"""Exploration of machines and options: many compilations of the same models, and what they have in common."""
