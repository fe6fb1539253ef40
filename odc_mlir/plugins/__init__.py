"""Codegen plugins: compilers for other targets, found by name and run in separate processes.

The target string of a plugin is ``<extension>-gen``: ``tvn-gen`` makes ``.tvn`` files. See docs/plugins.md.
"""
