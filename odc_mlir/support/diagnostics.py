"""Conversion of xDSL's exceptions to our typed errors."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Operation
from xdsl.utils import exceptions
from xdsl.utils.exceptions import VerifyException

from odc_mlir.errors import CompileError, ModelError, OdcError, OptionError, bounded
from odc_mlir.support.locations import Positions, point


@contextmanager
def typed_errors(stage: str | None = None, *, pass_name: str | None = None) -> Generator[None]:
    """Convert exceptions of xDSL that users can cause to OdcErrors with one line of text.

    A parsing or verification failure becomes a ModelError, a failure of a pass or of the interpreter a CompileError.
    The error gets ``stage`` and ``pass_name``. All other exceptions, including OdcErrors, pass unchanged.
    """
    try:
        with _typed():
            yield
    except OdcError as error:
        error.stage = error.stage or stage
        error.pass_name = error.pass_name or pass_name
        raise


@contextmanager
def _typed() -> Generator[None]:
    """Convert exceptions like :func:`typed_errors`, but add no stage and no pass."""
    try:
        yield
    except exceptions.ParseError as error:
        raised = ModelError(_lower(error.msg.strip().rstrip("!.")))
        point(raised, error.span)
        raise raised from error
    except (VerifyException, exceptions.UnregisteredConstructException) as error:
        raise ModelError(_lower(str(error))) from error
    except exceptions.ArgSpecParseError as error:  # a BaseException
        raise OptionError(_lower(str(error).splitlines()[-1].strip())) from error
    except (exceptions.PassFailedException, exceptions.InterpretationError, exceptions.DiagnosticException) as error:
        raise CompileError(_lower(str(error))) from error


@contextmanager
def attribute_errors(module: ModuleOp) -> Generator[None]:
    """Raise a VerifyException if a verifier fails because the IR holds a plain Python object."""
    try:
        yield
    except (AttributeError, TypeError, ValueError) as error:
        for op in module.walk():
            for name, value in (*op.properties.items(), *op.attributes.items()):
                if not isinstance(value, Attribute):
                    raise VerifyException(
                        f"{op.name}: {name} is {bounded(repr(value))}, an object of type {type(value).__name__}; "
                        "it takes an attribute of xDSL, such as IntegerAttr or ArrayAttr"
                    ) from error
        raise


def verify_module(module: ModuleOp, positions: Positions, stage: str | None = None) -> None:
    """Raise the first of :func:`verify_errors`."""
    for error in verify_errors(module, positions, stage):
        raise error


def verify_errors(module: ModuleOp, positions: Positions, stage: str | None = None) -> list[ModelError]:
    """Verify ``module``. Return an error with a position for each invalid operation."""
    try:
        module.verify()
        verify_order(module)
        return []
    except VerifyException as error:
        whole = error
    found = []
    for op in module.walk():
        try:
            op.verify(verify_nested_ops=False)
        except VerifyException as error:
            found.append(_of_op(error, op, positions, stage))
        except Exception:  # verifiers may rely on valid operations as owners of the operands
            if not found:
                raise
    return found or [_of_op(whole, module, positions, stage)]  # errors of blocks and regions have no operation


def verify_order(module: ModuleOp) -> None:
    """Raise VerifyException for an operation that uses a result of itself or of a later operation in the block."""
    seen: set[Operation] = set()
    for op in module.walk():
        for value in op.operands:
            if isinstance(value.owner, Operation) and value.owner.parent is op.parent and value.owner not in seen:
                raise VerifyException(f"{op.name}: operand {value.name_hint or value} is defined by a later operation")
        seen.add(op)


def _of_op(error: VerifyException, op: Operation, positions: Positions, stage: str | None) -> ModelError:
    raised = ModelError(_lower(str(error)), stage=stage)
    raised.__cause__ = error
    positions.place(raised, op)
    return raised


def _lower(text: str) -> str:
    """Make the first letter of xDSL's messages lower-case, as in ours. Words in capitals (CONV_2D) stay."""
    return text[:1].lower() + text[1:] if text[1:2].islower() else text
