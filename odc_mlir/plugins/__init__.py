"""Codegen plugins: compilers for other targets, found by name and run in separate processes.

The target string of a plugin is ``<extension>-gen``. For example, ``tvn-gen`` writes ``.tvn`` files: docs/plugins.md.
"""
