"""Codegen plugins: compilers of other targets that are found by name and run in a process of their own.

The target string of a plugin is ``<extension>-gen``: ``tvn-gen`` makes ``.tvn`` files. See docs/plugins.md.
"""
