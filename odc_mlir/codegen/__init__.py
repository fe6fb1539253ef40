"""Code generation by LLVM, through llvmlite: processors, object code, and loading of object code.

llvmlite is an optional dependency. Without it, every function that needs it raises OptionError.
"""
