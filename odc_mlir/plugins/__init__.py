"""Codegen plugins: compilers of other targets that are found by name and run in a process of their own.

The target string of a plugin is ``<extension>-gen``: ``tvn-gen`` makes ``.tvn`` files, ours, ``npu-gen``, makes
packages for the NPU. A plugin is an object with a name, an extension and ``compile(request)``; see
:class:`~odc_mlir.plugins.request.CodegenPlugin`. :func:`~odc_mlir.plugins.codegen.generate` finds it
(:mod:`~odc_mlir.plugins.registry` says where), runs it with limits, checks what it made and puts that in place.
"""
