"""HTML reports: each is a single file that loads nothing from elsewhere and is readable without scripts."""
