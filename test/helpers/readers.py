"""Every reader of files that others may have written: a good file of each, a way to damage it, and what reads it."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from helpers import damage
from helpers.mutation import Seed
from helpers.npu import repair_checksums
from odc_mlir import compiler, loading, simulator, targets
from odc_mlir.calibration.recorded import InputFacts, Records
from odc_mlir.calibration.records import RecordStore, describe_minmax, describe_records, read_minmax, write_minmax
from odc_mlir.calibration.statistics import TensorStatistics
from odc_mlir.errors import OdcError
from odc_mlir.formats.calibration import read_calibration
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.formats.manifest import MANIFEST_PATH, IoIndex, Manifest, parse_config
from odc_mlir.formats.one import parse_partition
from odc_mlir.formats.package import PackageFiles, parse_package, read_package, write_package, zip_bytes
from odc_mlir.formats.samples import read_labels, read_samples
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.isa import assembly, codec, container
from odc_mlir.isa.compact import read_code
from odc_mlir.quantizer.policy.options import read_config
from odc_mlir.runtime.auto import artefacts
from odc_mlir.runtime.auto.artefacts import RECORD_NAME, Artefacts, JobResult
from odc_mlir.runtime.execution.graph import build_graph
from odc_mlir.runtime.package import Package
from odc_mlir.runtime.session.settings import Settings
from odc_mlir.support.text import module_text
from odc_mlir.transforms.quant.common.layers import load_arrays
from odc_mlir.transforms.quant.quant_attach_ranges import read_ranges

MODEL = Path(__file__).parents[2] / "examples" / "digits" / "digits_cnn_int8.circle"
TARGET_TEXT = (Path(targets.__file__).parent / "npu-256.toml").read_bytes()
SHAPES = ((1, 8, 8, 1),)

Damage = Callable[[random.Random], bytes]


@dataclass(frozen=True)
class Reader:
    """``damaged`` makes a file, ``read`` does with it what users do; ``weight``: how often, beside the others."""

    name: str
    damaged: Damage
    read: Callable[[bytes, Path, random.Random], object]
    weight: int = 1


def readers() -> list[Reader]:
    """All of them; making the good files takes about two seconds."""
    return [*_models(), *_data(), *_packages(), *_programs(), *_texts(), *_records()]


def _file(read: Callable[[Path], object], name: str) -> Callable[[bytes, Path, random.Random], object]:
    def run(data: bytes, folder: Path, rng: random.Random) -> object:
        path = folder / name
        path.write_bytes(data)
        return read(path)

    return run


def _models() -> list[Reader]:
    seeds = [Seed("digits", MODEL.read_bytes())]

    def read(data: bytes, folder: Path, rng: random.Random) -> None:
        model = read_model(data)
        loading.import_model(data)
        write_model(model)

    return [Reader("model", lambda rng: rng.choice(seeds).mutant(rng).data, read, 4)]


def _data() -> list[Reader]:
    inputs = model_inputs()
    buffer = io.BytesIO()
    np.savez(buffer, in_0=np.zeros((3, 8, 8, 1), np.int8), y=np.arange(3), other=np.ones(2))
    good = buffer.getvalue()

    def npz(rng: random.Random) -> bytes:
        return damage.zip_damage(good, rng, lambda name, content: damage.npy_damage(content, rng))

    def samples(path: Path) -> None:
        for read in (
            lambda: read_samples(path, [(None, None, None, None)]),
            lambda: read_samples(path, [(None, None, None, None)], sample_axis=True),
            lambda: read_labels(path),
            lambda: read_calibration(path, inputs),
            lambda: load_arrays(str(path), "arrays"),
        ):
            tolerant(read)

    def listed(rng: random.Random) -> bytes:
        return damage.text_damage(b"a.raw\nb.raw\n\nsub/c.raw\n", rng)

    found = [
        Reader("npz", npz, _file(samples, "d.npz"), 4),
        Reader("raw list", listed, _file(lambda path: read_calibration(path, inputs), "d.txt")),
    ]
    try:
        import h5py
    except ImportError:
        return found
    store = io.BytesIO()
    with h5py.File(store, "w") as file:
        for sample in range(2):
            file.create_dataset(f"value/{sample}/0", data=np.zeros((1, 8, 8, 1), np.int8))
    hdf5 = store.getvalue()
    return [*found, Reader("hdf5", lambda rng: damage.bytes_damage(hdf5, rng), _file(samples, "d.h5"))]


def model_inputs() -> Any:
    return build_graph(read_model(MODEL.read_bytes())).input_infos()


def tolerant(read: Callable[[], object]) -> None:
    """``read``, which may refuse, so that what comes next is tried too."""
    with suppress(OdcError):
        read()


def _packages() -> list[Reader]:
    files = compiler.compile(MODEL)
    members = dict(files.members)
    (plan_path,) = (name for name in members if name.endswith("plan.json"))
    whole = zip_bytes(members)

    def use(package: PackageFiles) -> None:
        opened = Package(package)
        opened.executor("npu", max_bytes=64 << 20).run([np.zeros((1, 8, 8, 1), np.int8)])

    def with_member(path: str) -> Callable[[bytes, Path, random.Random], object]:
        return lambda data, folder, rng: use(parse_package({**members, path: data}, "package"))

    def inner(rng: random.Random) -> Callable[[str, bytes], bytes]:
        def change(name: str, content: bytes) -> bytes:
            if name.endswith(("MANIFEST", ".json")):
                return damage.json_damage(content, rng)
            return damage.text_damage(content, rng) if name.endswith(".cfg") else damage.bytes_damage(content, rng)

        return change

    connected = Manifest(
        ("a.circle", "b.circle"),
        ("circle", "circle"),
        (),
        None,
        (IoIndex(0, 0, 0), IoIndex(1, 0, 0)),
        (IoIndex(0, 0, 0), IoIndex(1, 0, 0)),
        (),
    ).to_json()
    document = json.loads(connected)
    document["pkg-inputs"], document["pkg-outputs"] = ["0:0:0"], ["1:0:0"]
    document["model-connect"] = [{"from": "0:0:0", "to": ["1:0:0"]}]
    model = MODEL.read_bytes()

    def join(data: bytes, folder: Path, rng: random.Random) -> object:
        package = parse_package({MANIFEST_PATH: data, "a.circle": model, "b.circle": model}, "package")
        return Package(package).graph

    def settings(data: bytes, folder: Path, rng: random.Random) -> None:
        found = Settings(parse_config(data))
        found.op_backends(), found.flag("MINMAX_DUMP"), found.read("BACKENDS")

    config = b"BACKENDS=npu;cpu\nOP_BACKEND_Conv2D=npu\n# c\nODC_TARGET='npu-256'\nOnDeviceCompilation 1\n"

    def package_file(path: Path) -> None:
        use(read_package(path))
        write_package(read_package(path), path.with_suffix(".again"))

    return [
        Reader("plan", lambda rng: damage.json_damage(members[plan_path], rng), with_member(plan_path), 3),
        Reader("MANIFEST", lambda rng: damage.json_damage(members[MANIFEST_PATH], rng), with_member(MANIFEST_PATH), 2),
        Reader("model-connect", lambda rng: damage.json_damage(json.dumps(document).encode(), rng), join, 2),
        Reader("config.cfg", lambda rng: damage.text_damage(config, rng), settings),
        Reader("zip", lambda rng: damage.zip_damage(whole, rng, inner(rng)), _file(package_file, "p.zip"), 3),
    ]


def _programs() -> list[Reader]:
    (data,) = (content for name, content in compiler.compile(MODEL).members.items() if name.endswith(".npu"))
    good = container.read(data)
    text = assembly.disassemble(read_code(good.code).instructions)

    def damaged(rng: random.Random) -> bytes:
        action = rng.random()
        if action < 0.4:
            return repair_checksums(damage.bytes_damage(data, rng, 512))
        if action < 0.5:
            return damage.bytes_damage(data, rng)
        metadata = json.loads(
            damage.json_damage(json.dumps(dict(good.metadata)).encode(), rng).decode("utf-8", "replace")
        )
        return container.write(replace(good, metadata=metadata))

    def make(rng: random.Random) -> bytes:
        try:
            return damaged(rng)
        except Exception:  # what cannot be written is no file
            return damage.bytes_damage(data, rng)

    def run(content: bytes, folder: Path, rng: random.Random) -> None:
        program = simulator.load(content)
        inputs = [np.zeros(record.shape, record.dtype) for record in program.inputs if np.prod(record.shape) < 1 << 20]
        simulator.simulate(program, inputs, instruction_limit=20_000, cycle_limit=50_000_000)

    def assemble(content: bytes, folder: Path, rng: random.Random) -> None:
        codec.encode(assembly.assemble(content.decode("utf-8", "replace")))

    return [
        Reader(".npu", make, run, 3),
        Reader("assembly", lambda rng: damage.text_damage("\n".join(text.splitlines()[:12]).encode(), rng), assemble),
    ]


def _texts() -> list[Reader]:
    module = loading.load(MODEL)
    texts = [
        module_text(module, constants="keep").encode(),
        module_text(module, constants="elide", generic=True).encode(),
        module_text(compiler.lower(module, "npu"), constants="elide").encode(),
        module_text(compiler.lower(module, "npu-sched"), constants="elide").encode()[:20_000],
    ]

    def parse(data: bytes, folder: Path, rng: random.Random) -> None:
        found = loading.load(data)
        module_text(found, constants="known")
        tolerant(lambda: write_model(export_model(found)))

    ini = b"[partition]\nbackends=cpu,npu\ndefault=npu\ncomply=opname\n[OPNAME]\nlogits=cpu\n"
    ranges = json.dumps({"x": [-1.0, 1.0], "y": [0, 3]}).encode()
    precisions = json.dumps(
        {
            "default_quantization_dtype": "uint8",
            "default_granularity": "channel",
            "layers": [{"name": "a", "dtype": "int16"}, {"names": ["b"], "dtype": "uint8", "granularity": "layer"}],
        }
    ).encode()

    def target(data: bytes, folder: Path, rng: random.Random) -> object:
        return targets.load(_written(folder / "t.toml", data))

    return [
        Reader(".mlir", lambda rng: damage.text_damage(rng.choice(texts), rng), parse, 6),
        Reader("target", lambda rng: damage.text_damage(TARGET_TEXT, rng), target, 2),
        Reader(
            "canonical target",
            lambda rng: damage.json_damage(targets.load("npu-256").canonical.encode(), rng),
            lambda data, folder, rng: targets.from_canonical(data.decode("utf-8", "replace"), "x"),
        ),
        Reader(
            "partition file",
            lambda rng: damage.text_damage(ini, rng),
            lambda data, folder, rng: parse_partition(data.decode("utf-8", "replace"), "x"),
        ),
        Reader(
            "ranges", lambda rng: damage.json_damage(ranges, rng), _file(lambda path: read_ranges(str(path)), "r.json")
        ),
        Reader("precision", lambda rng: damage.json_damage(precisions, rng), _file(read_config, "p.json")),
    ]


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def _records() -> list[Reader]:
    statistics = TensorStatistics()
    statistics.add(np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 8, 8, 1))
    model = read_model(MODEL.read_bytes())
    name = model.subgraphs[0].tensors[model.subgraphs[0].inputs[0]].name
    records = Records("", 2, {(0, name): statistics}, {name: InputFacts("0" * 64)})
    entries = np.array([[0, 0, 0]] * 2, "<u4")
    minmax = write_minmax(Records("", 2, {}), model)
    pairs = b"".join(row.tobytes() + np.array([-1, 1], "<f4").tobytes() for row in entries)
    minmax = minmax[:8] + np.array([1, 1, 1], "<u4").tobytes() + pairs

    def store(data: bytes, folder: Path, rng: random.Random) -> None:
        path = folder / "ranges.sqlite"
        path.unlink(missing_ok=True)
        made = RecordStore(path, "d")
        for shapes in (SHAPES, ((2, 8, 8, 1),)):
            made.append(records, shapes, [[np.zeros((1, 8, 8, 1), np.int8)]])
        damage.sqlite_damage(path, rng)
        for action in (
            lambda: describe_records(path),
            lambda: RecordStore(path, "d").append(records, SHAPES),
            lambda: RecordStore(path).inputs(),
            lambda: RecordStore(path, create=False).statistics(SHAPES),
            lambda: RecordStore(path).reset(SHAPES),
        ):
            tolerant(action)

    def runs(data: bytes, folder: Path, rng: random.Random) -> None:
        describe_minmax(data)
        read_minmax(data, model)

    def artefact(data: bytes, folder: Path, rng: random.Random) -> None:
        place = Artefacts(folder)
        work = place.new_folder("k")
        (work / "model.circle").write_bytes(b"x")
        place.commit("k", work, JobResult("quantized", verdict={"passed": True}))
        file = place.folder / "k" / RECORD_NAME
        file.write_bytes(damage.json_damage(file.read_bytes(), rng))
        found, problem = place.find("k")
        assert (found is None) != (problem is None)
        if found is not None:
            assert isinstance(found.result, JobResult)
            found.compiled, found.model, list(artefacts.entries(folder))

    return [
        Reader("records", lambda rng: b"", store, 2),
        Reader("minmax.bin", lambda rng: damage.bytes_damage(minmax, rng), runs),
        Reader("result.json", lambda rng: b"", artefact),
    ]
