"""Rows of the instruction table, one file per group. A row declares fields, effects and cost."""
