"""HTML reports: one file each that fetches nothing and is readable without scripts."""
