"""Quantised and float arithmetic in pure numpy.

Host kernels, constant folding, quantiser and simulator all use this one definition.

Functions on codes take their parameters as integers, which fit into an instruction; functions called ``*_params`` or
``*_multiplier`` derive these integers from scales. They follow TensorFlow Lite's reference kernels with fixed-point
requantisation (double rounding). Float functions take float parameters; ``docs/operators.md`` states their rules.
"""
