"""Passes that decide what runs where, and give every segment its program."""
