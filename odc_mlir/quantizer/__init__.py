"""From a float model and data to a quantised model that keeps its accuracy: the quantiser's driver."""
