"""Plans of segments: candidates, their costs, and the choice between them."""
