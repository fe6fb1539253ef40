"""Verifier hooks have the names that xDSL calls, in every operation and attribute of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import signature

from xdsl.dialects import test
from xdsl.ir import Attribute, Dialect, Operation


def _dialects() -> list[Dialect]:
    from odc_mlir.universe import UNIVERSE

    return [load() for load in UNIVERSE.all_dialects.values()]


def _own_classes(cls: type) -> Iterator[type]:
    return (base for base in cls.__mro__ if not base.__module__.startswith(("xdsl.", "builtins", "typing")))


def misnamed_hooks(cls: type[Operation] | type[Attribute]) -> list[str]:
    """``verify_`` is called on operations and ``verify`` on attributes; the other spellings are dead code or worse.

    An operation may still verify itself in a way of its own, with xDSL's parameters.
    """
    wrong = ("verify", "_verify") if issubclass(cls, Operation) else ("verify_", "_verify")
    found = [(base, name) for base in _own_classes(cls) for name in wrong if name in vars(base)]
    return [f"{base.__qualname__}.{name}" for base, name in found if not _replaces_verify(vars(base)[name])]


def _replaces_verify(method: Callable[..., None]) -> bool:
    return signature(method).parameters.keys() == signature(Operation.verify).parameters.keys()


def test_our_hooks_are_called() -> None:
    classes = [cls for dialect in _dialects() for cls in (*dialect.operations, *dialect.attributes)]
    assert classes
    assert not (found := [hook for cls in classes for hook in misnamed_hooks(cls)]), found


def test_a_misnamed_hook_is_found() -> None:
    class Misnamed(test.TestOp):
        def _verify(self) -> None: ...

        def verify(self) -> None: ...  # type: ignore[override]

    assert misnamed_hooks(Misnamed) == [f"{Misnamed.__qualname__}.{name}" for name in ("verify", "_verify")]


def test_every_operation_and_attribute_is_documented() -> None:
    bare = [
        cls.name
        for dialect in _dialects()
        for cls in (*dialect.operations, *dialect.attributes)
        if not (cls.__doc__ or "").strip()
    ]
    assert not bare, bare
