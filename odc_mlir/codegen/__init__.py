"""LLVM as the code generator, by llvmlite: the machine that runs this, object code, and loading it.

The package llvmlite is an extra; everything here says so where it is missing.
"""
