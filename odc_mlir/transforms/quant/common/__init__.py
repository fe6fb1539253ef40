"""What the quantising passes share."""
