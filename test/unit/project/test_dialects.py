"""Verifier hooks have the names that xDSL calls, in every operation and attribute of ours."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects import test
from xdsl.ir import Attribute, Dialect, Operation


def _dialects() -> list[Dialect]:
    from odc_mlir.universe import UNIVERSE

    return [load() for load in UNIVERSE.all_dialects.values()]


def _own_classes(cls: type) -> Iterator[type]:
    return (base for base in cls.__mro__ if not base.__module__.startswith(("xdsl.", "builtins", "typing")))


def misnamed_hooks(cls: type[Operation] | type[Attribute]) -> list[str]:
    """``verify_`` is called on operations and ``verify`` on attributes; the other spellings are dead code or worse."""
    wrong = ("verify", "_verify") if issubclass(cls, Operation) else ("verify_", "_verify")
    return [f"{base.__qualname__}.{name}" for base in _own_classes(cls) for name in wrong if name in vars(base)]


def test_our_hooks_are_called() -> None:
    classes = [cls for dialect in _dialects() for cls in (*dialect.operations, *dialect.attributes)]
    assert classes
    assert not (found := [hook for cls in classes for hook in misnamed_hooks(cls)]), found


def test_a_misnamed_hook_is_found() -> None:
    class Misnamed(test.TestOp):
        def _verify(self) -> None: ...

    assert misnamed_hooks(Misnamed) == [f"{Misnamed.__qualname__}._verify"]


def test_every_operation_and_attribute_is_documented() -> None:
    bare = [
        cls.name
        for dialect in _dialects()
        for cls in (*dialect.operations, *dialect.attributes)
        if not (cls.__doc__ or "").strip()
    ]
    assert not bare, bare
