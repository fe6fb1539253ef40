"""Code generation by LLVM, through llvmlite: processors, object code, and loading it.

llvmlite is an optional dependency; every function that needs it raises OptionError without it.
"""
