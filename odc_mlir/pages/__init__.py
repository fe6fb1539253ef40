"""HTML reports: single files that load nothing from elsewhere and are readable without scripts."""
