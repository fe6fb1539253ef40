"""The one place where xDSL's exceptions become typed errors of ours."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from xdsl.utils.exceptions import (
    ArgSpecParseError,
    DiagnosticException,
    InterpretationError,
    ParseError,
    PassFailedException,
    UnregisteredConstructException,
    VerifyException,
)

from odc_mlir.errors import CompileError, ModelError, OdcError, OptionError


@contextmanager
def typed_errors(stage: str | None = None) -> Generator[None]:
    """Run a block of xDSL code so that what a user can cause leaves as an OdcError with one line of text.

    Text that does not parse or verify is a ModelError, a pass that fails or cannot interpret is a CompileError;
    ``stage`` goes into the error. Everything else, OdcErrors included, passes unchanged.
    """
    try:
        yield
    except OdcError as error:
        error.stage = error.stage or stage
        raise
    except ParseError as error:
        text = _lower(error.msg.strip().rstrip("!."))
        raise ModelError(text, location=str(error.span.get_location()), stage=stage) from error
    except (VerifyException, UnregisteredConstructException) as error:
        raise ModelError(_lower(str(error)), stage=stage) from error
    except ArgSpecParseError as error:  # a BaseException: nothing else would ever catch it
        raise OptionError(_lower(str(error).splitlines()[-1].strip()), stage=stage) from error
    except (PassFailedException, InterpretationError, DiagnosticException) as error:
        raise CompileError(_lower(str(error)), stage=stage) from error


def _lower(text: str) -> str:
    """xDSL starts sentences with a capital; ours start lower-case. Words in capitals (CONV_2D) stay."""
    return text[:1].lower() + text[1:] if text[1:2].islower() else text
