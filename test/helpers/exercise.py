"""What users do with a model file, done to one that may be anything: import, run, compile, run again.

Time and memory are bounded and measured; what is no typed error is a finding.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from odc_mlir import loading
from odc_mlir.errors import OdcError
from odc_mlir.ops.spec import Array, TensorInfo
from odc_mlir.runtime.api import open_executor
from odc_mlir.runtime.execution.executor import Executor

MAX_SECONDS = 5.0
MAX_BYTES = 1 << 30
ACTIVATION_BYTES = 64 << 20
INPUT_BYTES = 4 << 20

_HIGH_WATER = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")
_RESET_HIGH_WATER = "5"


class TooSlowError(BaseException):
    """Raised where the time is over; no handler of ours catches it."""


@dataclass(slots=True)
class Outcome:
    """What became of one file. ``finding`` is None where all is as it should be."""

    reached: str = "import"
    finding: str | None = None
    error: Exception | None = None
    seconds: float = 0.0
    nbytes: int = 0
    errors: list[OdcError] = field(default_factory=list)


def exercise(data: bytes, rng: random.Random, *, compiled: bool = False) -> Outcome:
    """Import ``data``, run it on the host and, if ``compiled``, on the NPU, where results must be the same."""
    outcome = Outcome()
    _watched(outcome, lambda: _steps(outcome, data, rng, compiled))
    return outcome


def bounded(step: str, action: Callable[[], object]) -> Outcome:
    """What becomes of ``action``: anything but an end in time, with a result or a typed error, is a finding."""
    outcome = Outcome()
    _watched(outcome, lambda: _tolerant(outcome, step, action))
    return outcome


def _watched(outcome: Outcome, action: Callable[[], object]) -> None:
    """Run ``action`` within the limits; what exceeds them or is no OdcError becomes the finding."""
    before = _high_water(reset=True)
    started = time.process_time()
    try:
        with _time_limit(2 * MAX_SECONDS):
            action()
    except TooSlowError:
        outcome.finding = f"does not end in {2 * MAX_SECONDS:g} s ({outcome.reached})"
    except Exception as error:
        outcome.error = error
        outcome.finding = f"{outcome.reached}: {type(error).__name__}: {error}"
    outcome.seconds = time.process_time() - started
    outcome.nbytes = _high_water() - before
    if outcome.finding is None and outcome.seconds > MAX_SECONDS:
        outcome.finding = f"takes {outcome.seconds:.1f} s ({outcome.reached})"
    if outcome.finding is None and outcome.nbytes > MAX_BYTES:
        outcome.finding = f"takes {outcome.nbytes >> 20} MiB ({outcome.reached})"


def _steps(outcome: Outcome, data: bytes, rng: random.Random, compiled: bool) -> None:
    """Each step on its own: what one refuses, another may take."""
    _tolerant(outcome, "import", lambda: loading.import_model(data))
    inputs: list[Array] = []
    host = _tolerant(outcome, "run", lambda: _run(data, rng, inputs))
    if compiled:
        device = _tolerant(outcome, "compile", lambda: _run(data, rng, inputs, "npu"))
        if host is not None and device is not None:
            outcome.reached = "compare"
            _compare(outcome, host, device)


def _tolerant(outcome: Outcome, step: str, action: Any) -> Any:
    outcome.reached = step
    try:
        return action()
    except OdcError as error:
        outcome.errors.append(error)
        if "\n" in str(error):
            outcome.finding = f"{step}: more than one line: {str(error)!r}"
        return None


def _run(data: bytes, rng: random.Random, inputs: list[Array], backend: Any = "host") -> list[Array] | None:
    """The outputs, checked against what the model declares; None where the inputs would be too large.

    ``inputs`` are made when empty.
    """
    resize = rng.random() < 0.2
    executor = open_executor(data, backend=backend, max_bytes=ACTIVATION_BYTES, resize=resize)
    if not inputs:
        inputs += make_inputs(executor, rng, resize=resize)
    if sum(array.nbytes for array in inputs) > INPUT_BYTES:
        return None
    outputs = executor.run(inputs)
    for info, array in zip(executor.graph.output_infos(), outputs, strict=True):
        if not isinstance(array, np.ndarray) or array.dtype != info.info.numpy:
            seen = getattr(array, "dtype", type(array).__name__)
            raise TypeError(f"output {info.name!r} is {seen}, not {info.dtype}")
    return outputs


def make_inputs(executor: Executor, rng: random.Random, *, resize: bool) -> list[Array]:
    """Arrays for a model's inputs; unknown sizes are small, and with ``resize`` known ones change."""
    arrays = []
    for info in executor.graph.input_infos():
        shape = [rng.choice((0, 1, 1, 2, 3)) if dim is None else dim for dim in info.shape or ()]
        if resize:
            shape = [dim if rng.random() < 0.7 else max(dim + rng.choice((-1, 1, 2)), 0) for dim in shape]
        while int(np.prod([float(dim) for dim in shape])) * info.info.numpy.itemsize > INPUT_BYTES:
            shape[shape.index(max(shape))] = 1  # the executor says that this does not fit
        arrays.append(_values(info, tuple(shape), np.random.default_rng(rng.randrange(1 << 32))))
    return arrays


def _values(info: TensorInfo, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    dtype = info.info.numpy
    if dtype.kind in "iu":
        low, high = info.info.range if info.info.is_integer and rng.random() < 0.5 else (0, 3)
        return np.asarray(rng.integers(low, high, shape, dtype, endpoint=True))
    if dtype.kind == "O":
        texts = [rng.bytes(3) for _ in range(int(np.prod(shape)))]
        return np.array(texts, object).reshape(shape)
    return np.asarray(rng.normal(0, 3, shape)).astype(dtype)


def _compare(outcome: Outcome, host: list[Array], device: list[Array]) -> None:
    for index, (a, b) in enumerate(zip(host, device, strict=True)):
        if a.shape != b.shape or a.tobytes() != b.tobytes():
            outcome.finding = f"compare: output {index} differs between host and NPU"


@contextmanager
def _time_limit(seconds: float) -> Generator[None]:
    """Processor time, so that a busy machine does not matter; the alarm of the test itself stays as it is."""

    def expired(_signal: int, _frame: object) -> None:
        raise TooSlowError

    previous = signal.signal(signal.SIGPROF, expired)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)


def _high_water(*, reset: bool = False) -> int:
    """Largest resident size of this process since the last reset, in bytes; 0 where the system does not tell."""
    try:
        if reset:
            _HIGH_WATER.write_text(_RESET_HIGH_WATER)
        line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) << 10
    except (OSError, StopIteration):
        return 0
