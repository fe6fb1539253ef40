"""Networks of what rewrites look for, in random mixtures: parts read what other parts made.

Real networks are made of the instances of ``helpers.rewrite_cases``, the near-misses among them, and of single
operators; networks on codes of single operators, quantised as a whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import permutations
from math import prod

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from helpers import rewrite_parts as parts
from helpers.float_nets import FloatNet, assign, run_pass
from helpers.rewrite_cases import CASES, CHANGE_RESULTS
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.ops.spec import Array
from odc_mlir.optimizer import transposed
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import build_graph
from odc_mlir.transforms.circle.circle_optimize import CircleOptimizePass
from odc_mlir.transforms.circle.rewrites.table import O1, ON_REQUEST, ONE_SAMPLE, RULES
from odc_mlir.universe import make_context

Part = Callable[["MixedNet"], SSAValue | Sequence[SSAValue]]

UNARY = ("RELU", "RELU6", "NEG", "ABS", "TANH", "LOGISTIC", "HARD_SWISH", "ELU")
BINARY = ("ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM")
_LARGEST = 4.0  # what is more is brought below it before the next part reads it


class MixedNet(FloatNet):
    """A network whose parts get, as often as not, a value of an earlier part where they ask for an input."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.made: list[SSAValue] = []

    def real(self, *shape: int, low: float = -1.0, high: float = 1.0) -> SSAValue:
        """A value of ``shape``; where it has to be positive or large a new input, whose range is known."""
        wide = (low, high) == (-1.0, 1.0)
        found = self._shaped(shape) if wide and self.made and self.rng.random() < 0.7 else None
        return super().real(*shape, low=low, high=high) if found is None else found

    def _shaped(self, shape: tuple[int, ...]) -> SSAValue | None:
        """An earlier value as a tensor of ``shape``: as it is, turned, in another shape, or a piece of it."""
        source = self._tame(self.made[self.pick(len(self.made))])
        extents = self.array(source).shape
        if extents == shape:
            return source
        if sorted(extents) == sorted(shape) and self.rng.random() < 0.7:
            orders = [order for order in permutations(range(len(shape))) if _turned(extents, order) == shape]
            return parts.transpose(self, source, *orders[self.pick(len(orders))])
        size, wanted = prod(extents), prod(shape)
        if size < wanted or not extents or not shape:
            return None
        if size > wanted:
            flat = parts.reshape(self, source, size)
            begin = self.pick(size - wanted + 1)
            source = self.add("SLICE", flat, parts.ints(self, begin), parts.ints(self, wanted))
        return parts.reshape(self, source, *shape)

    def _tame(self, value: SSAValue) -> SSAValue:
        if np.abs(self.array(value)).max(initial=0.0) <= _LARGEST:
            return value
        made: SSAValue = self.add("TANH", value)
        return made

    def pick(self, count: int) -> int:
        return int(self.rng.integers(0, count))

    def image(self) -> SSAValue:
        """A value of four dimensions, an input if there is none."""
        images = [value for value in self.made if self.array(value).ndim == 4]
        return self._tame(images[-1 - self.pick(min(3, len(images)))]) if images else super().real(1, 4, 5, 3)


def _turned(extents: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(extents[axis] for axis in order)


def _layer(n: MixedNet) -> SSAValue:
    x = n.image()
    return parts.conv(n, x, outputs=1 + n.pick(3)) if n.pick(2) else parts.depthwise(n, x)


def _with_constant(n: MixedNet) -> SSAValue:
    x = n.image()
    shape = n.array(x).shape
    extents = [(shape[-1],), (1, shape[1], 1, 1), (1,)][n.pick(3)]
    made: SSAValue = n.add(BINARY[n.pick(len(BINARY))], x, n.weights(*extents))
    return made


def _with_another(n: MixedNet) -> SSAValue:
    x = n.image()
    same = [value for value in (x, *n.made) if n.array(value).shape == n.array(x).shape]
    made: SSAValue = n.add(("ADD", "MUL", "SUB")[n.pick(3)], x, same[n.pick(len(same))])
    return made


def _move(n: MixedNet) -> SSAValue:
    order = [(0, 3, 1, 2), (0, 2, 3, 1), (0, 2, 1, 3), (0, 1, 2, 3)][n.pick(4)]
    return parts.transpose(n, n.image(), *order)


def _view(n: MixedNet) -> SSAValue:
    x = n.image()
    batch, height, width, channels = n.array(x).shape
    return parts.reshape(n, x, batch, width, height, channels)


def _unary(n: MixedNet) -> SSAValue:
    made: SSAValue = n.add(UNARY[n.pick(len(UNARY))], n.image())
    return made


def _normal(n: MixedNet) -> SSAValue:
    return parts.centred(n, n.image(), *((1, 2), (3,), (1, 3))[n.pick(3)], epsilon=0.1)


def _pad(n: MixedNet) -> SSAValue:
    made: SSAValue = n.add("PAD", n.image(), n.const([[0, 0], [0, n.pick(2)], [n.pick(2), 0], [0, 0]], "int32"))
    return made


def _mean(n: MixedNet) -> SSAValue:
    # Of what has been normalised the mean is nothing but rounding.
    return parts.mean(n, parts.relu(n, n.image()), 1 + n.pick(3), keep=True)


def _piece(n: MixedNet) -> SSAValue:
    x = n.image()
    shape = n.array(x).shape
    begin = [n.pick(extent) for extent in shape]
    size = [1 + n.pick(extent - at) for extent, at in zip(shape, begin, strict=True)]
    made: SSAValue = n.add("SLICE", x, parts.ints(n, *begin), parts.ints(n, *size))
    return made


def _joined(n: MixedNet) -> SSAValue:
    x = n.image()
    same = [value for value in (x, *n.made) if n.array(value).shape == n.array(x).shape]
    made: SSAValue = n.add("CONCATENATION", x, same[n.pick(len(same))], axis=n.pick(4))
    return made


def _softmax(n: MixedNet) -> SSAValue:
    made: SSAValue = n.add("SOFTMAX", n.image(), beta=1.0)
    return made


def _pooled(n: MixedNet) -> SSAValue:
    options = {"filter_height": 2, "filter_width": 2, "stride_h": 1, "stride_w": 1, "padding": "same"}
    made: SSAValue = n.add(("MAX_POOL_2D", "AVERAGE_POOL_2D")[n.pick(2)], n.image(), **options)
    return made


def _integers(n: MixedNet) -> SSAValue:
    """Whole numbers: sums, products, moves and tables."""
    x = n.input(n.rng.integers(-9, 9, (2, 3, 4)).astype(np.int32))
    for _ in range(1 + n.pick(5)):
        kind, shape = n.pick(6), n.array(x).shape
        if kind == 0:
            x = n.add(("ADD", "SUB", "MUL")[n.pick(3)], x, parts.ints(n, n.pick(3)), dtypes=["int32"])
        elif kind == 1:
            x = n.add("TRANSPOSE", x, parts.ints(n, *n.rng.permutation(3)), dtypes=["int32"])
        elif kind == 2:
            extents = [int(extent) for extent in n.rng.permutation(shape)]
            x = n.add("RESHAPE", x, parts.ints(n, *extents), new_shape=extents, dtypes=["int32"])
        elif kind == 3:
            x = n.add(("MAXIMUM", "MINIMUM", "ADD", "SUB")[n.pick(4)], x, x, dtypes=["int32"])
        elif kind == 4:
            places = parts.ints(n, *n.rng.integers(0, shape[1], 2))
            x = n.add("GATHER", x, places, axis=1, dtypes=["int32"])
        else:
            x = n.add(("ABS", "NEG")[n.pick(2)], x, dtypes=["int32"])
    return x


_STEPS: tuple[Part, ...] = (
    _layer,
    _with_constant,
    _with_another,
    _move,
    _move,
    _view,
    _unary,
    _normal,
    _pad,
    _mean,
    _piece,
    _joined,
    _softmax,
    _pooled,
)
_ON_CODES: tuple[Part, ...] = (
    _layer,
    _with_constant,
    _with_another,
    _move,
    _move,
    _view,
    _unary,
    _pad,
    _mean,
    _piece,
    _joined,
    _softmax,
    _pooled,
)
_CASES: tuple[Part, ...] = tuple(make for cases in CASES.values() for make in (*cases.hits, *cases.hits, *cases.misses))


def real_network(seed: int) -> tuple[MixedNet, ModuleOp]:
    """A float network of one to four instances and a few operators."""
    n = MixedNet(seed)
    ends: list[SSAValue] = []
    for _ in range(1 + n.pick(4)):
        _grow(n, _CASES, 1, ends)
        _grow(n, _STEPS, n.pick(4), ends)
        _grow(n, (_integers,), n.pick(8) == 0, ends)
    return n, n.module(*_outputs(n, ends))


def network_on_codes(seed: int) -> tuple[MixedNet, ModuleOp]:
    """A network whose inputs and outputs are codes, and all between them."""
    n = MixedNet(seed)
    n.made.append(parts.image(n))
    ends: list[SSAValue] = []
    _grow(n, _ON_CODES, 3 + n.pick(10), ends)
    module = assign(n.module(*_outputs(n, ends)), ("int8", "int16", "uint8")[n.pick(3)])
    run_pass(module, "convert-circle-to-quant")
    run_pass(module, "quant-insert-requantize")
    return n, module


def _grow(n: MixedNet, kinds: Sequence[Part], count: int, ends: list[SSAValue]) -> None:
    for _ in range(count):
        made = kinds[n.pick(len(kinds))](n)
        given = [made] if isinstance(made, SSAValue) else list(made)
        ends += given
        n.made += [value for value in given if n.array(value).dtype == np.float32 and n.array(value).size]


def _outputs(n: MixedNet, ends: Sequence[SSAValue]) -> list[SSAValue]:
    """What nothing reads, and a value that something reads."""
    unread = [value for value in ends if not value.uses and isinstance(value.owner, Operation)]
    computed = [value for value in n.made if isinstance(value.owner, Operation)]
    return list(dict.fromkeys([*unread, *([computed[n.pick(len(computed))]] if computed else [])]))


_KEEPING = sorted(
    rule.name for rule in RULES if rule.level == ON_REQUEST and rule.name not in {*CHANGE_RESULTS, ONE_SAMPLE}
)
_USUAL = [rule.name for rule in RULES if rule.level == O1]
_LAYOUTS = ("keep", "nhwc")
_ROUNDING = 1e-6  # how far inputs are moved, relative, to see what roundings make of the outputs
_AMPLIFIED = 32  # roundings inside, for one of the inputs
_TOLERANCE = 1e-5  # of the largest output, as optimising promises


def _left_out(n: MixedNet) -> tuple[str, ...]:
    """Rewrites of O1 that are left out, half of the time: others then meet what they would have taken."""
    return tuple(name for name in _USUAL if n.rng.random() < 0.3) if n.pick(2) else ()


def check_real(seed: int) -> Counter[str]:
    """A float network before and after O1 and some rewrites more: AssertionError where outputs are apart.

    What applied how often, by name.
    """
    n, module = real_network(seed)
    more = tuple(name for name in _KEEPING if n.rng.random() < 0.2)
    without = _left_out(n)
    given = n.inputs
    expected, *moved = _results(module, [given, _moved(given, n.rng), _moved(given, n.rng)])
    counts, layouts = CircleOptimizePass(rewrites=more, without=without, io_layout=_LAYOUTS[n.pick(2)]).optimize(
        make_context(), module
    )
    module.verify()
    (found,) = _results(module, [transposed(given, layouts.inputs)])
    # What cancels leaves roundings of what it was made of.
    lost = _ROUNDING * max(float(np.abs(array).max(initial=0.0)) for array in n.values.values())
    spreads = [
        max(float(np.abs(near[number].astype(float) - array).max(initial=0.0)) for near in moved)
        for number, array in enumerate(expected)
    ]
    for spread, old, new in zip(spreads, transposed(expected, layouts.outputs), found, strict=True):
        assert (new.dtype, new.shape) == (old.dtype, old.shape)
        if old.dtype != np.float32:
            np.testing.assert_array_equal(new, old)
            continue
        assert np.isfinite(old).all(), "the network itself gives no numbers"
        allowed = _TOLERANCE * float(np.abs(old).max(initial=0.0)) + _AMPLIFIED * spread + lost
        np.testing.assert_allclose(new, old, rtol=0, atol=allowed)
    return counts


def check_codes(seed: int) -> Counter[str]:
    """A network on codes before and after O1: AssertionError where a bit differs. What applied, as above."""
    n, module = network_on_codes(seed)
    (expected,) = _results(module, [n.inputs])
    counts, layouts = CircleOptimizePass(without=_left_out(n), io_layout=_LAYOUTS[n.pick(2)]).optimize(
        make_context(), module
    )
    module.verify()
    (found,) = _results(module, [transposed(n.inputs, layouts.inputs)])
    for old, new in zip(transposed(expected, layouts.outputs), found, strict=True):
        np.testing.assert_array_equal(new, old)
    return counts


def _moved(arrays: Sequence[Array], rng: np.random.Generator) -> list[Array]:
    """Real inputs, each number a little off."""
    return [
        (array * rng.uniform(1 - _ROUNDING, 1 + _ROUNDING, array.shape)).astype(np.float32)
        if array.dtype == np.float32
        else array
        for array in arrays
    ]


def _results(module: ModuleOp, samples: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """The outputs for each sample, on host kernels."""
    executor = HostExecutor(build_graph(export_model(module)))
    return [list(executor.run(list(inputs))) for inputs in samples]
