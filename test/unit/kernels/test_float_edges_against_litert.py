"""Host kernels against LiteRT's on numbers at the edges: what differs is listed in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from helpers.float_edges import GROUPS, Case
from helpers.litert import reference_all
from helpers.nodes import run_all

RESOLVERS = {"reference": "BUILTIN_REF", "optimised": "BUILTIN_WITHOUT_DEFAULT_DELEGATES"}
LARGEST_VERSION = 5
ROUNDING = 1e-5
_PAGE = Path(__file__).parents[3] / "docs" / "operators.md"
_ROW = re.compile(r"^\| ([A-Z0-9_, ]+) \| (both|reference|optimised) \|", re.MULTILINE)


def results(item: Case, resolver: str) -> list[np.ndarray] | None:
    """LiteRT's results, by the first version of the operator that it knows; None if it rejects the operator."""
    for version in range(1, LARGEST_VERSION + 1):
        try:
            return reference_all(item.made, *item.inputs, version=version, resolver=resolver)
        except ValueError as error:
            if "Didn't find op" in str(error):
                continue
            return None
        except RuntimeError:
            return None
    return None


def comparable(item: Case) -> bool:
    """Tell if LiteRT has the operator: no custom one, and its ATAN2 does not broadcast."""
    shapes = {x.shape for x in item.inputs}
    return not item.name.startswith("CUSTOM") and (item.name != "ATAN2" or len(shapes) == 1)


def test_documented_deviations() -> None:
    found: dict[str, set[str]] = {}
    groups = [group for group in GROUPS if group.__name__ not in ("hybrids", "recurrent")]
    for item in (item for group in groups for item in group() if comparable(item)):
        ours = run_all(item.made, *item.inputs)
        for kernels, resolver in RESOLVERS.items():
            theirs = results(item, resolver)
            if theirs is not None and not all(
                item.agree(x, y, ROUNDING).all() for x, y in zip(ours, theirs, strict=True)
            ):
                found.setdefault(item.name, set()).add(kernels)
    listed: dict[str, set[str]] = {}
    for names, kernels in _ROW.findall(_PAGE.read_text("utf-8")):
        for name in names.split(", "):
            listed.setdefault(name, set()).update(RESOLVERS if kernels == "both" else {kernels})
    assert found == listed
