"""What is known of the channels of codes: their ranges, which of them belong together, and which nothing needs."""
