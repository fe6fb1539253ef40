"""Instruction set of the NPU as data: table, binary codec, assembly text and the ``.npu`` container.

``fields`` defines the vocabulary of the rows in ``table``, and ``instructions`` collects all rows. ``codec`` packs and
unpacks instructions, ``assembly`` converts them to text, and ``container`` reads and writes files with a program, its
constants and its tables. These modules do not depend on IR.
"""
