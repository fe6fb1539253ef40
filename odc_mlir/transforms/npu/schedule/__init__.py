"""Planning core of the NPU back end: tiling, instruction streams, ordering, prefetching, allocation, synchronisation.

The passes of the back end read the IR into plain records, call one function here, and write the result back.
"""
