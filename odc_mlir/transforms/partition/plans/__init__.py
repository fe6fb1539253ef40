"""Plans of segments: candidates, costs, and the choice between candidates."""
