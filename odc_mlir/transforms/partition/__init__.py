"""Where operators run: groups that stay together, what each place costs, and the plan that costs least."""
