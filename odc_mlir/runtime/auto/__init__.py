"""On-device compilation in the background of an application that only runs a model.

A session records ranges and inputs of the float model. A separate process quantises and compiles the model, and checks
the accuracy. Between two runs, the session switches to the result, and back if anything fails. See docs/session.md.
"""
