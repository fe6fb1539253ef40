"""Quantised and float arithmetic in pure numpy.

Host kernels, constant folding, quantiser and simulator all use this one definition.

Functions that compute take plain integers, which fit into an instruction; functions called ``*_params`` or
``*_multiplier`` derive these integers from scales. The arithmetic follows TensorFlow Lite's reference kernels with
fixed-point requantisation (double rounding). ``docs/operators.md`` states the rules for float operators.
"""
