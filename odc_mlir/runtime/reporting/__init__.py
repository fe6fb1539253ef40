"""Reports of runs and compilations, measured or modelled."""
