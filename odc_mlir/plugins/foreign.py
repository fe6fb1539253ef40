"""Digests of plugins, and calls of plugins' code that can neither end nor delay the application.

:func:`probe` loads plugins in isolated processes. :func:`load` and :func:`call` run in this process, in a thread with a
deadline. Any exception of a plugin, including SystemExit, becomes an OptionError that names the plugin.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import math
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from odc_mlir._version import __version__
from odc_mlir.errors import CompileError, OdcError, OptionError, TimeLimitError
from odc_mlir.formats.cache import cache_folder
from odc_mlir.formats.private import make_folder, read_file, write_file
from odc_mlir.plugins.isolation import started
from odc_mlir.plugins.registry import DEVICES, FACTORY, PluginSource
from odc_mlir.process_limits import Limits

_PASSED_OVER = frozenset({"__pycache__", ".git"})
# Digests of larger files, and of this package, use size and modification time, to save time of sessions.
_MAX_CONTENT_BYTES = 32 << 20
_MAX_FILES = 5000
_MAX_PROBLEM_BYTES = 4096
_PROBLEM_SECONDS = 3600.0  # failures are cached only this long: their cause may be outside the plugin


def fingerprint(source: PluginSource) -> str:
    """Return a digest of a plugin's files that does not depend on the location."""
    if _module(source) == __package__.partition(".")[0]:
        return _own_fingerprint()
    return _digest(source, _MAX_CONTENT_BYTES)


@lru_cache(maxsize=1)
def _own_fingerprint() -> str:
    """Return the digest of this package. A process loads only one version of it."""
    return _digest(PluginSource("", "", reference=f"{__package__}:"), 0)


def _digest(source: PluginSource, room: int) -> str:
    digest = hashlib.sha256()
    for name, path in sorted(islice(_files(source), _MAX_FILES)):
        try:
            found = os.stat(path)
            if not stat.S_ISREG(found.st_mode):
                continue
            content = found.st_size <= room
            fact = Path(path).read_bytes() if content else b"%d %d" % (found.st_size, found.st_mtime_ns)
        except OSError:
            continue
        room -= found.st_size if content else 0
        digest.update(f"{name}\0{len(fact)}\0".encode())
        digest.update(fact)
    return digest.hexdigest()


def _files(source: PluginSource) -> Iterator[tuple[str, str]]:
    if source.file is not None:  # a plugin file may import other files of its folder
        yield from _beside(os.path.dirname(source.file))
        return
    spec = _spec(_module(source), source.folder)
    if spec is None:
        return
    for folder in spec.submodule_search_locations or ():
        yield from _below(folder, "")
    if spec.origin is not None and not spec.submodule_search_locations:
        yield os.path.basename(spec.origin), spec.origin


def _beside(folder: str) -> Iterator[tuple[str, str]]:
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        path = os.path.join(folder, name)
        if name.endswith(".py"):
            yield name, path
        elif os.path.isfile(os.path.join(path, "__init__.py")):
            yield from _below(path, name)


def _below(folder: str, name: str) -> Iterator[tuple[str, str]]:
    for inner, folders, files in os.walk(folder):
        folders[:] = sorted(set(folders) - _PASSED_OVER)
        relative = os.path.relpath(inner, folder)
        yield from ((f"{name}/{relative}/{file}", os.path.join(inner, file)) for file in files)


def _spec(module: str, folder: str | None) -> ModuleSpec | None:
    """Find a top-level module, but do not import it."""
    found = None if folder is None else PathFinder.find_spec(module, [folder])
    try:
        return found or find_spec(module)
    except (ImportError, ValueError, AttributeError):
        return None


def _module(source: PluginSource) -> str:
    return (source.reference or "").partition(":")[0].partition(".")[0]


TIMEOUT_VARIABLE = "ODC_PLUGIN_TIMEOUT_S"
_DEFAULT_SECONDS = 10.0
_MOST_OUTCOMES = 256
_MOST_TEXTS = 100
WORKER = "odc_mlir.plugins.worker"

T = TypeVar("T")
Answer = Mapping[str, Any]


def deadline_seconds() -> float:
    """Return the time limit for a plugin's answer: ``$ODC_PLUGIN_TIMEOUT_S``, else 10 s. Raises OptionError."""
    text = os.environ.get(TIMEOUT_VARIABLE, "").strip()
    try:
        seconds = float(text or _DEFAULT_SECONDS)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= 3600:
        raise OptionError(f"{TIMEOUT_VARIABLE} is {text!r}, expected seconds from 0 to 3600")
    return seconds


@contextmanager
def contained(kind: type[OdcError], text: str) -> Iterator[None]:
    """Convert exceptions of foreign code to ``kind`` with ``text``, except MemoryError, OdcError and Ctrl-C."""
    try:
        yield
    except (OdcError, MemoryError):
        raise
    except (Exception, SystemExit) as error:
        raise kind(f"{text}: {raised(error)}") from error


def raised(error: BaseException) -> str:
    """Return a line such as ``ValueError: no licence`` for an exception."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")


def job_of(source: PluginSource) -> dict[str, Any]:
    """Return the part of a worker's job that locates the plugin."""
    return {"file": source.file, "reference": source.reference, "folder": source.folder}


def import_plugin(file: str | None, reference: str | None, folder: str | None, *, position: int) -> Any:
    """Import a plugin and call the factory. Search ``folder`` at ``position`` of Python's path."""
    if folder is not None and folder not in sys.path:
        sys.path.insert(position, folder)
    if file is None:
        where, _, name = (reference or "").partition(":")
        found = getattr(importlib.import_module(where), name or FACTORY)
        return found() if callable(found) else found
    if (beside := str(Path(file).parent)) not in sys.path:
        sys.path.insert(position, beside)
    spec = importlib.util.spec_from_file_location("odc_codegen_plugin", file)
    if spec is None or spec.loader is None:
        raise TypeError(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, FACTORY)()


def load(source: PluginSource) -> Any:
    """Import an entry in this process and return the result of the function. Raises OptionError with the name."""
    # The folder is last on Python's path. Its modules then hide no modules of other folders.
    return call(lambda: import_plugin(**job_of(source), position=len(sys.path)), source)


def call(function: Callable[[], T], source: PluginSource) -> T:
    """Return ``function()``, which runs code of ``source``. Raises OptionError if it fails or exceeds the deadline.

    After the deadline, the function continues in a daemon thread. Threads of the plugin continue as well.
    """
    if source.is_ours:
        return function()
    outcome: list[tuple[T | None, BaseException | None]] = []

    def work() -> None:
        try:
            outcome.append((function(), None))
        except BaseException as error:  # the calling thread reports it
            outcome.append((None, error))

    seconds = deadline_seconds()
    thread = Thread(target=work, name="odc-plugin", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:  # the system has no more threads
        raise unusable(source, str(error)) from error
    thread.join(seconds)
    if not outcome:
        raise unusable(source, _too_slow(seconds))
    result, failure = outcome[0]
    if isinstance(failure, OdcError | MemoryError):
        raise failure
    if failure is not None:
        raise unusable(source, raised(failure)) from failure
    return result  # type: ignore[return-value]


def _too_slow(seconds: float) -> str:
    return f"it took longer than {seconds:g} s, the limit that {TIMEOUT_VARIABLE} sets"


def unusable(source: PluginSource, text: str, *, passing: object = False) -> OptionError:
    """Return the error for a failed plugin."""
    hint = "repair or uninstall the package; odc-doctor tests it"
    return OptionError(f"{source.target!r} of {source.origin} cannot be used: {text}", hint=hint, passing=passing)


def probe(
    kind: type[T], sources: Sequence[PluginSource], ask: str, question: Answer | None = None
) -> list[T | OdcError]:
    """Load each plugin in a separate process. Return the answers, each a ``kind`` or an error that names the plugin.

    ``ask`` names a function of ours as ``module:function``. The process calls it with the plugin and ``question``, and
    the function returns the fields of the dataclass ``kind``. Our own plugins answer in this process. Answers and
    errors are cached until the plugin's files change or this process ends.
    """
    seconds = deadline_seconds()
    asked = json.dumps([ask, question], sort_keys=True)
    known, outcomes = _known_outcomes(), dict[PluginSource, Answer]()
    with ExitStack() as stack:
        running: dict[_Key, Callable[[], Answer]] = {}
        for source in sources:
            if source.is_ours:
                outcomes[source] = {"said": answer(load(source), ask, question), "error": None}
                continue
            key = (source, fingerprint(source), asked)
            if key in known:
                outcomes[source] = known[key]
                continue
            is_device = source.group == DEVICES  # devices run in this process later, with its environment
            limits = Limits(seconds, None) if is_device else Limits(seconds)
            job = {**job_of(source), "ask": ask, "question": question}
            try:
                running[key] = stack.enter_context(started(WORKER, job, limits, whole_environment=is_device))
            except CompileError as error:  # not cached: the system lacked a resource
                outcomes[source] = _failure(error, seconds)
        for key, result in running.items():
            while len(known) >= _MOST_OUTCOMES:
                known.pop(next(iter(known)), None)
            try:
                outcomes[key[0]] = known[key] = result()
            except CompileError as error:
                outcomes[key[0]] = known[key] = _failure(error, seconds)
    return [parsed(kind, source, outcomes[source]) for source in sources]


def load_probed(source: PluginSource, ask: str, question: Answer | None = None) -> Any:
    """Load the plugin after a :func:`probe`. The outcome of the probe is cached. Raises OptionError."""
    if not source.is_ours and (problem := _problem(source, ask, question)):
        raise OptionError(problem)
    return load(source)


def _problem(source: PluginSource, ask: str, question: Answer | None) -> str:
    """Return why a plugin cannot be loaded, from the cache or by a probe, or "" if it can be loaded."""
    with suppress(OdcError, OSError):
        path = _record(source)
        problem = read_file(path, max_bytes=_MAX_PROBLEM_BYTES).decode(errors="replace")
        if not problem or time.time() - path.stat().st_mtime < _PROBLEM_SECONDS:
            return problem
    (found,) = probe(dict, [source], ask, question)
    problem = found.message if isinstance(found, OdcError) else ""
    remember(source, problem)
    return problem


def remember(source: PluginSource, problem: str) -> None:
    """Record in the cache why a plugin cannot be loaded. An empty ``problem`` records that it can be loaded."""
    with suppress(OdcError, OSError):  # without a cache, the next process probes again
        path = _record(source)
        make_folder(path.parent, within=cache_folder())
        write_file(path, problem.encode()[:_MAX_PROBLEM_BYTES])


def _record(source: PluginSource) -> Path:
    """Return the cache file with the outcome of the probe. The name depends on the plugin's files."""
    key = f"{source}\0{source.group}\0{fingerprint(source)}\0{__version__}\0{sys.version}\0{deadline_seconds()}"
    return cache_folder() / "plugins" / hashlib.sha256(key.encode()).hexdigest()[:32]


def answer(plugin: object, ask: str, question: Answer | None) -> Answer:
    """Call the function ``ask`` with a loaded plugin and ``question``. Return its answer."""
    where, _, name = ask.partition(":")
    found: Answer = getattr(importlib.import_module(where), name)(plugin, question)
    return found


def _failure(error: CompileError, seconds: float) -> Answer:
    is_late = isinstance(error, TimeLimitError)
    return {"error": {"text": _too_slow(seconds) if is_late else error.message, "passing": is_late or error.passing}}


def parsed(kind: type[T], source: PluginSource, outcome: Answer) -> T | OptionError:
    """Return the answer as a ``kind``. The plugin's function guarantees the types."""
    if outcome["error"] is not None:
        return unusable(source, outcome["error"]["text"], passing=outcome["error"].get("passing", False))
    said = outcome["said"]
    try:
        return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in said.items()})
    except TypeError as error:  # a plugin can change the answer of its process
        return unusable(source, str(error))


def texts(value: object, part: str) -> tuple[str, ...]:
    """Return a plugin's sequence of texts. Raises OptionError for any other value of ``part``."""
    if isinstance(value, list | tuple) and len(value) <= _MOST_TEXTS and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise OptionError(f"{part} is {value!r}, expected a tuple of at most {_MOST_TEXTS} texts")


_Key = tuple[PluginSource, str, str]


@lru_cache(maxsize=1)
def _known_outcomes() -> dict[_Key, Answer]:
    return {}
