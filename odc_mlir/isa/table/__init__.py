"""The rows of the instruction table, a file for each group: fields, effects and costs in one place."""
