"""The ``odc-*`` commands. A module parses arguments before it imports anything large."""
