"""Adding an operator: the table is the one declaration, and this test names what a new entry still lacks."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from helpers.data import REPOSITORY
from odc_mlir.errors import OdcError
from odc_mlir.ops import all_specs
from odc_mlir.ops.spec import OpSpec, Trait


def _tests_text() -> str:
    """Everything that tests of the operators say."""
    files = [*(REPOSITORY / "test" / "unit").rglob("*.py"), *(REPOSITORY / "test" / "filecheck").rglob("*.mlir")]
    return "\n".join(path.read_text() for path in files if path.parent.name != "project")


def _resolves(get: Callable[[], object]) -> bool:
    try:
        return callable(get())
    except (ImportError, AttributeError, ValueError):
        return False


def _lacks(spec: OpSpec, tests: str) -> list[str]:
    lacks = []
    if not _resolves(lambda: spec.infer_function):
        lacks.append(f"shape function {spec.infer!r}")
    if not _resolves(lambda: spec.kernel_function):
        lacks.append(f"host kernel {spec.kernel!r}")
    if spec.verify and not _resolves(lambda: spec.verify_function):
        lacks.append(f"verifier {spec.verify!r}")
    if not spec.summary:
        lacks.append("a summary")
    if not re.search(rf"""["']{spec.name}["']|circle\.{spec.mnemonic}\b""", tests):
        lacks.append("a test that names it")
    if spec.options and not spec.options.endswith("Options"):
        lacks.append(f"an options table (says {spec.options!r})")
    return lacks


def test_every_operator_is_complete() -> None:
    tests = _tests_text()
    lacking = {name: lacks for name, spec in all_specs().items() if (lacks := _lacks(spec, tests))}
    assert not lacking, "\n".join(f"{name} lacks {', '.join(lacks)}" for name, lacks in lacking.items())


def test_an_incomplete_operator_is_named() -> None:
    lacks = _lacks(OpSpec("NO_SUCH", (), ()), "")
    assert [what.split()[0] for what in lacks] == ["shape", "host", "a", "a"]


def test_every_operator_has_an_ir_class() -> None:
    """Building the class also checks its constraints and assembly format."""
    from xdsl.ir import Operation

    from odc_mlir.dialects.circle import op_class

    for name, spec in all_specs().items():
        cls = op_class(name)
        assert issubclass(cls, Operation), name
        assert cls.name == f"circle.{spec.mnemonic}"


@pytest.mark.parametrize("trait", Trait)
def test_traits_are_used(trait: Trait) -> None:
    """A trait that no operator has is a rule that nothing obeys."""
    assert any(trait in spec.traits for spec in all_specs().values())


def test_an_unknown_operator_is_a_user_error() -> None:
    from odc_mlir.ops import get

    with pytest.raises(OdcError, match="not supported"):
        get("NO_SUCH")
