"""Compare texts with the host's while devices fail, processes are killed and results are exchanged at random tokens.

    python benchmarks/generations.py [--model FILE] [--float FILE] [--kinds KIND ...] [--generations 1000] [--tokens 12]
                                     [--seed 0]

Each generation draws a prompt, tokens, a kind of disturbance and the step at which it happens by its own seed. Exits
with 1 if a token differs. ``--model`` is quantised, by default the model of ``examples/stories``. The kinds:

* ``device``: on the simulated NPU, which may fail once or from a step on, or have no memory. The caches are inputs and
  outputs, or states on the device, which a failure may lose.
* ``fork``: the process forks; parent and child finish the text on the NPU.
* ``switch``: a session answers by host kernels of the model until it switches to a stored result of on-device
  compilation, which may fail afterwards.
* ``evict``: the same, and the stored result is deleted at the step.
* ``kill``: the compile process is killed; the session goes on, and another process may make the result.

With ``--float``, the last three kinds run this float model, of which ``--model`` is the quantised one. The text must be
that of the float model up to the switch, and from there that of the quantised one with the converted caches.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "test"))

import odc_mlir
from helpers.auto import FAULTY
from odc_mlir.errors import SimulationError
from odc_mlir.formats.package import zip_bytes
from odc_mlir.runtime import Session
from odc_mlir.runtime.auto.jobs import Supervisor
from odc_mlir.runtime.devices.simulator import SimulatorDevice, SimulatorProgram
from odc_mlir.runtime.session.generation import Sampling, TokenStream, generate, step_of
from odc_mlir.runtime.session.runner import SessionRecorder

STORIES = Path(__file__).parents[1] / "examples" / "stories" / "stories_int8.circle"
KINDS = ("device", "fork", "switch", "evict", "kill")
LONGEST_PROMPT, RECORDS, SECONDS = 4, 2, 120.0
FAILURES = ("once", "from then on", "no memory")
Text = tuple[list[int], int, float, int, int]  # arguments of Session.generate


@contextmanager
def failing(kind: str, step: int, *, lost: bool) -> Iterator[None]:
    """Let the device fail at its run number ``step``, as one of ``FAILURES``; ``lost``: states cannot be read then."""
    works, reads, runs = SimulatorProgram.run, SimulatorProgram.read_states, [0]

    def run(self: SimulatorProgram, values: Any, **options: Any) -> Any:
        runs[0] += 1
        if runs[0] == step or (runs[0] > step and kind == "from then on"):
            raise MemoryError if kind == "no memory" else SimulationError("the device is gone")
        return works(self, values, **options)

    def read_states(self: SimulatorProgram) -> Any:
        if runs[0] >= step and lost:
            raise SimulationError("the device is gone")
        return reads(self)

    with mock.patch.multiple(SimulatorProgram, run=run, read_states=read_states):
        yield


class DisturbedSession(Session):
    """A session that calls ``disturb`` before run number ``step``.

    If ``waits``, later runs wait until results are open, and until the run that verifies one has done so.
    """

    def __init__(
        self, model: Any, step: int, disturb: Callable[[Session], object], *, waits: bool = False, **options: Any
    ) -> None:
        super().__init__(model, **options)
        self.runs, self.step, self.disturb, self.waits = 0, step, disturb, waits

    def infer(self, inputs_array: Sequence[Any], **options: Any) -> Any:
        """Infer as a session does."""
        self.runs += 1
        if self.runs == self.step:
            self.disturb(self)
        if self.runs >= self.step and self.waits:
            self.wait_for_auto_compilation(SECONDS)
        return super().infer(inputs_array, **options)


class Bench:
    """The models, and the files made of them, in ``folder``."""

    def __init__(self, quantized: Path, original: Path | None, folder: Path) -> None:
        self.folder, self.quantized, self.original = folder, quantized, original or quantized
        self.host, self.stored = Session(quantized), folder / "stored"
        package = odc_mlir.compile(quantized, target="npu-256", prefer="compile-time")
        step = step_of(self.host._loader, self.host.infer)
        states = {step.outputs[at.output].name: step.inputs[at.input].name for at in step.interface.caches}
        held = odc_mlir.compile(quantized, target="npu-256", prefer="compile-time", states=states)
        self.packages = {"ports": package, "states on the device": held}
        compiled, twin = folder / "compiled.npu", folder / "twin.cpu"
        compiled.write_bytes(zip_bytes(package.files.members))
        twin.write_bytes(zip_bytes(odc_mlir.compile(quantized, target="cpu").files.members))
        os.environ["ODC_TEST_TWIN"] = str(twin)
        self.worker = (sys.executable, str(FAULTY), str(quantized), str(compiled))
        self.floats = Session(quantized)
        for port in range(self.floats.input_size()):
            if self.floats.input_tensorinfo(port).scale is not None:
                self.floats.set_input_type(port, "float32")
        for port in range(self.floats.output_size()):
            if self.floats.output_tensorinfo(port).scale is not None:
                self.floats.set_output_type(port, "float32")
        self.source = Session(self.original)
        with (
            mock.patch.object(Supervisor, "command", self.worker),
            self.session(self.stored, 2, lambda _: None) as made,
        ):
            made.generate([1], 4)
            assert made.wait_for_auto_compilation(SECONDS)
            assert made.odc_status.phase == "active", made.odc_status

    def session(
        self, cache: Path, step: int, disturb: Callable[[Session], object], *, waits: bool = True
    ) -> DisturbedSession:
        """Return a session that compiles the original model on the device."""
        settings = {"OnDeviceCompilation": "1", "ODC_RECORDS": str(RECORDS), "ODC_TARGET": "npu-256"}
        settings |= {"ODC_CACHE_DIR": str(cache), "ODC_WATCH": "0"}
        return DisturbedSession(self.original, step, disturb, waits=waits, settings=settings)

    def replayed(self, text: Text, levels: Sequence[bool]) -> list[int]:
        """Return the text by host kernels, whose run number N is of the quantised model if ``levels[N]``."""
        run = iter(levels)
        by_level = (self.source.infer, self.host.infer if self.original == self.quantized else self.floats.infer)
        step = step_of(self.source._loader, lambda arrays: by_level[next(run)](arrays))
        prompt, tokens, temperature, top_k, seed = text
        return generate(TokenStream([step]), prompt, tokens, Sampling(temperature, top_k, seed))

    def device(self, rng: np.random.Generator, text: Text, step: int) -> tuple[str, list[list[int]], list[int]]:
        """Generate while the device fails; return what happened, the texts found and the one wanted."""
        where, kind, lost = str(rng.choice(list(self.packages))), str(rng.choice(FAILURES)), bool(rng.integers(2))
        with Session(self.packages[where]) as npu, failing(kind, step, lost=lost):
            found = npu.generate(*text)
        return f"{where}, {kind}{', lost' if lost else ''}", [found], self.host.generate(*text)

    def fork(self, rng: np.random.Generator, text: Text, step: int) -> tuple[str, list[list[int]], list[int]]:
        """Generate in a process and its fork."""
        where, (reader, writer), child = str(rng.choice(list(self.packages))), os.pipe(), [-1]

        def disturb(_: Session) -> None:
            child[0] = os.fork()

        with DisturbedSession(self.packages[where], step, disturb) as npu:
            try:
                found = npu.generate(*text)
            finally:
                if child[0] == 0:
                    os.write(writer, json.dumps(found).encode())
                    os._exit(0)
        os.close(writer)
        with open(reader, "rb") as stream:
            forked = json.loads(stream.read() or b"[]")
        os.waitpid(child[0], 0)
        return where, [found, forked], self.host.generate(*text)

    def switch(self, rng: np.random.Generator, text: Text, step: int) -> tuple[str, list[list[int]], list[int]]:
        """Switch to the stored result at ``step``; it may fail at the next one."""
        kind = str(rng.choice([*FAILURES, "none", "none"]))
        return self._compiled(self.stored, text, step, lambda _: None, True, kind, int(rng.integers(1, 4)))

    def evict(self, rng: np.random.Generator, text: Text, step: int) -> tuple[str, list[list[int]], list[int]]:
        """Delete the stored result at ``step``, maybe while it is opened."""
        cache = Path(shutil.copytree(self.stored, self.folder / f"evict{text[4]}"))

        def disturb(_: Session) -> None:
            time.sleep(float(rng.uniform(0, 0.5)))
            shutil.rmtree(cache / "compiled", ignore_errors=True)

        return self._compiled(cache, text, step, disturb, bool(rng.integers(2)))

    def kill(self, rng: np.random.Generator, text: Text, step: int) -> tuple[str, list[list[int]], list[int]]:
        """Kill the compile process some time after its start, at ``step`` or the first step after the records."""
        step = max(step, RECORDS + 2)

        def disturb(session: Session) -> None:
            deadline = time.monotonic() + SECONDS
            while not (processes := _processes(session)) and time.monotonic() < deadline:
                time.sleep(0.01)
            with suppress(subprocess.TimeoutExpired):
                processes[0].wait(float(rng.uniform(0, 2)))
            if processes[0].poll() is None:
                processes[0].send_signal(signal.SIGKILL)
                killed.append(step)

        killed: list[int] = []
        name, found, wanted = self._compiled(self.folder / f"kill{text[4]}", text, step, disturb, bool(rng.integers(2)))
        return f"{'killed' if killed else 'not killed'}, {name}", found, wanted

    def _compiled(
        self,
        cache: Path,
        text: Text,
        step: int,
        disturb: Callable[[Session], object],
        waits: bool,
        failure: str = "none",
        failing_run: int = 1,
    ) -> tuple[str, list[list[int]], list[int]]:
        """Generate in a session that compiles on the device."""
        works, levels = SessionRecorder.run, list[bool]()

        def run(self: SessionRecorder, executor: Any, *arguments: Any, **options: Any) -> Any:
            outputs = works(self, executor, *arguments, **options)
            levels.append(not options["is_original"])
            return outputs

        with ExitStack() as stack:
            stack.enter_context(mock.patch.object(SessionRecorder, "run", run))
            stack.enter_context(mock.patch.object(Supervisor, "command", self.worker))
            if failure != "none":  # the NPU itself answers, after a run that verifies it
                stack.enter_context(mock.patch.object(SimulatorDevice, "simulated", False))
                stack.enter_context(failing(failure, 1 + failing_run, lost=False))
            session = stack.enter_context(self.session(cache, step, disturb, waits=waits))
            found = session.generate(*text)
            if session._switcher.auto is not None:
                session._switcher.auto.stop()
        if cache != self.stored:
            shutil.rmtree(cache, ignore_errors=True)
        name = "not switched" if not any(levels) else "switched" if not levels[0] else "compiled from the start"
        return f"{name}, failure {failure}", [found], self.replayed(text, levels)


def _processes(session: Session) -> list[subprocess.Popen[bytes]]:
    """Return the compile processes that the session has started."""
    auto = session._switcher.auto
    return [item._process for item in (auto._supervisors if auto else ()) if item._process is not None]


def main() -> int:
    """Run the comparison; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=STORIES)
    parser.add_argument("--float", type=Path, dest="original")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--generations", type=int, default=1000)
    parser.add_argument("--tokens", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    logging.getLogger("odc_mlir").setLevel(logging.ERROR)  # each failure would be a warning
    wrong, tokens, seen = 0, 0, Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(arguments.model, arguments.original, Path(folder))
        for seed in range(arguments.seed, arguments.seed + arguments.generations):
            rng = np.random.default_rng(seed)
            prompt = [1, *rng.integers(3, 259, int(rng.integers(LONGEST_PROMPT))).tolist()]
            count = int(rng.integers(4, arguments.tokens + 1))
            text = (prompt, count, float(rng.choice([0.0, 0.8])), 40, seed)
            kind, step = str(rng.choice(arguments.kinds)), int(rng.integers(2, len(prompt) + count))
            name, found, wanted = getattr(bench, kind)(rng, text, step)
            seen[f"{kind}: {name}"] += 1
            tokens += len(wanted) * len(found)
            differing = sum(
                sum(a != b for a, b in zip(wanted, each, strict=False)) + abs(len(each) - len(wanted)) for each in found
            )
            wrong += differing
            if differing:
                print(f"generation {seed}: {differing} tokens differ ({kind}: {name}, step {step})", flush=True)
    for name, times in sorted(seen.items()):
        print(f"{times:5d} {name}")
    print(f"{arguments.generations} generations, {tokens} tokens, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
