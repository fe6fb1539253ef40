"""Design-space exploration: compile the same models for many machines and options, and compare the results."""
