"""What quantisers are measured on: float models with samples to calibrate by, and others to measure by."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from odc_mlir.formats.circle.model import Model, Signature
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.ops.spec import Array
from odc_mlir.quantizer.reference import Reference, Samples
from odc_mlir.runtime.execution.binding import to_reals
from odc_mlir.runtime.execution.graph import Graph, build_graph

NOISES = 32  # samples of made inputs, for calibration and again for measuring
_SMOOTHED = 3  # neighbours along each axis that are alike in made inputs


@dataclass(frozen=True)
class Task:
    """A float model, what it is calibrated by and what it is measured on, below ``models``.

    Without data both are noise, or tokens, by fixed seeds. ``decoded``: weights that are codes are made real first.
    ``most``: so many samples are measured.
    """

    model: str
    calibration: str = ""
    evaluation: str = ""
    decoded: bool = False
    most: int | None = None

    @property
    def name(self) -> str:
        """The model's name, by which results are found."""
        return Path(self.model).stem + ("_dequantised" if self.decoded else "")

    @property
    def inputs(self) -> str:
        """How tables of results call the data."""
        path = Path(self.evaluation or "noise")
        return f"scoring/{path.name}" if path.parent.name == "scoring" else path.name


@dataclass(frozen=True)
class Prepared:
    """A task's model and data; ``labels`` are right answers for the samples that are measured, where there are any."""

    file: bytes
    calibration: Samples
    evaluation: Samples
    labels: Array | None
    float_bytes: int

    @property
    def graph(self) -> Graph:
        """The float model as the runtime sees it."""
        return build_graph(read_model(self.file))

    @property
    def reference(self) -> Reference:
        """The float model's answers."""
        return Reference(self.graph, self.evaluation, self.labels)


DIGITS = ("digits_cnn", "digits_mobile", "digits_mobile_hard", "digits_dynbatch")
ZOO = {"ad01_fp32": "ad", "pretrainedResnet": "ic", "vww_96_float": "vww"}
KWS = ("zoo/kws_ref_model_float32", "zoo/calibration/kws", "zoo/scoring/kws")
TRAINED = ("sine_forecast", "digits_mbv2", "digits_resnet", "digits_vit", "chars_llama")
RANDOM = (
    "nn_pixel_shuffle",
    "nn_groupnorm",
    "nn_multihead_attention",
    "nn_lstm",
    "nn_unet_small",
    "hf_bert",
    "hf_llama",
    "hf_vit",
    "tv_mobilenet_v2",
    "tv_mobilenet_v3_small",
    "tv_resnet_narrow",
)
TASKS = (
    *(Task(f"digits/{name}", "digits/calibration", "digits/evaluation") for name in DIGITS),
    Task("digits/digits_unet", "digits/calibration_denoise", "digits/evaluation_denoise"),
    *(Task(f"zoo/{name}", f"zoo/calibration/{task}", f"zoo/scoring/{task}") for name, task in ZOO.items()),
    Task(*KWS),
    Task(*KWS, decoded=True),
    *(
        Task(f"trained/{name}", f"trained/{name}.calibration", f"trained/{name}.evaluation", most=200)
        for name in TRAINED
    ),
    *(Task(f"tico/{name}") for name in RANDOM),
)


def prepare(models: Path, task: Task) -> Prepared:
    """Read the model and the samples below ``models``; raises OSError and OdcError."""
    path = models / f"{task.model}.circle"
    model = read_model(path.read_bytes())
    if task.decoded:
        _decode(model)
    graph = build_graph(model)
    if not model.signatures:
        main = model.subgraphs[0]
        sources, results = ({f"{kind}{i}": place for i, place in enumerate(places)} for kind, places in _ends(main))
        model.signatures.append(Signature("serving_default", 0, sources, results))
    if not task.calibration:
        return Prepared(write_model(model), _made(graph, 1), _made(graph, 2), None, path.stat().st_size)
    calibration, _ = samples_of(models / f"{task.calibration}.npz")
    evaluation, labels = samples_of(models / f"{task.evaluation}.npz")
    labels = None if labels is None else labels[: task.most]
    return Prepared(write_model(model), calibration, evaluation[: task.most], labels, path.stat().st_size)


def _ends(main):
    return (("in", main.inputs), ("out", main.outputs))


def samples_of(path: Path) -> tuple[list[list[Array]], Array | None]:
    """The samples of a file, and the right answers where it has some."""
    with np.load(path) as archive:
        data, labels = archive["in_0"], archive["y"] if "y" in archive.files else None
    return [[data[i : i + 1]] for i in range(len(data))], labels


def _made(graph: Graph, seed: int) -> list[list[Array]]:
    """Smooth noise of deviation 1, or tokens that every vocabulary has."""
    generator, samples = np.random.default_rng(seed), []
    for _ in range(NOISES):
        sample: list[Array] = []
        for info in graph.input_infos():
            if info.info.is_integer:
                sample.append(generator.integers(0, 90, info.static_shape).astype(info.info.numpy))
                continue
            noise = generator.standard_normal(info.static_shape)
            for axis in range(1, noise.ndim):
                if noise.shape[axis] > _SMOOTHED:
                    noise = sum(np.roll(noise, shift, axis) for shift in range(_SMOOTHED))
            sample.append((noise / noise.std()).astype(np.float32))
        samples.append(sample)
    return samples


def _decode(model: Model) -> None:
    """Make weights real that are codes beside real activations."""
    infos = build_graph(model).tensors
    main = model.subgraphs[0]
    for operator in main.operators:
        for index in operator.inputs[1:]:
            if index < 0 or infos[operator.inputs[0]].dtype != "float32":
                continue
            tensor, info = main.tensors[index], infos[index]
            if info.is_const and info.quant is not None and info.info.is_integer and tensor.dtype != "float32":
                tensor.dtype, tensor.quantization, tensor.buffer = "float32", None, len(model.buffers)
                model.buffers.append(memoryview(to_reals(info, info.array()).astype(np.float32).tobytes()))
