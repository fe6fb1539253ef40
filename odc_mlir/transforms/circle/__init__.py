"""Passes on ``circle`` operators; the subfolder ``rewrites`` holds shared code."""
