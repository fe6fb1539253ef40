"""What equalising channels is made of: what makes them, where they go, and the pairs between which scales move."""
