"""Typed errors of the whole project.

Every failure that a user can cause is an :class:`OdcError`. The message has the value seen and the values allowed. The
keyword fields have the location. Commands print ``str(error)`` on one line and exit with 1.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_PLAIN_ASCII = re.compile(r"[\n\t -~]*")


def printable(text: str) -> str:
    """Escape every character of ``text`` that could move a cursor, change colours, reorder or hide text.

    Models, packages, plugins and paths choose names freely, and terminals print these names. Characters that Unicode
    does not call printable, except newline and tab, are escaped as in JSON: ``\\u001b``.
    """
    if _PLAIN_ASCII.fullmatch(text):
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else _escaped(c) for c in text)


def shortened(text: str) -> str:
    """Return ``text`` with long quoted names shortened by :func:`short_name`."""
    return _QUOTED_NAME.sub(lambda found: f"{found[1]}{short_name(found[2])}{found[1]}", text)


def short_name(name: str) -> str:
    """Return ``name``. Omit the middle if ``name`` has more than 120 characters. Some converters join many names."""
    return name if len(name) <= _LONGEST_NAME else f"{name[:48]}…{name[-48:]}"


def bounded(line: str) -> str:
    """Return ``line``. Omit the middle beyond 400 characters, because text from files may be endless.

    The start has the problem, the end the remedy. Words stay whole, except for very long words.
    """
    if len(line) <= _LONGEST_LINE:
        return line
    head, _, cut = line[:241].rpartition(" ")
    rest, _, tail = line[-158:].partition(" ")
    head, tail = head if len(cut) <= _LONGEST_WORD else line[:240], tail if len(rest) <= _LONGEST_WORD else line[-157:]
    return f"{head} … {tail}"


_LONGEST_NAME = 120
_LONGEST_LINE = 400
_LONGEST_WORD = 60
_QUOTED_NAME = re.compile(r"""(['"])([^'"\s]+)\1""")


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the hint ``did you mean 'npu-alloc'? `` if one of ``known`` is similar to ``name``, else ""."""
    from difflib import get_close_matches  # only errors need it

    names = {item.casefold(): item for item in known}
    return "".join(f"did you mean {names[near]!r}? " for near in get_close_matches(name.casefold(), names, 1))


class OdcError(Exception):
    """Base of all errors that are not defects of odc-mlir.

    ``op``: operator kind (``CONV_2D``), ``tensor``: tensor name, ``location``: file, file:line or segment name,
    ``stage``: compiler stage or runtime phase, ``pass_name``: the pass, if known, ``hint``: a remedy. ``passing``: a
        later attempt may succeed, because memory, disk space, a lock or a process was missing. ``source``: the wrong
        line of a text with a caret below it, which commands print after the message.
    """

    source: str | None = None
    is_list = False  # whether the message lists problems, of which ``str`` must not omit any

    def __init__(
        self,
        message: str,
        *,
        op: str | None = None,
        tensor: str | None = None,
        location: str | None = None,
        stage: str | None = None,
        pass_name: str | None = None,
        hint: str | None = None,
        passing: object = False,  # not bool: callers pass dictionaries of strings as keyword arguments
    ) -> None:
        message = printable(message)
        super().__init__(message)
        self.message = message
        self.op = op
        self.tensor = tensor
        self.location = location
        self.stage = stage
        self.pass_name = pass_name
        self.hint = hint
        self.passing = bool(passing)

    def __str__(self) -> str:
        where = [
            f"{label} {value}"
            for label, value in (
                ("in", self.location),
                ("stage", self.stage),
                ("pass", self.pass_name),
                ("op", self.op),
                ("tensor", self.tensor and repr(self.tensor)),
            )
            if value
        ]
        text = self.message + (f" ({', '.join(where)})" if where else "")
        text = shortened(" ".join(printable(text + (f"; {self.hint}" if self.hint else "")).split()))
        return text if self.is_list else bounded(text)


@contextmanager
def parsing(
    failure: str, kind: type[OdcError], *, location: str | None = None, hint: str | None = None
) -> Iterator[None]:
    """Convert every exception of a library that parses untrusted bytes to a ``kind`` that starts with ``failure``.

    Use this for third-party parsers (zip, NPY, HDF5, JSON, TOML, SQLite, pictures), because exceptions of parsers for
    damaged input are not documented and change with versions.
    """
    try:
        yield
    except OdcError:
        raise
    except MemoryError as error:
        reason = "it needs more memory than is available"
        raise kind(f"{failure}: {reason}", location=location, hint=hint) from error
    except Exception as error:
        raise kind(f"{failure}: {_reason(error) or type(error).__name__}", location=location, hint=hint) from error


@contextmanager
def of_system(
    failure: str, kind: type[OdcError], *, location: str | None = None, stage: str | None = None
) -> Iterator[None]:
    """Convert system errors, and ValueErrors (names with a null character), to a ``kind`` that starts with ``failure``.

    The error is ``passing`` if the system lacked a resource.
    """
    try:
        yield
    except (OSError, ValueError) as error:
        passing = isinstance(error, OSError) and is_passing(error)
        raise kind(f"{failure}: {_reason(error)}", location=location, stage=stage, passing=passing) from None


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


@contextmanager
def of_extra(name: str, kind: type[OdcError], need: str, more: str = "", location: str | None = None) -> Iterator[None]:
    """Convert a failed import of a package of the extra ``name`` to a ``kind`` with the message ``need``."""
    try:
        yield
    except ImportError:
        raise kind(need, location=location, hint=f"pip install 'odc-mlir[{name}]'{more}") from None


@contextmanager
def located(location: str) -> Iterator[None]:
    """Add ``location`` to errors of this block that have no location."""
    try:
        yield
    except OdcError as error:
        error.location = error.location or location
        raise


class ModelError(OdcError):
    """A model file or IR module is malformed or inconsistent."""


class UnsupportedError(OdcError):
    """The input is valid but needs a feature that is not implemented."""


class OptionError(OdcError):
    """An option or argument has an invalid value."""


class PackageError(OdcError):
    """An nnpackage, or a member such as the plan, cannot be used."""


class InputError(OdcError):
    """Run-time input data does not fit the model: count, shape or dtype."""


class InputCountError(InputError, ValueError):
    """The number of arrays differs from the model's number of inputs."""


class TargetError(OdcError):
    """A target description is malformed, unknown, or not the target of the binary."""


class CompileError(OdcError):
    """A compiler stage cannot lower valid input."""


class TimeLimitError(CompileError):
    """Compiling took longer than the time limit."""


class TranslationError(CompileError):
    """Outputs on random inputs differ before and after a stage."""


class ForeignPassError(CompileError):
    """A pass of another package raised an unexpected exception."""


class MemoryLimitError(CompileError):
    """Compiling needed more memory than the limit."""


class AllocationError(CompileError):
    """A memory limit is too small: ``needed_bytes`` exceed ``allowed_bytes`` (each 0 if unknown)."""

    needed_bytes = 0
    allowed_bytes = 0


class AccuracyError(OdcError):
    """A quantised model differs from the float model by more than the limits allow."""


class SimulationError(OdcError):
    """The NPU program misbehaved: deadlock, out-of-range access, race, malformed instruction."""


class RecordsError(OdcError):
    """A file of recorded ranges has a newer version, or cannot be read or written."""


class RecordsDamagedError(RecordsError):
    """A file has no recorded ranges, is damaged, or belongs to another model."""


class CacheError(OdcError):
    """A file or folder of the cache has an unexpected type or owner, or cannot be accessed."""


class SessionError(OdcError):
    """A runtime session was used in the wrong state."""


class InvalidStateError(SessionError):
    """The state of the session does not allow a call."""


class UnexpectedNullError(SessionError):
    """A session got None for a required value, or is already closed."""


class OutOfMemoryError(SessionError):
    """A session ran out of memory."""


class InsufficientOutputError(SessionError):
    """A buffer is too small for an output of a size known only after the run."""


class DeprecatedApiError(SessionError):
    """A deprecated call, which only names the replacement."""


_PASSING = frozenset(
    getattr(errno, name)
    for name in ("EAGAIN", "EBUSY", "EDQUOT", "EINTR", "EIO", "EMFILE", "ENFILE", "ENOLCK", "ENOMEM", "ENOSPC")
    if hasattr(errno, name)
)


def is_passing(error: OSError) -> bool:
    """Return whether the same call may succeed later, because the system lacked a resource."""
    return error.errno in _PASSING
