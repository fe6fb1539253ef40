"""The table of pattern groups. A pattern is a chain of operators, each the only reader of the one before."""

from __future__ import annotations

from dataclasses import dataclass

VIEW = "VIEW"  # in a pattern: any operator that only shows the same bytes in another shape


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern. ``chain``: operator names, producers first; ``text``: the reason to group them."""

    name: str
    chain: tuple[str, ...]
    text: str


_PADDED = "the convolution pads while it loads"
_FLAT = "the view is no work where its reader is"

PATTERNS: tuple[Pattern, ...] = tuple(
    sorted(
        (
            Pattern("padded-convolution", ("PAD", "CONV_2D"), _PADDED),
            Pattern("padded-depthwise", ("PAD", "DEPTHWISE_CONV_2D"), _PADDED),
            Pattern("flat-product", (VIEW, "FULLY_CONNECTED"), _FLAT),
            Pattern("flat-product-of-views", (VIEW, VIEW, "FULLY_CONNECTED"), _FLAT),
            Pattern("flat-softmax", (VIEW, "SOFTMAX"), _FLAT),
        ),
        key=lambda pattern: (-len(pattern.chain), pattern.name),
    )
)
