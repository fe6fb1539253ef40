"""On-device compilation in the background of an application that only runs its model.

A session records ranges and inputs of the float model. A separate process quantises the model, checks its accuracy and
compiles it. Between two runs, the session switches to the result, and back if anything fails. See docs/session.md.
"""
