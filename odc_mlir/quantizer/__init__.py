"""The quantiser: from a float model and samples to a quantised model with a verdict on the accuracy.

A module imports only from its own area and from areas above it in this table:

=========== ===================================================== =============================================
area        modules                                               subject
=========== ===================================================== =============================================
``policy``  ``policy/``                                           schemes, ranges, limits, options, texts: no IR
``samples`` ``states``, ``samples``                               calibration and evaluation samples
``measure`` ``outputs``, ``execution``, ``measurement``,          running models and measuring their errors
            ``reference``, ``layers``
``make``    ``refinement``, ``models``, ``candidates``            building quantised models by recipes
``search``  ``target``, ``evaluator``, ``help``, ``pareto``,      choosing recipes and precisions of layers
            ``precisions``
``driver``  ``driver``                                            the steps from model to result
``verdict`` ``verdict``, ``report``, ``summary``, ``quantize``    findings, status, page, texts, entry points
=========== ===================================================== =============================================
"""
