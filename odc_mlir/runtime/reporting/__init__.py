"""What runs and compilations took, measured or modelled, and how it is told."""
