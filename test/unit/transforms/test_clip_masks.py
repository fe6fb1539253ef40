"""Masks before SOFTMAX: clipping them changes no bit of a float model, and integers keep the scores beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from helpers.float_nets import Array, FloatNet, assign, quantised_results, run_pass
from odc_mlir.dialects.circle import CircleOp
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import build_graph
from odc_mlir.transforms.circle.circle_clip_masks import clip_masks
from odc_mlir.transforms.common.masks import argument_of, is_beyond, sources
from odc_mlir.transforms.quant.common.ir import quantized_function
from odc_mlir.transforms.quant.quant_attach_ranges import attach_ranges

LOWEST = float(np.finfo(np.float32).min)
HUGE = [LOWEST, -np.inf, -1e9, -65504.0, -10000.0]
SIZE = 8
TRIANGLE = np.tri(SIZE, dtype=bool)
SHOWN = np.arange(SIZE)[None] < 5

Inputs = Mapping[str, SSAValue]
Form = Callable[["_Net", SSAValue], SSAValue]


class _Net(FloatNet):
    """Scores, and whatever hides some of them."""

    def whole(self, *numbers: int) -> SSAValue:
        return self.const(np.array(numbers, np.int32), "int32")

    def truths(self) -> SSAValue:
        return self.input(SHOWN)

    def lens(self, dtype: str = "float32") -> SSAValue:
        return self.input(SHOWN.astype(dtype))

    def selected(self, number: float = LOWEST) -> SSAValue:
        """0 or ``number``, [1, SIZE]."""
        return self.add("SELECT_V2", self.truths(), self.const(0.0), self.const(number))

    def cast(self, value: SSAValue, dtype: str) -> SSAValue:
        return self.add("CAST", value, in_data_type=dtype, out_data_type="float32")


def _run(module: ModuleOp, inputs: list[Array]) -> Array:
    (result,) = HostExecutor(build_graph(export_model(module))).run(inputs)
    return result


def _causal(count: int = SIZE, number: float = LOWEST) -> Array:
    return np.where(np.tri(count, dtype=bool), np.float32(0), np.float32(number)).astype(np.float32)


@given(
    st.integers(0, 999),
    st.sampled_from(HUGE),
    st.floats(1e-3, 900),
    st.sampled_from([0.5, 1.0, 2.0]),
    st.booleans(),
    st.booleans(),
)
def test_float_results_keep_every_bit(
    seed: int, number: float, size: float, beta: float, select: bool, added: bool
) -> None:
    net = FloatNet(seed)
    scores = net.real(2, 5, 5, low=-size, high=size)
    with np.errstate(all="ignore"):
        if select and added:
            shown = net.input(np.broadcast_to(np.tri(5, dtype=bool), (2, 5, 5)))
            total = net.add("ADD", scores, net.add("SELECT_V2", shown, net.const(0.0), net.const(number)))
        elif select:
            shown = net.input(np.broadcast_to(np.tri(5, dtype=bool), (2, 5, 5)))
            total = net.add("SELECT_V2", shown, scores, net.const(number))
        else:
            total = net.add("ADD", scores, net.const(_causal(5, number)))
        module = net.module(net.add("SOFTMAX", total, beta=beta))
    before = _run(module, net.inputs)
    assert _far(module)
    run_pass(module, "circle-clip-masks")
    assert not _far(module)
    np.testing.assert_array_equal(_run(module, net.inputs), before)


def _far(module: ModuleOp) -> bool:
    """Whether something hides by more than it must."""
    operators = [op for op in module.walk() if isinstance(op, CircleOp)]
    found = [argument for op in operators if (argument := argument_of(op)) is not None]
    assert found
    return any(is_beyond(source) for argument in found for source in sources(*argument))


def _reshaped(net: _Net, s: SSAValue) -> SSAValue:
    return net.add("ADD", s, net.add("RESHAPE", net.selected(), net.whole(1, 1, SIZE), new_shape=None))


def _expanded(net: _Net, s: SSAValue) -> SSAValue:
    return net.add("ADD", s, net.add("EXPAND_DIMS", net.selected(), net.const(1, "int32")))


def _tiled(net: _Net, s: SSAValue) -> SSAValue:
    return net.add("ADD", s, net.add("TILE", net.selected(), net.whole(SIZE, 1)))


def _broadcast(net: _Net, s: SSAValue) -> SSAValue:
    return net.add("ADD", s, net.add("BROADCAST_TO", net.selected(), net.whole(1, SIZE, SIZE)))


def _transposed(net: _Net, s: SSAValue) -> SSAValue:
    column = net.add("RESHAPE", net.truths(), net.whole(SIZE, 1), new_shape=None, dtypes=["bool"])
    mask = net.add("SELECT_V2", column, net.const(0.0), net.const(-1e9))
    return net.add("ADD", net.add("TRANSPOSE", mask, net.whole(1, 0)), s)


def _joined(net: _Net, s: SSAValue) -> SSAValue:
    rest = net.add("SLICE", net.selected(), net.whole(0, 1), net.whole(1, SIZE - 1))
    return net.add("ADD", s, net.add("CONCATENATION", net.const(np.zeros((1, 1))), rest, axis=1))


def _gathered(net: _Net, s: SSAValue) -> SSAValue:
    return net.add("ADD", s, net.add("GATHER", net.const(_causal()), net.input(np.arange(SIZE, dtype=np.int32))))


def _sliced(net: _Net, s: SSAValue) -> SSAValue:
    start = net.input(np.array([3, 3], np.int32))
    return net.add("ADD", s, net.add("SLICE", net.const(_causal(2 * SIZE)), start, net.whole(SIZE, SIZE)))


def _truths_times(net: _Net, s: SSAValue) -> SSAValue:
    hidden = net.cast(net.add("LOGICAL_NOT", net.truths(), dtypes=["bool"]), "bool")
    return net.add("ADD", s, net.add("MUL", hidden, net.const(-1e9)))


def _one_minus(net: _Net, s: SSAValue) -> SSAValue:
    hidden = net.add("SUB", net.const(1.0), net.cast(net.lens("int32"), "int32"))
    return net.add("ADD", s, net.add("MUL", hidden, net.const(LOWEST)))


def _minus_one(net: _Net, s: SSAValue) -> SSAValue:
    hidden = net.add("SUB", net.cast(net.lens("int64"), "int64"), net.const(1.0))
    return net.add("ADD", s, net.add("MUL", hidden, net.const(1e9)))


def _product_minus(net: _Net, s: SSAValue) -> SSAValue:
    shown = net.add("MUL", net.cast(net.truths(), "bool"), net.const(1e9))
    return net.add("ADD", s, net.add("SUB", shown, net.const(1e9)))


def _outer(net: _Net, s: SSAValue) -> SSAValue:
    shown = net.cast(net.truths(), "bool")
    column = net.add("RESHAPE", shown, net.whole(SIZE, 1), new_shape=None)
    hidden = net.add("SUB", net.const(1.0), net.add("MUL", column, shown))
    return net.add("ADD", s, net.add("MUL", hidden, net.const(-1e9)))


def _subtracted(net: _Net, s: SSAValue) -> SSAValue:
    return net.add("SUB", s, net.const(-_causal()))


def _negated(net: _Net, s: SSAValue) -> SSAValue:
    return net.add("ADD", s, net.add("NEG", net.selected(-LOWEST)))


def _twice(net: _Net, s: SSAValue) -> SSAValue:
    return net.add("ADD", net.add("ADD", s, net.const(_causal(number=-1e9))), net.selected(-1e9))


def _sum(net: _Net, s: SSAValue) -> SSAValue:
    return net.add("ADD", s, net.add("ADD", net.const(_causal(number=-1e9)), net.selected(-1e9)))


def _least(net: _Net, s: SSAValue) -> SSAValue:
    return net.add("ADD", s, net.add("MINIMUM", net.const(_causal()), net.selected()))


def _then_reshaped(net: _Net, s: SSAValue) -> SSAValue:
    return net.add("RESHAPE", net.add("ADD", s, net.const(_causal())), net.whole(SIZE, SIZE), new_shape=None)


def _then_scaled(net: _Net, s: SSAValue) -> SSAValue:
    return net.add("MUL", net.add("ADD", s, net.const(_causal(number=-1e9))), net.const(0.25))


def _then_divided(net: _Net, s: SSAValue) -> SSAValue:
    return net.add("DIV", net.add("ADD", s, net.const(_causal(number=-1e9))), net.const(4.0))


def _then_limited(net: _Net, s: SSAValue) -> SSAValue:
    return net.add("MAXIMUM", net.add("ADD", s, net.const(_causal())), net.const(LOWEST))


def _selected_scores(net: _Net, s: SSAValue) -> SSAValue:
    masked = net.add("SELECT_V2", net.truths(), s, net.const(LOWEST))
    return net.add("RESHAPE", masked, net.whole(SIZE, SIZE), new_shape=None)


def _with_bias(net: _Net, s: SSAValue) -> SSAValue:
    bias = net.rng.uniform(-2, 2, (SIZE, SIZE))
    return net.add("ADD", s, net.const(np.where(TRIANGLE, bias, LOWEST)))


FORMS: list[Form] = [
    *(_reshaped, _expanded, _tiled, _broadcast, _transposed, _joined, _gathered, _sliced),
    *(_truths_times, _one_minus, _minus_one, _product_minus, _outer),
    *(_subtracted, _negated, _twice, _sum, _least, _then_reshaped, _then_scaled, _then_divided, _then_limited),
    *(_selected_scores, _with_bias),
]


def _built(form: Form) -> tuple[_Net, ModuleOp]:
    net = _Net(5)
    with np.errstate(all="ignore"):
        queries, keys = (net.real(1, SIZE, 16, low=-2, high=2) for _ in range(2))
        scores = net.add("BATCH_MATMUL", queries, keys, adjoint_rhs=True)
        total = form(net, net.add("MUL", scores, net.const(0.25)))
        return net, net.module(net.add("SOFTMAX", total, beta=1.0))


def _attach_seen(module: ModuleOp, inputs: list[Array]) -> None:
    """The ranges that values of ``module`` have, as it is now."""
    graph, values = build_graph(export_model(module)), dict[str, Any]()
    HostExecutor(graph).run(inputs, watch=lambda i, value: values.update({graph.tensors[i].name: value}))
    values |= {graph.tensors[i].name: value for i, value in zip(graph.inputs, inputs, strict=True)}
    function = quantized_function(module)
    assert function is not None
    reals = {name: value for name, value in values.items() if value.dtype == np.float32}
    attach_ranges(function, {name: (float(value.min()), float(value.max())) for name, value in reals.items()})


@pytest.mark.parametrize("scheme", ["int8", "uint8", "int16x8"])
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_hidden_positions_get_no_attention_in_integers(form: Form, scheme: str) -> None:
    net, module = _built(form)
    expected = _run(module, net.inputs)
    run_pass(module, "circle-clip-masks")
    seen_rows = (expected == 0).any(axis=-1)
    np.testing.assert_array_equal(_run(module, net.inputs)[seen_rows], expected[seen_rows])
    _attach_seen(module, net.inputs)
    (found,) = quantised_results(assign(module, scheme), net.inputs)
    # Reference kernels of 16 bits take the exponential of -10 for everything below, which is two steps of the result.
    assert found[expected == 0].max() <= (2 / 32768 if scheme == "int16x8" else 0)
    assert np.abs(found - expected)[seen_rows].max() < (0.002 if scheme == "int16x8" else 0.05)


def _of_reals(net: _Net, s: SSAValue) -> SSAValue:
    hidden = net.add("SUB", net.const(1.0), net.lens())
    return net.add("ADD", s, net.add("MUL", hidden, net.const(-1e9), name="mask"))


@pytest.mark.parametrize("limited", [False, True])
def test_a_mask_of_reals_erases_scores_unless_it_is_limited(limited: bool) -> None:
    net, module = _built(_of_reals)
    expected = _run(module, net.inputs)
    clip_masks(module, {"mask": (-1e9, 0.0)} if limited else {})
    _attach_seen(module, net.inputs)
    (found,) = quantised_results(assign(module, "int8"), net.inputs)
    assert (np.abs(found - expected).max() < 0.05) == limited


@pytest.mark.parametrize("name", ["mask", "other"])
def test_samples_tell_what_is_a_mask(name: str) -> None:
    net, module = _built(_of_reals)
    before = _run(module, net.inputs)
    clip_masks(module, {name: (-1e9, 0.0)})
    module.verify()
    limits = [op for op in module.walk() if isinstance(op, CircleOp) and op.SPEC.name == "MAXIMUM"]
    assert len(limits) == (name == "mask")
    again = str(module)
    clip_masks(module, {name: (-1e9, 0.0)})
    assert str(module) == again
    np.testing.assert_array_equal(_run(module, net.inputs), before)


def test_large_factors_of_scores_are_no_masks() -> None:
    """The parts of ``(1 - m) * -1e9`` are far beyond what the whole may not exceed."""
    net, module = _built(_of_reals)
    before = str(module)
    run_pass(module, "circle-clip-masks")
    assert str(module) == before
