"""Quantised and float arithmetic in pure numpy.

Host kernels, constant folding, quantiser and simulator all use this one definition.

Functions that compute take plain integers (what an instruction can hold); functions called ``*_params`` or
``*_multiplier`` derive those integers from scales. The arithmetic is that of TensorFlow Lite's reference kernels with
fixed-point requantisation (double rounding).
"""
