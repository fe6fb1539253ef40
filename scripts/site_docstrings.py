"""Docstrings as the site shows them: an extension of griffe, which reads the sources for mkdocs.

Our docstrings are plain text with roles, double backquotes and indented examples; the site wants Markdown.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

from generate_docs import markdown

ROLE = re.compile(r":\w+:`~?([^`]+)`")


class Docstrings(griffe.Extension):
    """Rewrites the docstring of everything that griffe finds."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Make Markdown of the docstring of ``obj``."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(ROLE.sub(r"`\1`", obj.docstring.value))
