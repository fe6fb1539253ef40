"""The ``odc-*`` commands: each module parses its arguments first and imports the rest only when there is work to do."""
