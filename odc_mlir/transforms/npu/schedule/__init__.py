"""Planning core of the NPU back end: tiling, instruction streams, ordering, prefetching, allocation, synchronisation.

Plain Python on plain records, without IR: the passes beside this package read the IR into these records, call one
function here and write the result back.

``geometry``, ``cost``, ``window_search`` choose tilings; ``window_stream``, ``vector_stream`` and ``move_stream`` turn
a tiling into commands; ``local_placement`` places slots; ``order`` moves transfers up; ``prefetch`` brings constants
into SRAM; ``arena`` allocates; ``hazards`` and ``sync`` find dependences and place semaphores.
"""
