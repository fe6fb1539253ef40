"""The NPU's instruction set as data: table, binary codec, assembly text and the ``.npu`` container.

``fields``, ``effects`` and ``cost`` are the vocabulary of the rows in ``table``, ``instructions`` is all of them;
``codec`` packs and unpacks instructions, ``assembly`` is their text form and
``container`` the file that holds a program with its constants and tables. Nothing here knows IR or numpy.
"""
