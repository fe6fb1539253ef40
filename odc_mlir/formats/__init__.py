"""File formats: bytes to plain records and back, free of IR."""
