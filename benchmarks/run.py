"""Measure start-up, compile, simulate, host inference and recording; print a table and write JSON.

    python benchmarks/run.py [--data DIR] [--runs N] [--json FILE] [--against FILE] [GROUP ...]

``--data`` is a folder with ``models/zoo`` (default: $ODC_TEST_DATA, else ``shared`` beside the repository). GROUPs
are chosen by prefix. ``--against`` compares with an earlier JSON file. Every ``time_*`` function below is one group and
can be called by hand, for instance under a profiler. This process imports nothing of what it measures: the peak memory
of a process counts that of the one which started it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

from measure import Measurement, process, python

ROOT = Path(__file__).resolve().parents[1]
MODEL = "mobilenet_v2_1.0_224_quant"
SMALL = "pretrainedResnet_quant"
# Float models beside data for them, below models.
RECORDED = {
    "zoo/ad01_fp32": "zoo/calibration/ad",
    "zoo/pretrainedResnet": "zoo/calibration/ic",
    "zoo/vww_96_float": "zoo/calibration/vww",
    "zoo/kws_ref_model_float32": "zoo/calibration/kws",
    "digits/digits_cnn": "digits/calibration",
    "digits/digits_mobile": "digits/calibration",
    "digits/digits_unet": "digits/calibration_denoise",
    "digits/digits_dynbatch": "digits/calibration",
}


@dataclass(frozen=True)
class Setting:
    """What every benchmark gets: where models are, where packages may be written, how often to repeat short runs."""

    models: Path
    scratch: Path
    runs: int

    @property
    def long_runs(self) -> int:
        """How often things that take seconds are repeated."""
        return max(1, self.runs // 4)

    def model(self, name: str) -> Path:
        return self.models / f"{name}.circle"

    def package(self, name: str) -> Path:
        """A package of the model for npu-256 in flash mode, compiled once."""
        path = self.scratch / name
        if not path.exists():
            subprocess.run([command("odc-compile"), self.model(name), "-o", path, "--quiet"], check=True)
        return path


def command(name: str) -> str:
    """Path of one of our commands, beside this interpreter."""
    return str(Path(sys.executable).with_name(name))


def time_import(setting: Setting) -> Iterator[Measurement]:
    """Imports in a fresh process, beside that of an empty program."""
    yield python("python alone", "pass", runs=setting.runs)
    for module in ("odc_mlir", "odc_mlir.runtime", "odc_mlir.compiler"):
        yield python(f"import {module}", f"import {module}", runs=setting.runs)


def time_commands(setting: Setting) -> Iterator[Measurement]:
    """Start-up of every command."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    for name in scripts:
        yield process(f"{name} --help", [command(name), "--help"], runs=setting.runs)
    empty = setting.scratch / "empty.mlir"
    empty.write_text("builtin.module {}\n")
    yield process("odc-opt of an empty module", [command("odc-opt"), str(empty)], runs=setting.runs)


def time_compile(setting: Setting) -> Iterator[Measurement]:
    """Compiling and saving, in a fresh process."""
    code = "import odc_mlir, sys\nodc_mlir.compile(sys.argv[1], target='npu-256').save(sys.argv[2], overwrite=True)"
    for name in (SMALL, MODEL):
        output = str(setting.scratch / f"timed-{name}")
        yield python(f"compile {name}", code, str(setting.model(name)), output, runs=setting.long_runs)


def time_simulate(setting: Setting) -> Iterator[Measurement]:
    """The simulator alone, with and without computing values, and a whole process that runs a package."""
    code = "import odc_mlir, sys, numpy as np\np = odc_mlir.load_package(sys.argv[1])\n"
    code += "odc_mlir.run(p, [np.zeros([d or 1 for d in t.shape], t.dtype) for t in p.inputs], backend='npu')"
    for name in (SMALL, MODEL):
        package = setting.package(name)
        yield _simulation(f"simulate {name}, values and cycles", package, setting.long_runs, "values")
        yield _simulation(f"simulate {name}, cycles only", package, setting.long_runs, "cycles")
        yield python(f"run package {name}, whole process", code, str(package), runs=setting.long_runs)


def _simulation(name: str, package: Path, runs: int, what: str) -> Measurement:
    """Time all segments of a package on zero inputs; the note gives simulated cycles per second."""
    script = Path(__file__).with_name("simulation.py")
    done = subprocess.run(
        [sys.executable, script, package, str(runs), what], stdout=subprocess.PIPE, text=True, check=True
    )
    found = json.loads(done.stdout)
    timed = Measurement(**found["measurement"])
    speed = found["cycles"] / timed.seconds_best / 1e6
    return replace(timed, name=name, note=f"{found['cycles']} cycles, {speed:.1f} million per second")


def time_host(setting: Setting) -> Iterator[Measurement]:
    """Loading and running a model file on the host kernels, in a fresh process."""
    code = "import odc_mlir, sys, numpy as np\n"
    code += "odc_mlir.run(sys.argv[1], [np.zeros(eval(sys.argv[2]), sys.argv[3])], backend='host')"
    for name, shape, dtype in ((SMALL, "1,32,32,3", "int8"), (MODEL, "1,224,224,3", "uint8")):
        model = str(setting.model(name))
        yield python(f"host run {name}, whole process", code, model, shape, dtype, runs=setting.long_runs)


def time_record(setting: Setting) -> Iterator[Measurement]:
    """Recording ranges beside plain inference: CPU time per inference; the note gives how many times as long."""
    script = str(Path(__file__).with_name("recording.py"))
    for name, data in RECORDED.items():
        model, samples = (setting.models.parent / path for path in (f"{name}.circle", f"{data}.npz"))
        done = subprocess.run(
            [sys.executable, script, str(model), str(samples), str(setting.runs)],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        found = json.loads(done.stdout)
        for what, seconds in found.items():
            times = median(b / a for a, b in zip(found["plain"], seconds, strict=True))
            note = "" if what == "plain" else f"{times:.2f} times plain inference"
            yield Measurement(f"{name}, {what}", min(seconds), median(seconds), setting.runs, note=note)


GROUPS: tuple[Callable[[Setting], Iterator[Measurement]], ...] = (
    time_import,
    time_commands,
    time_compile,
    time_simulate,
    time_host,
    time_record,
)


def table(measurements: list[Measurement], before: dict[str, float]) -> str:
    """The measurements as aligned text; ``before``: seconds by name of an earlier run."""
    width = max(len(m.name) for m in measurements)
    lines = [f"{'':{width}}  best s  median s  peak MiB"]
    for m in measurements:
        memory = f"{m.peak_rss_bytes / 2**20:8.0f}" if m.peak_rss_bytes else " " * 8
        change = f"  {m.seconds_best / before[m.name]:.2f}x" if before.get(m.name) else ""
        lines.append(f"{m.name:{width}}  {m.seconds_best:6.3f}    {m.seconds_median:6.3f}  {memory}{change}  {m.note}")
    return "\n".join(line.rstrip() for line in lines)


def main() -> int:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description="measure start-up, compile, simulate and host inference")
    parser.add_argument("names", nargs="*", metavar="NAME", help="groups to run, by prefix (default: all)")
    default = os.environ.get("ODC_TEST_DATA") or ROOT.parent / "shared"
    parser.add_argument("--data", type=Path, default=Path(default), help="folder with models/zoo")
    parser.add_argument("--runs", type=int, default=5, help="how often short things are repeated")
    parser.add_argument("--json", type=Path, help="write the measurements here")
    parser.add_argument("--against", type=Path, help="an earlier JSON file to compare with")
    arguments = parser.parse_args()

    names = {group.__name__.removeprefix("time_"): group for group in GROUPS}
    if unknown := [name for name in arguments.names if not any(group.startswith(name) for group in names)]:
        parser.error(f"no benchmark starts with {unknown[0]!r}; there are {', '.join(names)}")
    if not (arguments.data / "models" / "zoo").is_dir():
        parser.error(f"{arguments.data} holds no models/zoo; give --data or set ODC_TEST_DATA")
    before = {}
    if arguments.against:
        earlier = json.loads(arguments.against.read_text())
        before = {m["name"]: m["seconds_best"] for m in earlier["measurements"]}

    measurements: list[Measurement] = []
    with tempfile.TemporaryDirectory() as scratch:
        setting = Setting(arguments.data / "models" / "zoo", Path(scratch), arguments.runs)
        for name, group in names.items():
            if not arguments.names or name.startswith(tuple(arguments.names)):
                for measurement in group(setting):
                    print(f"{measurement.name}: {measurement.seconds_best:.3f} s", file=sys.stderr)
                    measurements.append(measurement)
    print(table(measurements, before))
    if arguments.json:
        machine = {"python": platform.python_version(), "machine": platform.machine(), "cores": os.cpu_count()}
        record = {"schema_version": 1, "machine": machine, "measurements": [asdict(m) for m in measurements]}
        arguments.json.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
