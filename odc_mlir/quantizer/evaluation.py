"""How far a quantised model is from the float one, over samples: outputs, scores with known answers, fake-quantised.

Always by host kernels with our own arithmetic, so that a verdict does not depend on what else is installed.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from odc_mlir.errors import InputError, ModelError
from odc_mlir.ops.spec import Array
from odc_mlir.quantizer.layers import float_names
from odc_mlir.quantizer.policy.verdict import HIGHER_IS_BETTER
from odc_mlir.runtime.execution.binding import to_codes, to_reals
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import Graph, GraphNode
from odc_mlir.runtime.execution.units import Watcher
from odc_mlir.runtime.reporting.metrics import ErrorMeter, Errors, Tolerance
from odc_mlir.runtime.reporting.scoring import score

Samples = Sequence[Sequence[Array]]

# SQNR of outputs that are exactly the float model's, for comparing choices.
EXACT_DB = 200.0
_EXACT = Tolerance(0.0, 0.0)
_SOFTMAX = frozenset({"SOFTMAX", "LOG_SOFTMAX"})
_SQUASHING = _SOFTMAX | {"LOGISTIC"}
_MOVES = frozenset({"RESHAPE", "SQUEEZE", "EXPAND_DIMS", "CAST", "DEQUANTIZE", "QUANTIZE"})


@dataclasses.dataclass(slots=True)
class Measurement:
    """Measures of each output over all samples, and the score where answers are known.

    ``decisive`` are those of the tensors that decide the outputs: an output itself, or what its softmax or logistic
    function is taken of. There noise shows for every sample, in the output only for those that are undecided.
    """

    outputs: list[Errors]
    decisive: list[Errors]
    names: list[str]
    score: tuple[str, float] | None = None

    @property
    def quality_db(self) -> float:
        """One number to compare choices by: the mean SQNR of the decisive tensors, exactness counting as 200 dB."""
        values = [_sqnr_db(errors) for errors in self.decisive]
        return sum(values) / len(values) if values else EXACT_DB

    def worst(self) -> dict[str, float | None]:
        """Each measure of the output for which it is worst; none where an output has no finite value to measure."""
        result: dict[str, float | None] = {"differing": sum(errors.differing for errors in self.outputs)}
        if any(errors.elements and errors.max_abs is None for errors in self.outputs):
            return result | dict.fromkeys(HIGHER_IS_BETTER.keys() - {"drop"})
        for metric, higher in HIGHER_IS_BETTER.items():
            if metric == "drop":
                continue
            values = [value for e in self.outputs if (value := getattr(e, metric)) is not None]
            result[metric] = (min(values) if higher else max(values)) if values else None
        return result

    def by_output(self) -> list[dict[str, Any]]:
        """The measures of every output, as they stand in a verdict."""
        return [{"name": name, **dataclasses.asdict(e)} for name, e in zip(self.names, self.outputs, strict=True)]


def _sqnr_db(errors: Errors) -> float:
    if errors.sqnr_db is not None:
        return min(errors.sqnr_db, EXACT_DB)
    return EXACT_DB if not errors.mse else -EXACT_DB


class Reference:
    """The float model's answers to ``samples``, which candidates are compared with.

    ``labels``: known answers, one for each sample; see :func:`odc_mlir.runtime.reporting.scoring.score`.
    """

    def __init__(self, graph: Graph, samples: Samples, labels: Array | None = None) -> None:
        if not samples:
            raise InputError("there is no sample to compare the models on")
        self.graph = graph
        self.samples = samples
        self.labels = labels
        self._decisive = [_decisive_tensor(graph, index) for index in graph.outputs]
        self._known = {graph.tensors[index].name: index for index in self._decisive}
        executor = HostExecutor(graph)
        self.outputs: list[list[Array]] = []
        self._expected: list[dict[int, Array]] = []  # decisive tensors by index, of each sample
        for sample in samples:
            found: dict[int, Array] = {}
            self.outputs.append(_run(executor, sample, _keeping({i: i for i in self._decisive}, found)))
            self._expected.append(found)
        self.score = None if labels is None else score([outputs[0] for outputs in self.outputs], labels)

    @property
    def decisive_elements(self) -> int:
        """How many values decide the outputs of all samples."""
        return max(1, sum(value.size for found in self._expected for value in found.values()))

    @property
    def metric(self) -> str | None:
        """What known answers are scored by; None without."""
        return None if self.score is None else self.score[0]

    @property
    def classifies(self) -> bool:
        """Whether the first output is a softmax over several classes, or labels are classes."""
        if self.metric == "top1_percent":
            return True
        node = _last_operator(self.graph, self.graph.outputs[0]) if self.graph.outputs else None
        return node is not None and node.node.spec.name in _SOFTMAX and self.outputs[0][0].shape[-1:] != (1,)

    def measure(self, graph: Graph, count: int | None = None) -> Measurement:
        """Run ``graph`` on the first ``count`` samples (default: all) and compare.

        Quantised inputs and outputs are converted. Raises ModelError when the models' outputs do not correspond.
        """
        inputs, outputs = graph.input_infos(), graph.output_infos()
        if len(outputs) != len(self.graph.outputs):
            raise ModelError(f"the quantised model has {len(outputs)} outputs, the other {len(self.graph.outputs)}")
        executor = HostExecutor(graph)
        meters = [ErrorMeter(_EXACT, top=True) for _ in outputs]
        decisive = [ErrorMeter(_EXACT) for _ in outputs]
        names = float_names(graph, self._known)
        wanted = {index: self._known[name] for index, name in names.items()}
        firsts: list[Array] = []
        for number, (sample, expected) in enumerate(zip(self.samples[:count], self.outputs, strict=False)):
            kept: dict[int, Array] = {}
            found = _run(executor, list(map(to_codes, inputs, sample)), _keeping(wanted, kept, graph))
            reals = [to_reals(info, value) for info, value in zip(outputs, found, strict=True)]
            for meter, a, b in zip(meters, expected, reals, strict=True):
                if a.shape != b.shape:
                    raise ModelError(f"an output has the shape {b.shape}, the float model's {a.shape}")
                meter.add(a, b)
            for place, index in enumerate(self._decisive):
                # A model without a tensor of that name is compared by its outputs.
                pair = (
                    (self._expected[number][index], kept[index]) if index in kept else (expected[place], reals[place])
                )
                decisive[place].add(*pair)
            firsts.append(reals[0])
        found_score = score(firsts, self.labels) if self.labels is not None and count is None else None
        return Measurement(
            [meter.errors() for meter in meters],
            [meter.errors() for meter in decisive],
            [info.name for info in outputs],
            found_score,
        )

    def drop(self, measurement: Measurement) -> float | None:
        """By how much the score falls, in percentage points or dB; negative where it rises."""
        if self.score is None or measurement.score is None:
            return None
        fall = self.score[1] - measurement.score[1]
        return 0.0 if math.isnan(fall) else fall

    def metrics(self, measurement: Measurement) -> dict[str, float | None]:
        """What limits are checked against."""
        result = measurement.worst()
        fall = self.drop(measurement)
        return result if fall is None else {**result, "drop": fall}


def _last_operator(graph: Graph, tensor: int) -> GraphNode | None:
    """What computes a tensor, seen through operators that only move values or change their type."""
    producers = {index: node for node in graph.nodes for index in node.outputs}
    node = producers.get(tensor)
    while node is not None and node.node.spec.name in _MOVES:
        node = producers.get(node.inputs[0])
    return node


def _decisive_tensor(graph: Graph, output: int) -> int:
    node = _last_operator(graph, output)
    return node.inputs[0] if node is not None and node.node.spec.name in _SQUASHING else output


def _keeping(wanted: Mapping[int, int], found: dict[int, Array], graph: Graph | None = None) -> Watcher:
    """A watcher that puts the tensors ``wanted`` into ``found``, as reals by the index that they stand for."""

    def keep(index: int, value: Array) -> None:
        key = wanted.get(index)
        if key is not None:
            found[key] = value.copy() if graph is None else to_reals(graph.tensors[index], value)

    return keep


def _run(executor: HostExecutor, sample: Sequence[Array], watch: Watcher) -> list[Array]:
    executor.reset()
    return executor.run(sample, watch=watch)
