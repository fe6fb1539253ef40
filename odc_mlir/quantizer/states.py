"""State of a model in use: outputs that the next run takes as inputs, and running over sequences of samples.

Samples are consecutive frames. The first frame of a sequence has the state that its sample gives, or zero; each later
one has the state that the model itself made of the frame before, a quantised model its own. A sequence starts with the
first sample, and wherever a sample's states are all zero or those of the first sample again, but not everywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from re import findall
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.errors import InputError
from odc_mlir.formats.calibration import Source, read_calibration
from odc_mlir.formats.circle.model import Model
from odc_mlir.formats.quantities import counted
from odc_mlir.formats.samples import Samples
from odc_mlir.formats.states import StatePair, initial_bytes, others, pairs_of, positions
from odc_mlir.ops.spec import Array, TensorInfo
from odc_mlir.runtime.execution.binding import to_codes, to_reals
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import Graph

DECLARED, BY_NAME, BY_VALUES = "declared", "by name", "by values"
# Words that tell the two ends of a state apart: the rest of both names is the same.
_ENDS = frozenset(
    ["in", "out", "input", "output", "new", "next", "prev", "previous", "past", "present"]
    + ["updated", "old", "initial", "init", "current"]
)
_LIKE = 0.5  # part of the joint range of an input and an output that both cover if one may be the other's next value
_SHORT = 8  # frames, or independent samples: fewer show little of how errors add up
_STATE_ROOM = 1.3  # of states that single samples give: a later one exceeds the largest, and stays limited
_GROWTH_DB = 3.0  # by which the last steps of sequences are worse than all if errors still grow

Places = tuple[tuple[int, int], ...]


@dataclass
class Rollout:
    """Runs of the float model ``graph`` and of quantised ones over sequences.

    ``pairs``: its states, empty until samples show some; ``how`` they are known. ``steps``: of each frame, its number
    in its sequence, from 0.
    """

    graph: Graph
    pairs: tuple[StatePair, ...] = ()
    how: str = DECLARED
    places: Places = ()
    steps: list[int] = field(default_factory=list)
    _frames: list[list[Array]] = field(default_factory=list)
    _numbers: dict[int, int] = field(default_factory=dict)  # of frames, by identity
    _given: dict[int, list[Array]] = field(default_factory=dict)  # samples with other states than frames, by identity
    _louder: dict[int, list[Array]] = field(default_factory=dict)  # frames that reach the given states, by identity

    @classmethod
    def of(
        cls, states: Mapping[str, str] | None, of_file: Sequence[StatePair], model: Model, graph: Graph
    ) -> Rollout | None:
        """Return the roll-out of given ``states``, of those in the model's file, or of those found; None for none.

        Raises OptionError for names and types that cannot be states.
        """
        known = {pair.input: pair for pair in of_file}
        given = None if states is None else [known.get(pair.input, pair) for pair in pairs_of(states)]
        found, pairs = cls(graph), tuple(of_file) if given is None else tuple(given)
        if pairs:
            found._set(pairs, DECLARED)
        elif given is None:
            found._set(found_pairs(model, graph), BY_NAME)
        return None if not pairs and given is not None else found

    def _set(self, pairs: tuple[StatePair, ...], how: str) -> None:
        self.places = positions(pairs, self.graph.input_infos(), self.graph.output_infos())
        self.pairs, self.how = pairs, how

    def declared_in(self, graph: Graph) -> tuple[StatePair, ...]:
        """Return the declared pairs with codes of the quantised ``graph``; raise OptionError if their types differ."""
        if self.how != DECLARED:
            return ()
        before, after = self.graph.input_infos(), graph.input_infos()
        pairs = tuple(
            pair
            if pair.initial is None
            else replace(
                pair, initial=to_codes(after[i], to_reals(before[i], initial_value(pair, before[i]))).tobytes()
            )
            for pair, (_, i) in zip(self.pairs, self.places, strict=True)
        )
        positions(pairs, after, graph.output_infos())
        return pairs

    # Samples.

    def read(self, source: Source, **options: Any) -> Samples:
        """Read samples, with or without arrays for states, which then are as at the start. Raises InputError."""
        infos = self.graph.input_infos()
        hidden = [place for _, place in self.places]
        try:
            found = read_calibration(source, infos, **options)
        except InputError:
            if not hidden:
                raise
            found = read_calibration(source, others(infos, hidden), **options)
        first = dict(zip(hidden, map(initial_value, self.pairs, [infos[place] for place in hidden]), strict=True))
        return replace(found, records=[_filled(sample, first, len(infos)) for sample in found.records])

    def through(self, samples: list[list[Array]]) -> list[list[Array]]:
        """Return ``samples`` as frames: with the float model's own states, except where a sequence starts."""
        if not self.pairs:
            self._set(*self._shown(samples))
        if not self.pairs:
            return samples
        starts = self._starts(samples)
        frames = self._rolled(samples, starts)
        for sample, frame, is_start in zip(samples, frames, starts, strict=True):
            self._numbers[id(frame)] = len(self._frames)
            self._frames.append(frame)
            if any(np.any(sample[place]) for _, place in self.places) and not all(
                np.allclose(frame[place], sample[place], 1e-3, 1e-6) for _, place in self.places
            ):
                self._given[id(frame)] = sample
            self.steps.append(0 if is_start else self.steps[-1] + 1)
        if self._are_apart:
            factor, inputs = self._missing(samples, frames), {*range(len(samples[0]))} - self._hidden
            louder = [_scaled(sample, factor, inputs) for sample in samples]
            self._louder |= zip(map(id, frames), self._rolled(louder, starts), strict=True)
        return frames

    @property
    def _hidden(self) -> set[int]:
        """Places of inputs that are states."""
        return {place for _, place in self.places}

    @property
    def _are_apart(self) -> bool:
        """True if most samples give other states than the model makes of the samples before."""
        return 2 * len(self._given) > len(self._frames)

    def _rolled(self, samples: Sequence[list[Array]], starts: Sequence[bool]) -> list[list[Array]]:
        """Return ``samples`` with the states that the float model makes of the samples before."""
        executor, frames, last = HostExecutor(self.graph), [], list[Array]()
        for sample, is_start in zip(samples, starts, strict=True):
            frame = list(sample)
            for output, place in () if is_start else self.places:
                frame[place] = last[output]
            last = [np.array(value) for value in executor.run(frame)]
            frames.append(frame)
        return frames

    def _missing(self, samples: Sequence[list[Array]], frames: Sequence[list[Array]]) -> float:
        """Return by how much given states exceed those that most frames reach, at most twice: a bit of the codes."""
        most = 2.0
        sizes = [
            [float(np.median([np.abs(each[place]).max(initial=0.0) for each in every])) for _, place in self.places]
            for every in (samples, frames)
        ]
        ratios = [given / own for given, own in zip(*sizes, strict=True) if own > 0.0]
        return float(np.clip(max(ratios, default=1.0), 1.0, most))

    def with_given(self, samples: Sequence[Sequence[Array]]) -> list[Sequence[Array]]:
        """Return ``samples``, which are frames, and others for ranges: with the states that were given.

        If most have other states than the frames, later states exceed the given ones too, and inputs in use are larger.
        """
        given = [self._given[id(sample)] for sample in samples if id(sample) in self._given]
        if not self._are_apart:
            return [*samples, *given]
        louder = [self._louder[id(sample)] for sample in samples if id(sample) in self._louder]
        return [*samples, *(_scaled(sample, _STATE_ROOM, self._hidden) for sample in given), *louder]

    def _starts(self, samples: Sequence[Sequence[Array]]) -> list[bool]:
        first = [samples[0][place] for _, place in self.places]
        found = []
        for sample in samples:
            state = [sample[place] for _, place in self.places]
            is_first = all(map(np.array_equal, state, first))
            found.append(is_first or not any(map(np.any, state)))
        return [True, *[not all(found) and is_start for is_start in found[1:]]]

    def _shown(self, samples: Sequence[Sequence[Array]]) -> tuple[tuple[StatePair, ...], str]:
        """Return the only possible pairs of a type if inputs are the outputs of the samples before, half or more."""
        sole = _sole(possible_pairs(self.graph))
        if not sole or len(samples) < 2:
            return (), BY_VALUES
        places = positions(sole, self.graph.input_infos(), self.graph.output_infos())
        executor, carried, last = HostExecutor(self.graph), np.zeros(len(sole), np.int64), list[Array]()
        for sample in samples:
            for pair, (output, place) in enumerate(places if last else ()):
                carried[pair] += bool(np.any(sample[place])) and np.allclose(sample[place], last[output], 1e-3)
            executor.reset()
            last = [np.array(value) for value in executor.run(sample)]
        return tuple(
            pair for pair, count in zip(sole, carried, strict=True) if 2 * count >= len(samples) - 1
        ), BY_VALUES

    # Roll-outs.

    def run(self, graph: Graph, samples: Sequence[Sequence[Array]]) -> Iterator[list[Array] | None]:
        """Yield the outputs of a quantised ``graph`` for samples, which are frames; None for one that it refuses."""
        inputs, outputs = graph.input_infos(), graph.output_infos()
        wanted = [self._numbers[id(sample)] for sample in samples]
        executor, found = HostExecutor(graph), dict[int, list[Array] | None]()
        last: list[Array] | None = None
        for number in range(max(wanted, default=-1) + 1):
            sample = list(map(to_codes, inputs, self._frames[number]))
            if last is not None and self.steps[number]:
                for output, place in self.places:
                    sample[place] = to_codes(inputs[place], to_reals(outputs[output], last[output]))
            try:
                last = [np.array(value) for value in executor.run(sample)]
            except InputError:  # the next frame goes on from the float model's state
                last = None
            found[number] = last
        yield from (found[number] for number in wanted)

    @cached_property
    def independent(self) -> int:
        """Number of independent samples that tell as much as the frames: one in each time that frames stay alike."""
        frames, steps = len(self._frames), np.array(self.steps)
        longest = 0
        for arrays in zip(*self._frames, strict=True):
            values = np.stack([np.ravel(array) for array in arrays]).astype(np.float64)
            values -= values.mean(axis=0)
            whole, lag = float(np.square(values).sum()), 0
            # Frames at this distance in a sequence still have a correlation above a half.
            while (
                lag < frames and 2.0 * (values[lag:] * values[: frames - lag])[steps[lag:] >= lag].sum() > whole > 0.0
            ):
                lag += 1
            longest = max(longest, lag)
        return max(self.steps.count(0), frames // max(1, 2 * longest - 1))

    def in_blocks(self, samples: Sequence[Sequence[Array]], count: int) -> NDArray[np.int64]:
        """Return places of ``samples`` such that every ``count``-th is one block of consecutive frames."""
        ordered = np.argsort([self._numbers[id(sample)] for sample in samples])
        blocks = np.array_split(ordered, min(count, len(samples)))
        return np.array([block[i] for i in range(len(blocks[0])) for block in blocks if i < len(block)])

    def doubts(self, steps: Sequence[Mapping[str, Any]], whole_db: float | None) -> dict[str, str]:
        """Return why the roll-out does not show errors in use, each reason with its remedy; ``steps``: of `by_step`."""
        longest, last = max(self.steps) + 1, steps[-1]["sqnr_db"]
        found = {}
        if self._are_apart:
            found["samples are no consecutive frames"] = (
                "samples give states other than the model makes of the samples before: give consecutive frames"
            )
        if self.independent < _SHORT:
            found[f"frames tell as much as {counted(self.independent, 'sample')}"] = (
                "frames that follow one another are alike; give longer sequences, or more"
            )
        if longest < _SHORT:
            found[f"no sequence has more than {longest} frames"] = f"give sequences of {_SHORT} frames or more"
        elif last is not None and whole_db is not None and last < whole_db - _GROWTH_DB:
            found[f"errors still grow after {steps[-1]['first']} frames"] = "give longer sequences, as in use"
        return found

    def by_step(
        self, samples: Sequence[Sequence[Array]], signal: NDArray[np.float64], noise: NDArray[np.float64]
    ) -> list[dict[str, Any]]:
        """Return the SQNR of the worst output by the number of the frame, from powers [outputs, samples]."""
        steps = np.array([self.steps[self._numbers[id(sample)]] for sample in samples])
        ends = [0, *(2**power for power in range(1 + int(steps.max()).bit_length()))]
        found = []
        for first, end in zip(ends, [*ends[1:], 1 << 62], strict=True):
            inside = (steps >= first) & (steps < end)
            if inside.any():
                of, by = signal[:, inside].sum(axis=1), noise[:, inside].sum(axis=1)
                told = (of > 0) & (by > 0)
                worst = float(10.0 * np.log10(np.min(of[told] / by[told]))) if told.any() else None
                frames = {"first": first + 1, "last": int(steps[inside].max()) + 1, "frames": int(inside.sum())}
                found.append(frames | {"sqnr_db": worst})
        return found


def initial_value(pair: StatePair, info: TensorInfo) -> Array:
    """Return a state before the first run, as its input has it."""
    return np.frombuffer(initial_bytes(pair, info), info.info.numpy).reshape(info.static_shape)


def _scaled(sample: list[Array], factor: float, places: Set[int]) -> list[Array]:
    """Return ``sample`` with real arrays at ``places`` times ``factor``."""
    return [
        value * value.dtype.type(factor) if place in places and value.dtype.kind == "f" else value
        for place, value in enumerate(sample)
    ]


def _filled(sample: list[Array], states: Mapping[int, Array], count: int) -> list[Array]:
    """Return a sample of ``count`` inputs, with ``states`` if it lacks them."""
    rest = iter(sample)
    lacks = len(sample) == count - len(states)
    return [states[place] if place in states else next(rest) for place in range(count)] if lacks else sample


# Pairs that a model has.


def found_pairs(model: Model, graph: Graph) -> tuple[StatePair, ...]:
    """Return the possible pairs whose names, of tensors or of a signature, differ in words such as in and out only."""
    names: list[list[set[str]]] = [
        [{info.name} for info in infos] for infos in (graph.output_infos(), graph.input_infos())
    ]
    for signature in model.signatures:
        if signature.subgraph == graph.subgraph:
            ends = ((graph.outputs, signature.outputs), (graph.inputs, signature.inputs))
            for found, (order, given) in zip(names, ends, strict=True):
                for name, index in given.items():
                    found[order.index(index)].add(name)

    def stem(name: str) -> tuple[str, ...]:
        return tuple(word for word in findall(r"[a-z]+|\d+", name.lower()) if word not in _ENDS)

    outputs, inputs = (
        {info.name: set(map(stem, found)) - {()} for info, found in zip(infos, every, strict=True)}
        for infos, every in zip((graph.output_infos(), graph.input_infos()), names, strict=True)
    )
    return _sole([pair for pair in possible_pairs(graph) if outputs[pair.output] & inputs[pair.input]])


def possible_pairs(graph: Graph) -> list[StatePair]:
    """Return all pairs of an output and an input of one static type, of a model with another input beside it."""
    if len(graph.inputs) < 2:
        return []
    return [
        StatePair(output.name, input.name)
        for input in graph.input_infos()
        for output in graph.output_infos()
        if (input.dtype, input.shape) == (output.dtype, output.shape) and input.info.kind in ("float", "int")
        if input.shape is not None and input.shape and None not in input.shape and 0 not in input.shape
    ]


def _sole(pairs: Sequence[StatePair]) -> tuple[StatePair, ...]:
    """Return the pairs whose output and input are in no other."""
    counts = Counter(end for pair in pairs for end in ((True, pair.output), (False, pair.input)))
    return tuple(pair for pair in pairs if counts[True, pair.output] == counts[False, pair.input] == 1)


def like_states(
    graph: Graph, samples: Sequence[Sequence[Array]], outputs: Sequence[Sequence[Array]]
) -> list[StatePair]:
    """Return the possible pairs whose ends have one range in ``samples`` and ``outputs``, or whose input is zero."""
    found = []
    for pair in possible_pairs(graph):
        ((output, input),) = positions([pair], graph.input_infos(), graph.output_infos())
        ends = ([values[place] for values in every] for every, place in ((outputs, output), (samples, input)))
        a, b = ((min(float(v.min()) for v in end), max(float(v.max()) for v in end)) for end in ends)
        if not any(b) or min(a[1], b[1]) - max(a[0], b[0]) > _LIKE * (max(a[1], b[1]) - min(a[0], b[0])):
            found.append(pair)
    return found
