"""Changes to models that users ask for by name: cutting, resizing, other parameters, shrinking one that fails."""
