"""Compiling on the device, in the background of an application that only runs its model.

A session records what its float model computes; a process beside it quantises the model, checks how accurate that is
and compiles it; the session switches between two runs, and goes back wherever anything fails. See docs/session.md.
"""
