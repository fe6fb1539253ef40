"""The only definition of the project's version."""

__version__ = "0.1.0"
