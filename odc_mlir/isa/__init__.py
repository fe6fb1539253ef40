"""Instruction set of the NPU as data: table, binary codec, assembly text and the ``.npu`` container.

``fields`` defines the vocabulary of the rows in ``table``, and ``instructions`` collects all rows. ``codec`` packs and
unpacks instructions. ``assembly`` converts instructions to text. ``container`` reads and writes files with a program,
constants and tables. These modules do not depend on IR.
"""
