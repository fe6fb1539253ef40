"""Planning core of the NPU back end: tiling, instruction streams, ordering, staging, allocation, synchronisation.

Plain Python on plain records, without IR: the passes beside this package read the IR into these records, call one
function here and write the result back.

``geometry``, ``cost``, ``window_search``, ``vector_search`` choose tilings; ``window_stream`` and ``vector_stream``
turn a tiling into commands; ``order`` moves transfers up; ``staging`` brings constants into SRAM; ``arena`` allocates;
``hazards`` and ``sync`` find dependences and place semaphores.
"""
