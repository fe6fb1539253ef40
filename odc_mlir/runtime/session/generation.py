"""Text generation: the inputs and outputs of a language model's step, and the loop over tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from odc_mlir.errors import InputError, OdcError, OptionError
from odc_mlir.formats.quantities import counted
from odc_mlir.ops.constants import initial_contents
from odc_mlir.ops.spec import Array, TensorInfo, Trait
from odc_mlir.runtime.execution.binding import to_codes, to_reals
from odc_mlir.runtime.execution.graph import Graph
from odc_mlir.runtime.session.loader import Loader
from odc_mlir.runtime.session.tensors import SessionPort

HIDDEN = -1e4
"""Mask value of keys that a query must not attend to."""

_KEEPING = frozenset({"ADD", "BROADCAST_TO", "CAST", "CONCATENATION", "PACK", "SELECT_V2", "SLICE", "STRIDED_SLICE"})
"""Operators that a position passes. A choice and an addition handle negative positions."""

Run = Callable[[list[Array]], Sequence[Array]]
OnToken = Callable[[int], object]


class Cache(NamedTuple):
    """An input with the cache rows of earlier tokens along ``axis``, newest last, and the output with new rows."""

    input: int
    output: int
    axis: int


@dataclass(frozen=True)
class StepInterface:
    """Positions of a step's inputs and outputs, and the numbers of tokens in a step and in the context.

    ``context`` and ``vocabulary`` are None if unknown. If a step has no caches, the model keeps its state itself.
    """

    token: int
    position: int | None
    mask: int | None
    logits: int
    caches: tuple[Cache, ...]
    tokens: int
    context: int | None
    vocabulary: int | None

    def to_dict(self, inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo]) -> dict[str, Any]:
        """Return the interface as plain data, with names of tensors."""
        found: dict[str, Any] = {"token": inputs[self.token].name}
        found["position"] = None if self.position is None else inputs[self.position].name
        found["mask"] = None if self.mask is None else inputs[self.mask].name
        found["logits"] = outputs[self.logits].name
        found["caches"] = [
            {"rows": inputs[item.input].name, "new_rows": outputs[item.output].name} for item in self.caches
        ]
        return found | {name: getattr(self, name) for name in ("tokens", "context", "vocabulary")}


def find_interface(
    inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo], given: Mapping[str, int | str] | None = None
) -> StepInterface:
    """Return the interface of a step. ``given``: names or positions of ``token``, ``position``, ``mask``, ``logits``.

    Token and position are integers, distinguished by name or else by order. A cache is an input with an output that
    differs only in the dimension of tokens. The mask is the remaining input. Raises InputError for other models.
    """
    chosen = {name: _place(name, at, outputs if name == "logits" else inputs) for name, at in (given or {}).items()}
    logits = chosen.pop("logits", None)
    _choose(chosen, inputs, range(len(inputs)), ("mask", "mask"))
    integers = [at for at, info in enumerate(inputs) if info.info.is_integer and info.quant is None]
    _choose(chosen, inputs, integers, ("position", "pos"), ("token", "tok"), ("token", "ids"))
    _choose(chosen, inputs, integers, ("token", ""), ("position", ""))
    if "token" not in chosen:
        raise InputError("the model has no token input", hint="a step of a language model reads token ids as integers")
    tokens = math.prod(inputs[chosen["token"]].static_shape)
    caches, free = [], [at for at in range(len(outputs)) if at != logits]
    for at in (at for at in range(len(inputs)) if at not in chosen.values()):
        found = next(((o, axis) for o in free for axis in _grown(inputs[at], outputs[o], tokens)), None)
        if found is not None:
            caches.append(Cache(at, *found))
            free.remove(found[0])
        elif chosen.setdefault("mask", at) != at:
            text, hint = "the input is neither token, position, mask nor cache of rows", "declare it as a state"
            raise InputError(text, tensor=inputs[at].name, hint=hint)
    if logits is None and not free:
        raise InputError("every output is a cache, so the model has no logits")
    logits = free[0] if logits is None else logits
    mask = chosen.get("mask")
    lengths = {item.input: inputs[item.input].static_shape[item.axis] + tokens for item in caches}
    if mask is not None:
        shape = inputs[mask].static_shape
        if not shape or shape[-2:-1] not in ((), (1,), (tokens,)):
            raise InputError(f"the mask is {list(shape)}, which does not fit {counted(tokens, 'token')}")
        lengths[mask] = shape[-1]
    context = next(iter(lengths.values()), None)
    for at, length in lengths.items():
        if length != context:
            text = f"the input has room for {counted(length, 'token')}, another for {context}"
            raise InputError(text, tensor=inputs[at].name)
    info = outputs[logits]
    vocabulary = None if (info.info.is_integer and info.quant is None) or not info.shape else info.shape[-1]
    return StepInterface(
        chosen["token"], chosen.get("position"), mask, logits, tuple(caches), tokens, context, vocabulary
    )


def _choose(chosen: dict[str, int], infos: Sequence[TensorInfo], among: Iterable[int], *rules: tuple[str, str]) -> None:
    """For each rule (role, part of a name), choose the first free tensor with the part in the short name."""
    for role, part in rules:
        free = (at for at in among if at not in chosen.values())
        found = next((at for at in free if part in infos[at].name.rpartition("::")[2].casefold()), None)
        if found is not None:
            chosen.setdefault(role, found)


def _place(name: str, at: int | str, tensors: Sequence[TensorInfo]) -> int:
    if name not in ("token", "position", "mask", "logits"):
        raise OptionError(f"a step has no {name!r}", hint="use token, position, mask or logits")
    names = [info.name for info in tensors]
    if at in names:
        return names.index(str(at))
    if not isinstance(at, int) or not 0 <= at < len(names):
        raise OptionError(f"the {name} is {at!r}, which the model lacks", hint=f"it has {', '.join(names)}")
    return at


def _grown(cache: TensorInfo, new: TensorInfo, tokens: int) -> Iterator[int]:
    """Yield the axes along which ``new`` can hold the rows of ``tokens`` new tokens for ``cache``."""
    before, after = cache.shape or (), new.shape or ()
    rank = len(before)
    if rank < 3 or len(after) != rank or cache.info.kind == "string" or before == after:  # equal: a whole cache
        return
    for axis in (rank - 2, *(axis for axis in range(rank) if axis != rank - 2)):
        others = [at for at in range(rank) if at != axis]
        if after[axis] == tokens and before[axis] is not None and all(before[at] == after[at] for at in others):
            yield axis


@dataclass
class TokenStep:
    """An executable step: ``run`` maps inputs to outputs. ``inputs`` and ``outputs`` describe the types."""

    run: Run
    inputs: Sequence[TensorInfo]
    outputs: Sequence[TensorInfo]
    interface: StepInterface


class TokenStream:
    """A text in progress: ``length`` tokens and their cache rows, in the types of the step with the fewest tokens.

    The step with the most tokens reads prompts, padded at the front. The mask hides padding. Cache rows of padding are
    dropped.
    """

    def __init__(self, steps: Iterable[TokenStep]) -> None:
        ordered = sorted(steps, key=lambda step: step.interface.tokens)
        self.step, self._prefill = ordered[0], ordered[-1]
        self.length = 0
        self._infos = [self.step.inputs[item.input] for item in self.step.interface.caches]
        self._rows = list(map(initial_contents, self._infos))

    def feed(self, ids: Sequence[int]) -> Array:
        """Read ``ids`` and return the logits of the next token, or the token itself if the model chooses it."""
        at, result = 0, np.zeros(0)
        while at < len(ids):
            face = self._prefill.interface
            fits = face.context is None or self.length + face.tokens <= face.context
            step = self._prefill if fits and len(ids) - at > 1 else self.step
            taken = ids[at : at + step.interface.tokens]
            result = self._feed(step, taken)
            at += len(taken)
        return result

    def _feed(self, step: TokenStep, ids: Sequence[int]) -> Array:
        face, count = step.interface, len(ids)
        pads = [0] * (face.tokens - count)
        if face.context is not None and self.length + count > face.context:
            raise InputError(f"the context is full: it holds {face.context} tokens", hint="shorten the text")
        if pads and not face.caches:
            raise InputError(f"the model keeps its state inside and reads {face.tokens} tokens at once, not {count}")
        arrays = {face.token: _encoded(step.inputs[face.token], [*pads, *ids])}
        if face.position is not None:
            places = [*pads, *range(self.length, self.length + count)]
            arrays[face.position] = _encoded(step.inputs[face.position], places)
        if face.mask is not None:
            arrays[face.mask] = self._mask(step.inputs[face.mask], face, len(pads))
        pairs = list(zip(face.caches, self.step.interface.caches, strict=True))
        for (item, own), info, rows in zip(pairs, self._infos, self._rows, strict=True):
            wanted = step.inputs[item.input]
            kept = _last(rows, own.axis, wanted.static_shape[item.axis])
            arrays[item.input] = _converted(kept, info, wanted)
        outputs = step.run([arrays[at] for at in range(len(arrays))])
        for place, ((item, own), info) in enumerate(zip(pairs, self._infos, strict=True)):
            new = _converted(_last(outputs[item.output], item.axis, count), step.outputs[item.output], info)
            joined = np.concatenate([self._rows[place], new], own.axis)
            self._rows[place] = _last(joined, own.axis, info.static_shape[own.axis])
        self.length += count
        answer = to_reals(step.outputs[face.logits], outputs[face.logits])
        last: Array = answer.reshape(-1, face.vocabulary or 1)[-1]
        return last

    def _mask(self, info: TensorInfo, face: StepInterface, pads: int) -> Array:
        """Return the mask: a query (row) sees ``length`` old keys (columns), and new keys up to the same position."""
        rows, columns = np.arange(face.tokens)[:, None], np.arange(info.static_shape[-1])
        first = len(columns) - face.tokens
        seen = (columns >= first - self.length) & (columns <= first + rows)
        seen &= (columns < first) | (columns >= first + pads)
        # The softmax of a query that sees no keys would divide by zero. Therefore a padding token sees the key of this
        # token.
        shown = np.where(rows < pads, columns == first + rows, seen)[-math.prod(info.static_shape[-2:-1]) :]
        is_real = info.quant is not None or info.info.kind == "float"
        return _encoded(info, np.where(shown, 0.0, HIDDEN) if is_real else shown)


def _encoded(info: TensorInfo, values: Any) -> Array:
    """Return ``values`` in the type and shape of a tensor, repeated along leading axes."""
    shape = info.static_shape
    array = to_codes(info, np.asarray(values)).astype(info.info.numpy)
    return np.broadcast_to(array, shape) if array.size < math.prod(shape) else array.reshape(shape)


def _last(array: Array, axis: int, count: int) -> Array:
    size = array.shape[axis]
    return array[(slice(None),) * axis + (slice(size - count, size),)]


def _converted(values: Array, source: TensorInfo, wanted: TensorInfo) -> Array:
    if (source.dtype, source.quant) == (wanted.dtype, wanted.quant):
        return values
    return to_codes(wanted, to_reals(source, values)).astype(wanted.info.numpy, copy=False)


@dataclass(frozen=True)
class Sampling:
    """Choice of the next token: the likeliest for ``temperature`` 0, else a random one of the ``top_k`` likeliest."""

    temperature: float = 0.0
    top_k: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not (isinstance(self.temperature, (int, float)) and 0 <= self.temperature < math.inf):
            raise OptionError(f"the temperature is {self.temperature!r}", hint="use a number from 0")
        if self.top_k is not None and (not isinstance(self.top_k, int) or self.top_k < 1):
            raise OptionError(f"top_k is {self.top_k!r}", hint="use an integer from 1, or None for all tokens")
        if not isinstance(self.seed, int) or self.seed < 0:
            raise OptionError(f"the seed is {self.seed!r}", hint="use an integer from 0")

    def choose(self, logits: Array, random: np.random.Generator) -> int:
        """Return the next token. The first token wins ties."""
        if self.temperature == 0:
            return int(np.argmax(logits))
        scaled = logits.astype(np.float64) / self.temperature
        best = np.argsort(-scaled, kind="stable")[: self.top_k]
        weights = np.exp(scaled[best] - scaled[best[0]])
        return int(random.choice(best, p=weights / weights.sum()))


def generate(
    stream: TokenStream,
    prompt_ids: Sequence[int],
    max_tokens: int,
    sampling: Sampling,
    on_token: OnToken | None = None,
    stop: Sequence[int] = (),
) -> list[int]:
    """Return the tokens that follow ``prompt_ids``, at most ``max_tokens``, up to the first token in ``stop``.

    ``on_token`` is called with each token. Raises InputError for ids outside the vocabulary. Texts longer than the
    context raise InputError before the first step.
    """
    face, prompt = stream.step.interface, [_checked_id(at, id, stream) for at, id in enumerate(prompt_ids)]
    if not prompt:
        raise InputError("the prompt has no tokens", hint="begin with the token that starts a text")
    if isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < 1:
        raise OptionError(f"max_tokens is {max_tokens!r}", hint="use an integer from 1")
    if not isinstance(stop, Collection) or not all(isinstance(token, (int, np.integer)) for token in stop):
        raise OptionError(f"stop is {stop!r}", hint="use a list of token ids")
    if not (on_token is None or callable(on_token)):
        raise OptionError(f"on_token is {on_token!r}", hint="use a function of a token id")
    if face.vocabulary is None and sampling.temperature:
        raise OptionError("the model chooses the token itself, so there is nothing to sample", hint="use temperature 0")
    # The last generated token is not fed to the model, so it needs no room in the context.
    if face.context is not None and (needed := len(prompt) + max_tokens - 1) > face.context:
        room = face.context - len(prompt) + 1
        raise InputError(
            f"the context is full: a prompt of {counted(len(prompt), 'token')} and {max_tokens} more need {needed}, "
            f"the model holds {face.context}",
            hint=f"ask for at most {room} tokens" if room > 0 else f"shorten the prompt to {face.context} tokens",
        )
    random, made = np.random.default_rng(sampling.seed), list[int]()
    while len(made) < max_tokens and not (made and made[-1] in stop):
        answer = stream.feed(made[-1:] or prompt)
        token = sampling.choose(answer, random) if face.vocabulary else int(answer[-1])
        made.append(token)
        if on_token is not None:
            on_token(token)
    return made


def _checked_id(at: int, value: Any, stream: TokenStream) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise InputError(f"token {at} of the prompt is {value!r}, not an integer")
    size = stream.step.interface.vocabulary
    if value < 0 or (size is not None and value >= size):
        allowed = "0 and above" if size is None else f"0 to {size - 1}"
        raise InputError(f"token {at} of the prompt is {value}, out of range", hint=f"the model knows {allowed}")
    return int(value)


def with_context(face: StepInterface, graph: Graph) -> StepInterface:
    """Return the interface of a step without mask and caches, with the number of places that its position can choose.

    A position chooses a row of a table or of a state, or equals one of the numbers in a constant.
    """
    found, followed = list[int](), {graph.inputs[face.position]} if face.position is not None else set[int]()
    for item in graph.nodes:
        name, read = item.node.spec.name, [tensor in followed for tensor in item.inputs]
        infos = [graph.tensors[tensor] for tensor in item.inputs if tensor >= 0]
        if name == "GATHER" and read[1]:
            rows = (infos[0].shape or (None,))[item.node.options.get("axis", 0)]
            found += [] if rows is None else [rows]
        elif name == "DYNAMIC_UPDATE_SLICE" and read[2]:
            sizes = zip(infos[0].static_shape, infos[1].static_shape, strict=True)
            found += [whole for whole, part in sizes if part < whole]
        elif name == "EQUAL" and any(read):
            found += [int(info.array().max(initial=-1)) + 1 for info in infos if info.is_const]
        elif any(read) and (name in _KEEPING or Trait.VIEW in item.node.spec.traits):
            followed.update(item.outputs)
    return replace(face, context=min(found, default=None))


def step_of(loader: Loader, run: Run, given: Mapping[str, int | str] | None = None) -> TokenStep:
    """Return the step of the loader's signature, with the user's element types."""
    inputs, outputs = ([_exposed(port) for port in ports] for ports in (loader.inputs, loader.outputs))
    face = find_interface(inputs, outputs, given)
    if face.context is None:
        face = with_context(face, loader.graph())
    return TokenStep(run, inputs, outputs, face)


def _exposed(port: SessionPort) -> TensorInfo:
    return replace(port.info, dtype="float32", quant=None) if port.as_float else port.info


def other_steps(loader: Loader, step: TokenStep) -> list[TokenStep]:
    """Return the steps of other signatures that take other numbers of tokens and have the same caches as ``step``."""
    found = []
    for signature in loader.source.records.signatures if step.interface.caches else ():
        with suppress(OdcError):  # other signatures need not be steps
            other = loader.with_signature(signature.key)
            made = step_of(other, lambda arrays: ())
            if made.interface.tokens != step.interface.tokens and _caches(made) == _caches(step):
                found.append(replace(made, run=other.open().run))
    return found


def _caches(step: TokenStep) -> list[tuple[int, tuple[int, ...]]]:
    """Return what models must share to exchange rows: context size, and the token axis and other sizes of caches."""
    face = step.interface
    shapes = [(item.axis, step.outputs[item.output].static_shape) for item in face.caches]
    return [(face.context or 0, ()), *((axis, shape[:axis] + shape[axis + 1 :]) for axis, shape in shapes)]
