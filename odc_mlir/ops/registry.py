"""Registry of an application's custom operators by custom code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from odc_mlir.errors import OptionError

if TYPE_CHECKING:
    from odc_mlir.ops.spec import TensorInfo

Evaluate = Callable[[Sequence[Any], "Sequence[TensorInfo]", bytes], Sequence[Any]]
InferShapes = Callable[["Sequence[TensorInfo | None]", "Sequence[TensorInfo]", bytes], Sequence[Any]]


@dataclass(frozen=True, slots=True)
class CustomOp:
    """A registered operator. See :meth:`CustomOps.register` for ``evaluate`` and ``infer``."""

    code: str
    evaluate: Evaluate
    infer: InferShapes | None = None


class CustomOps:
    """Custom operators by custom code, including the operators of ``parent``.

    The registry of a session has the default registry as parent. Registrations in a session thus do not affect other
    sessions.
    """

    def __init__(self, parent: CustomOps | None = None) -> None:
        self._parent = parent
        self._operators: dict[str, CustomOp] = {}

    def register(
        self, code: str, evaluate: Evaluate, *, infer: InferShapes | None = None, replace: bool = False
    ) -> None:
        """Register ``evaluate`` for operators with the custom code ``code``, even a public one.

        ``evaluate(inputs, outputs, options)`` gets the operands as read-only arrays (None if omitted), descriptions of
        the results (name, dtype, shape, quant) and the raw option bytes. It returns one array per result, of the
        declared element type. The optional ``infer(inputs, outputs, options)`` returns the results' shapes (None for
        unknown sizes) before the run. Raises OptionError for an invalid code, and, unless ``replace``, for a code that
        is already registered here.
        """
        if not isinstance(code, str) or not code:
            raise OptionError(f"a custom code is a non-empty string, not {code!r}")
        if not callable(evaluate) or not (infer is None or callable(infer)):
            raise OptionError(f"the functions of custom operator {code!r} must be callable")
        if code in self._operators and not replace:
            raise OptionError(f"custom operator {code!r} is registered already", hint="pass replace=True to change it")
        self._operators[code] = CustomOp(code, evaluate, infer)

    def remove(self, code: str) -> None:
        """Remove ``code``. Raises OptionError if it is not registered here."""
        if self._operators.pop(code, None) is None:
            raise OptionError(f"custom operator {code!r} is not registered")

    def get(self, code: str) -> CustomOp | None:
        """Return the operator for ``code``, registered here or in the parent."""
        found = self._operators.get(code)
        return self._parent.get(code) if found is None and self._parent is not None else found

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._operators, *(self._parent or ()))))


@cache
def default_custom_ops() -> CustomOps:
    """Return the registry of the process. ``odc_mlir.register_custom_op`` adds to it."""
    return CustomOps()


def register_custom_op(
    code: str, evaluate: Evaluate, *, infer: InferShapes | None = None, replace: bool = False
) -> None:
    """Register ``evaluate`` for the whole process. See :meth:`CustomOps.register`."""
    default_custom_ops().register(code, evaluate, infer=infer, replace=replace)
