"""The slow simulator: time by the letter of docs/npu.md, in steps of at most a cycle.

It exists to be compared with the fast one: costs are written down again from the document, nothing is kept from one
step to the next but how much is left of what runs, and there is no event queue. Values come from the same engines.
"""
