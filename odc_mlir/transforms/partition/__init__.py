"""Passes that place operators on NPU or host, and form segments."""
