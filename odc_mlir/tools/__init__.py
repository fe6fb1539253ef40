"""The ``odc-*`` commands. Each module parses its arguments before it imports anything large."""
