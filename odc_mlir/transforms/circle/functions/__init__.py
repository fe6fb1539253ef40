"""Functions that networks are made of, recognised in the operators that compute them: nothing is changed here."""
