"""A public class has a name of its own in the whole package: a reader who meets it knows which one is meant."""

from __future__ import annotations

import ast
from collections import defaultdict

import pytest

from helpers.source import module_name, package_files, tree

pytestmark = pytest.mark.xdist_group("source")  # one process parses all files

# Name -> why several modules may have a class of it.
SAME_MEANING = {
    "Rule": "what a plugin's table of rules is made of is what the NPU's own is made of: both have the same fields",
}


def test_no_two_public_classes_share_a_name() -> None:
    homes = defaultdict(list)
    for path in package_files():
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(module_name(path))
    shared = {name: modules for name, modules in homes.items() if len(modules) > 1}
    wrong = {name: modules for name, modules in shared.items() if name not in SAME_MEANING}
    assert not wrong, "\n".join(f"class {name} is defined in {' and '.join(wrong[name])}" for name in sorted(wrong))
    assert set(SAME_MEANING) == set(shared), "a name that only one class has needs no entry here"
