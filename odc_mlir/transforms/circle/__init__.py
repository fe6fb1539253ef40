"""Passes on ``circle`` operators. The subfolder ``rewrites`` holds shared code."""
