"""Execution of graphs and plans: input binding, shape inference, and units in order."""
