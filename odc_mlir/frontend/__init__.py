"""Import of model records into the ``circle`` dialect, and export from it."""
