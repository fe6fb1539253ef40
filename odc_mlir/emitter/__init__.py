"""Binaries and listings of programs, and files of native code."""
