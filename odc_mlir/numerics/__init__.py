"""Quantised and float arithmetic in pure numpy, used by host kernels, constant folding, quantiser and simulator.

Functions on codes take integer parameters, which fit into an instruction. Functions called ``*_params`` or
``*_multiplier`` derive these parameters from scales. Both follow TensorFlow Lite's reference kernels with fixed-point
requantisation (double rounding). Float functions take float parameters. ``docs/operators.md`` states the rules.
"""
