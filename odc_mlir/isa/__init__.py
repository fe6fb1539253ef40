"""The NPU's instruction set as data: table, binary codec, assembly text and the ``.npu`` container.

``fields`` is the vocabulary of the rows in ``table``, and ``instructions`` collects all rows. ``codec`` packs and
unpacks instructions, ``assembly`` is their text form, and ``container`` is the file that holds a program with its
constants and tables. These modules do not depend on IR.
"""
