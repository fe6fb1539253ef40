"""Between model records and the ``circle`` dialect, in both directions."""
