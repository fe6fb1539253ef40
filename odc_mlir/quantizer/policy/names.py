"""Names of tensors in the text of options, where a backslash makes a separator part of a name.

Exporters write what they like: ``layer1/normalised``, ``StatefulPartitionedCall:0``, ``relu;add``. What is no separator
stands for itself, the backslash too.
"""

from __future__ import annotations

import re


def pieces(text: str, separator: str) -> list[str]:
    """What ``text`` has between separators, without the backslashes before those that belong to names."""
    found = re.split(rf"(?<!\\){re.escape(separator)}", text)
    return [piece.replace(f"\\{separator}", separator) for piece in found]


def escaped(name: str, separator: str) -> str:
    """``name`` as :func:`pieces` reads it."""
    return name.replace(separator, f"\\{separator}")
