"""A flow as commands: what each reads and writes, so that only what changed is run again."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odc_mlir._version import __version__
from odc_mlir.errors import OptionError

STATE_KEYS = ("odc_build", "steps")
_BLOCK_BYTES = 1 << 20

CommandRunner = Callable[[str, Sequence[str]], int]


def option_words(option: str, value: str) -> list[str]:
    """Return the words that give ``value`` to ``option``, even if it looks like an option itself."""
    return [f"{option}={value}"] if value.startswith("-") else [option, value]


@dataclass(frozen=True)
class FlowStep:
    """One command: ``command`` with ``arguments`` reads ``reads`` and writes ``writes`` (files or folders)."""

    name: str
    command: str
    arguments: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """The arguments to pass: ``./`` precedes the name of a file that the command would take for an option."""
        files = {*self.reads, *self.writes}
        return tuple(f"./{word}" if word.startswith("-") and word in files else word for word in self.arguments)

    @property
    def text(self) -> str:
        """The command line as a user would type it."""
        return shlex.join([self.command, *self.words])


@dataclass(frozen=True)
class Flow:
    """``steps`` in order; ``notes`` tell what of the file has no counterpart here."""

    steps: tuple[FlowStep, ...]
    notes: tuple[str, ...] = ()


def digest_of(path: str) -> str | None:
    """What tells a file, or everything in a folder, from another; None where there is none."""
    root = Path(path)
    if root.is_dir():
        whole = hashlib.sha256()
        for file in sorted(item for item in root.rglob("*") if item.is_file()):
            whole.update(f"{file.relative_to(root)}\0{_of_file(file)}\0".encode())
        return whole.hexdigest()
    return _of_file(root) if root.is_file() else None


def _of_file(path: Path) -> str:
    whole = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            whole.update(block)
    return whole.hexdigest()


def key_of(step: FlowStep) -> str:
    """What the result of ``step`` depends on: its command line, this version, and contents of what it reads."""
    parts = [__version__, step.text, *(f"{path} {digest_of(path)}" for path in step.reads)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def is_done(step: FlowStep, state: Mapping[str, Any]) -> bool:
    """Whether ``state`` says that this very step was run, and its outputs are what it wrote."""
    entry = state.get(step.text)
    if not isinstance(entry, dict) or entry.get("key") != key_of(step):
        return False
    written = entry.get("writes")
    return isinstance(written, dict) and all(
        written.get(path) is not None and written[path] == digest_of(path) for path in step.writes
    )


def record_of(step: FlowStep) -> dict[str, Any]:
    """What :func:`is_done` compares with."""
    return {"key": key_of(step), "writes": {path: digest_of(path) for path in step.writes}}


def read_state(path: str) -> dict[str, Any]:
    """The steps that a file of state tells of; empty where there is none, or something else."""
    try:
        document = json.loads(Path(path).read_bytes())
    except (OSError, ValueError):
        return {}
    steps = document.get("steps") if isinstance(document, dict) and set(STATE_KEYS) <= document.keys() else None
    return steps if isinstance(steps, dict) else {}


def state_document(steps: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a file of state."""
    return {"odc_build": __version__, "steps": dict(steps)}


def run(
    flow: Flow,
    state: dict[str, Any],
    call: CommandRunner,
    keep: Callable[[Mapping[str, Any]], None],
    *,
    force: bool = False,
) -> Iterator[tuple[FlowStep, bool]]:
    """Run the steps that are not done; yields each before it is run, and whether it has to be.

    ``call`` runs a command and gives its exit code, ``keep`` gets the new state after each step. Raises OptionError
    where a step fails or does not write what it should.
    """
    for step in flow.steps:
        needed = force or not is_done(step, state)
        yield step, needed
        if not needed:
            continue
        state.pop(step.text, None)
        for path in step.writes:
            if parent := os.path.dirname(path):
                os.makedirs(parent, exist_ok=True)
        code = call(step.command, step.words)
        if code != 0:
            raise OptionError(f"step {step.name!r} failed with exit code {code}", hint=step.text)
        missing = [path for path in step.writes if digest_of(path) is None]
        if missing:
            raise OptionError(f"step {step.name!r} did not write {missing[0]!r}", hint=step.text)
        state[step.text] = record_of(step)
        keep(state)
