"""Code generation by LLVM, through llvmlite: processors, object code, and loading of object code.

llvmlite is an optional dependency. Functions that need it raise OptionError if it is missing.
"""
