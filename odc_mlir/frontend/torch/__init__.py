"""Exported PyTorch programs as modules of the ``circle`` dialect; the rows of :mod:`.table` convert its operators."""
