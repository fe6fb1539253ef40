"""State of a model in use (outputs that become inputs of the next run), and roll-outs over sequences of samples.

Samples are consecutive frames. The first frame of a sequence has the state in the sample, or zero. Each later frame has
the state that the running model, float or quantised, computed before. A sequence starts with the first sample, and with
samples that have zero states or the states of the first. If all samples do, there is one sequence.
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
from odc_mlir.quantizer.policy.ranges import extremes
from odc_mlir.runtime.execution.binding import to_codes, to_reals
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import Graph

DECLARED, BY_NAME, BY_VALUES = "declared", "by name", "by values"
# Words that distinguish the names of a state's two ends, which are otherwise equal.
_ENDS = frozenset(
    ["in", "out", "input", "output", "new", "next", "prev", "previous", "past", "present"]
    + ["updated", "old", "initial", "init", "current"]
)
# If samples are not a stream, and repeating each for _HELD frames takes states farther by half a bit (_FARTHER), ranges
# are determined from repeated samples scaled by _LOUDER, which costs one bit of the codes. In 8 frames, a state that
# keeps up to 92 % per frame reaches half of its limit (0.917^8 = 0.5), and _LOUDER makes up for the rest.
_HELD, _FARTHER, _LOUDER = 8, 2.0**0.5, 2.0
_SHORT = 8  # fewer frames, or independent samples, show little of the growth of errors

Places = tuple[tuple[int, int], ...]


@dataclass
class Rollout:
    """Runs of the float model ``graph`` and of quantised models over sequences of samples."""

    graph: Graph
    pairs: tuple[StatePair, ...] = ()  # states; empty until states are given or detected
    how: str = DECLARED  # source of ``pairs``
    places: Places = ()
    steps: list[int] = field(default_factory=list)  # number of each frame in its sequence, from 0
    are_shuffled: bool = False  # whether the samples are in another order than in use
    each: int = 1  # number of frames per sample
    _frames: list[list[Array]] = field(default_factory=list)
    _numbers: dict[int, int] = field(default_factory=dict)  # frame number by id of the frame
    _given: dict[int, list[Array]] = field(default_factory=dict)  # frame id -> sample with other states than the frame

    @classmethod
    def of(
        cls, states: Mapping[str, str] | None, of_file: Sequence[StatePair], model: Model, graph: Graph
    ) -> Rollout | None:
        """Return the roll-out of given, stored or detected states (in this order), or None if there are no states."""
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
        """Return the declared pairs with codes of the quantised ``graph``. Raises OptionError if types differ."""
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
        """Read samples. If arrays for states are missing, use initial states. Raise InputError."""
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

    def through(self, samples: list[list[Array]], *, may_be_shuffled: bool = True) -> list[list[Array]]:
        """Return ``samples`` as frames, which have the float model's own states except at the start of a sequence.

        If shuffled samples hide large states, samples are scaled up and repeated, and the last frames are returned.
        """
        if not self.pairs:
            self._set(self._pairs_by_values(samples), BY_VALUES)
        if not self.pairs:
            return samples
        starts = self._starts(samples)
        own = self._rolled(samples, starts)
        given = {place: sample for place, sample in enumerate(samples) if self._gives_others(sample, own[place])}
        if not self._frames and may_be_shuffled:
            held = self._rolled(*_repeated(samples, starts, _HELD))[_HELD - 1 :: _HELD]
            go_farther = self._reach(held, own) > _FARTHER
            self.are_shuffled = 2 * len(given) > len(samples) or (go_farther and self._are_unlike(samples, starts))
            self.each = _HELD if self.are_shuffled and go_farther else 1
        if self.each > 1:
            inputs = {*range(len(samples[0]))} - self._state_inputs
            every, starts = _repeated([_scaled(sample, inputs) for sample in samples], starts, self.each)
            own = self._rolled(every, starts)
        self._numbers |= {id(frame): number for number, frame in enumerate(own, len(self._frames))}
        self._frames += own
        self.steps += _steps(starts).tolist()
        frames = own[self.each - 1 :: self.each]
        self._given |= {id(frames[place]): sample for place, sample in given.items()}
        return frames

    def _gives_others(self, sample: list[Array], frame: list[Array]) -> bool:
        """Return whether the states in ``sample`` differ from the states in ``frame``."""
        pairs = [(sample[place], frame[place]) for _, place in self.places]
        return any(np.any(given) for given, _ in pairs) and not all(np.allclose(b, a, 1e-3, 1e-6) for a, b in pairs)

    @property
    def _state_inputs(self) -> set[int]:
        return {place for _, place in self.places}

    def _are_unlike(self, samples: Sequence[Sequence[Array]], starts: Sequence[bool]) -> bool:
        """Return whether samples are not a stream: no input resembles the previous one in values or size."""
        steps, memories = _steps(starts), [0]
        for place, array in enumerate(samples[0]):
            if array.dtype.kind == "f" and place not in self._state_inputs and np.count_nonzero(steps) >= _SHORT:
                values = np.stack([sample[place].ravel() for sample in samples]).astype(np.float64)
                memories += [_memory(values, steps), _memory(np.square(values).mean(axis=1, keepdims=True), steps)]
        return max(memories) == 1

    def _rolled(self, samples: Sequence[list[Array]], starts: Sequence[bool]) -> list[list[Array]]:
        executor, frames, last = HostExecutor(self.graph), [], list[Array]()
        for sample, is_start in zip(samples, starts, strict=True):
            frame = list(sample)
            for output, place in () if is_start else self.places:
                frame[place] = last[output]
            last = [np.array(value) for value in executor.run(frame)]
            frames.append(frame)
        return frames

    def _reach(self, samples: Sequence[list[Array]], frames: Sequence[list[Array]]) -> float:
        """Return the largest ratio of a state's typical size in ``samples`` to that in ``frames``."""
        sizes = [
            [float(np.median([np.abs(each[place]).max(initial=0.0) for each in every])) for _, place in self.places]
            for every in (samples, frames)
        ]
        return max((given / own for given, own in zip(*sizes, strict=True) if own > 0.0), default=1.0)

    def with_given(self, samples: Sequence[Sequence[Array]]) -> list[Sequence[Array]]:
        """Return the frames ``samples``, and further samples for ranges, which have the given states."""
        return [*samples, *(self._given[id(sample)] for sample in samples if id(sample) in self._given)]

    def _starts(self, samples: Sequence[Sequence[Array]]) -> list[bool]:
        first = [samples[0][place] for _, place in self.places]
        found = []
        for sample in samples:
            state = [sample[place] for _, place in self.places]
            is_first = all(map(np.array_equal, state, first))
            found.append(is_first or not any(map(np.any, state)))
        return [True, *[not all(found) and is_start for is_start in found[1:]]]

    def _pairs_by_values(self, samples: Sequence[Sequence[Array]]) -> tuple[StatePair, ...]:
        """Return the unambiguous pairs with inputs that equal the previous outputs in at least half of the samples."""
        sole = _sole(possible_pairs(self.graph))
        if not sole or len(samples) < 2:
            return ()
        places = positions(sole, self.graph.input_infos(), self.graph.output_infos())
        executor, carried, last = HostExecutor(self.graph), np.zeros(len(sole), np.int64), list[Array]()
        for sample in samples:
            for pair, (output, place) in enumerate(places if last else ()):
                carried[pair] += bool(np.any(sample[place])) and np.allclose(sample[place], last[output], 1e-3)
            executor.reset()
            last = [np.array(value) for value in executor.run(sample)]
        return tuple(pair for pair, count in zip(sole, carried, strict=True) if 2 * count >= len(samples) - 1)

    # Roll-outs.

    def run(self, graph: Graph, samples: Sequence[Sequence[Array]]) -> Iterator[list[Array] | None]:
        """Yield the outputs of a quantised ``graph`` for samples, which are frames, or None for a refused sample."""
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
            except InputError:  # the next frame starts with the float model's state
                last = None
            found[number] = last
        yield from (found[number] for number in wanted)

    @cached_property
    def independent(self) -> int:
        """Number of independent samples equivalent to the frames: a sample per period of similar frames."""
        rows = (np.stack(list(map(np.ravel, arrays))) for arrays in zip(*self._frames, strict=True))
        longest = max(_memory(values.astype(np.float64), np.array(self.steps)) for values in rows)
        return max(self.steps.count(0), len(self._frames) // max(1, 2 * longest - 1))

    def in_blocks(self, samples: Sequence[Sequence[Array]], count: int) -> NDArray[np.int64]:
        """Return indices of ``samples``, ordered so that every ``count``-th index is in the same block of frames."""
        ordered = np.argsort([self._numbers[id(sample)] for sample in samples])
        blocks = np.array_split(ordered, min(count, len(samples)))
        return np.array([block[i] for i in range(len(blocks[0])) for block in blocks if i < len(block)])

    def blocks(self, samples: Sequence[Sequence[Array]], places: Sequence[int]) -> list[list[int]]:
        """Return ``places`` of samples in blocks of consecutive frames of a sequence. Blocks count as independent."""
        length, found = -(-len(self._frames) // self.independent), dict[tuple[int, int], list[int]]()
        for place in places:
            number = self._numbers[id(samples[place])]
            step = self.steps[number]
            found.setdefault((number - step, step // length), []).append(place)
        return list(found.values())

    def doubts(self, steps: Sequence[Mapping[str, Any]], whole_db: float | None) -> dict[str, str]:
        """Return reasons why the roll-out does not show errors in use, with remedies. ``steps``: from `by_step`."""
        most_worse_db = 3.0  # if the last steps of sequences are worse than all steps by more, errors still grow
        longest, last = max(self.steps) + 1, steps[-1]["sqnr_db"]
        found = {}
        if self.are_shuffled:
            found["samples are no consecutive frames"] = (
                "inputs differ like shuffled ones, or states are not those of the model: give frames in order"
            )
        if self.independent < _SHORT:
            found[f"frames count as {counted(self.independent, 'independent sample')}"] = (
                "consecutive frames are alike; give longer or more sequences"
            )
        if longest < _SHORT:
            found[f"no sequence has more than {longest} frames"] = f"give sequences of {_SHORT} frames or more"
        elif last is not None and whole_db is not None and last < whole_db - most_worse_db:
            found[f"errors still grow after {steps[-1]['first']} frames"] = "give longer sequences, as in use"
        return found

    def by_step(
        self, samples: Sequence[Sequence[Array]], signal: NDArray[np.float64], noise: NDArray[np.float64]
    ) -> list[dict[str, Any]]:
        """Return the SQNR of the worst output by frame number. ``signal``, ``noise``: powers [outputs, samples]."""
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


def _repeated(samples: list[list[Array]], starts: Sequence[bool], times: int) -> tuple[list[list[Array]], list[bool]]:
    """Return each sample ``times`` times, and for each copy whether it starts a sequence."""
    every = [sample for sample in samples for _ in range(times)]
    return every, [is_start and number == 0 for is_start in starts for number in range(times)]


def _steps(starts: Sequence[bool]) -> NDArray[np.int64]:
    """Return the numbers of frames within the sequences. ``starts`` marks the first frames."""
    numbers = np.arange(len(starts))
    return numbers - np.maximum.accumulate(np.where(starts, numbers, 0))


def _memory(values: NDArray[np.float64], steps: NDArray[np.int64]) -> int:
    """Return the number of frames over which ``values`` keep a correlation above 0.5, or 0 if ``values`` never vary."""
    values = values - values.mean(axis=0)
    whole, count, lag = float(np.square(values).sum()), len(values), 0
    while lag < count and 2.0 * (values[lag:] * values[: count - lag])[steps[lag:] >= lag].sum() > whole > 0.0:
        lag += 1
    return lag


def initial_value(pair: StatePair, info: TensorInfo) -> Array:
    """Return the initial value of a state, in the form of the input."""
    return np.frombuffer(initial_bytes(pair, info), info.info.numpy).reshape(info.static_shape)


def _scaled(sample: list[Array], places: Set[int]) -> list[Array]:
    return [
        value * value.dtype.type(_LOUDER) if place in places and value.dtype.kind == "f" else value
        for place, value in enumerate(sample)
    ]


def _filled(sample: list[Array], states: Mapping[int, Array], count: int) -> list[Array]:
    rest = iter(sample)
    lacks = len(sample) == count - len(states)
    return [states[place] if place in states else next(rest) for place in range(count)] if lacks else sample


# Search for pairs in a model.


def found_pairs(model: Model, graph: Graph) -> tuple[StatePair, ...]:
    """Return possible pairs: names in the graph or signature differ only in words such as in and out."""
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
    """Return all pairs of an output and an input with the same static type, if the model has a further input."""
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
    """Return the pairs that share no output or input with another pair."""
    counts = Counter(end for pair in pairs for end in ((True, pair.output), (False, pair.input)))
    return tuple(pair for pair in pairs if counts[True, pair.output] == counts[False, pair.input] == 1)


def like_states(
    graph: Graph, samples: Sequence[Sequence[Array]], outputs: Sequence[Sequence[Array]]
) -> list[StatePair]:
    """Return a pair for each input that has a range like an output of its type in ``samples``, or is always zero.

    Each output is in one pair. Most models have states in the same order in inputs and outputs, at the end of both.
    """
    least_common = 0.5  # the part of their joint range that both must cover
    possible, alike = possible_pairs(graph)[::-1], list[StatePair]()
    for pair in possible:
        ((output, input),) = positions([pair], graph.input_infos(), graph.output_infos())
        ends = ([values[place] for values in every] for every, place in ((outputs, output), (samples, input)))
        a, b = map(extremes, ends)
        if not any(b) or min(a[1], b[1]) - max(a[0], b[0]) > least_common * (max(a[1], b[1]) - min(a[0], b[0])):
            alike.append(pair)

    def distance(pair: StatePair) -> tuple[bool, int]:
        outputs = [other.output for other in possible if other.input == pair.input]
        inputs = [other.input for other in possible if other.output == pair.output]
        return pair not in alike, abs(outputs.index(pair.output) - inputs.index(pair.input))

    found, continued = dict[str, StatePair](), {pair.input for pair in alike}
    for pair in sorted((pair for pair in possible if pair.input in continued), key=distance):
        if pair.output not in {other.output for other in found.values()}:
            found.setdefault(pair.input, pair)
    return list(found.values())[::-1]
