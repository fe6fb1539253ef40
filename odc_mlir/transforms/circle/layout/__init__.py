"""Orders of dimensions: which operators can work in another one, and the cheapest choice for a whole graph."""
