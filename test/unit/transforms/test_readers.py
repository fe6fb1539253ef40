"""The table of what LiteRT takes: every operator that we quantise for it runs there, with the same numbers as here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

import odc_mlir
from helpers import nodes
from helpers.float_models import squeeze_excite
from helpers.float_nets import FloatNet, assign, operator, run_pass
from helpers.litert import reference
from odc_mlir.errors import OptionError, UnsupportedError
from odc_mlir.formats.circle.writer import write_model, write_tflite
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.ops import all_specs
from odc_mlir.ops.context import Context
from odc_mlir.quantizer.policy.readers import litert_refuses, litert_refuses_form, litert_refuses_node
from odc_mlir.quantizer.policy.schemes import SCHEMES as SCHEME_TYPES
from odc_mlir.runtime.api import open_executor
from odc_mlir.runtime.execution.graph import build_graph
from odc_mlir.transforms.quant.common.ir import REASON, quantized_function
from odc_mlir.transforms.quant.quant_attach_ranges import attach_ranges
from unit.transforms.test_quantised_operators import CASES, NO_KERNEL, Make

SCHEMES = {"int8": "channel", "int8x4": "channel", "uint8": "tensor", "int16x8": "channel"}
# LiteRT's reference kernels leave this out, even on real numbers.
OTHER_KERNELS = {"ELU"}
# It knows version 2 of one only, which the helper's model does not say; the other is Circle's alone.
NOT_RUN = {"BROADCAST_TO", "RMS_NORM"}


def _compare(name: str) -> Make:
    return lambda net: net.add(name, net.real(20, 9, low=-3), net.real(20, 9, high=4))


def _place(name: str) -> Make:
    return lambda net: net.add(name, net.real(20, 9), net.const(1, "int32"), dtypes=["int64"], output_type="int64")


def _mean(net: FloatNet) -> Any:
    return net.add("MEAN", net.real(2, 3), net.const([0, 1], "int32"))


# Operators on codes whose results are no reals, or that codes of others come with.
OTHERS: dict[str, Make] = {
    **{name: _compare(name) for name in ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")},
    **{name: _place(name) for name in ("ARG_MAX", "ARG_MIN")},
    "SELECT": lambda net: net.add(
        "SELECT", net.add("EQUAL", net.real(2, 8), net.real(2, 8)), net.real(2, 8, low=-3), net.real(2, 8)
    ),
    "SPLIT_V": lambda net: net.add(
        "SPLIT_V", net.real(2, 3, 4), net.const([1, 2], "int32"), net.const(1, "int32"), count=2, num_splits=2
    ),
    "REVERSE_SEQUENCE": lambda net: net.add(
        "REVERSE_SEQUENCE", net.real(2, 5, 4), net.const([3, 4], "int32"), seq_dim=1, batch_dim=0
    ),
    "DILATE": lambda net: net.add("DILATE", net.real(2, 5), net.const([2, 2], "int32"), net.const(np.float32(0))),
    "MATRIX_SET_DIAG": lambda net: net.add("MATRIX_SET_DIAG", net.real(2, 3, 3), net.real(2, 3)),
    "FILL": lambda net: net.add("FILL", net.const([2, 3], "int32"), _mean(net)),
    "ONE_HOT": lambda net: net.add(
        "ONE_HOT", net.const([1, 2], "int32"), net.const(4, "int32"), _mean(net), net.const(np.float32(0)), axis=-1
    ),
    "EMBEDDING_LOOKUP": lambda net: net.add("EMBEDDING_LOOKUP", net.const([1, 2], "int32"), net.real(4, 5)),
}
ALL = CASES | OTHERS


@pytest.mark.parametrize("scheme", SCHEMES)
def test_litert_runs_what_is_made_for_it(scheme: str) -> None:
    pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is not installed")
    wrong = {name: seen for name in ALL.keys() - NOT_RUN if (seen := _compared(name, scheme))}
    assert not wrong


def _compared(name: str, scheme: str) -> str:
    """What is wrong with one operator in LiteRT, empty where nothing is."""
    net = FloatNet(len(name))
    made = ALL[name](net)
    module = net.module(*(made if isinstance(made, list) else [made]))
    assign(module, scheme, reader="litert", granularity=SCHEMES[scheme])
    label = next(label for label in net.values if label.startswith(name.lower()))
    real = REASON in operator(module, label).attributes
    per_channel = SCHEMES[scheme] == "channel"
    activations, weights = SCHEME_TYPES[scheme].activations or "", SCHEME_TYPES[scheme].weights
    taken = ("int8", weights) if weights == "int4" else (weights,)
    refused = all(litert_refuses(name, activations, kind, per_channel=per_channel) for kind in taken)
    assert real == (refused or name in NO_KERNEL.get(scheme, ()))
    try:
        off = _off(module, net, "BUILTIN_WITHOUT_DEFAULT_DELEGATES" if name in OTHER_KERNELS else "BUILTIN_REF")
    except (RuntimeError, ValueError) as error:
        return str(error).splitlines()[0]
    return "" if off <= (1e-5 if real else 0.0) else f"differs by {off:g}"


def _off(module: ModuleOp, net: FloatNet, kernels: str = "BUILTIN_REF") -> float:
    """By how much LiteRT's results of an assigned module differ from ours; raises what LiteRT raises."""
    from ai_edge_litert import interpreter as litert

    run_pass(module, "convert-circle-to-quant")
    run_pass(module, "quant-insert-requantize")
    model = export_model(module)
    made = [item.node for item in build_graph(model).nodes]
    assert not any(litert_refuses_node(node) or litert_refuses_form(node) for node in made)
    kind = litert.OpResolverType[kernels]
    theirs: Any = litert.Interpreter(model_content=bytes(write_tflite(model)), experimental_op_resolver_type=kind)
    theirs.allocate_tensors()
    for detail, value in zip(theirs.get_input_details(), net.inputs, strict=True):
        theirs.set_tensor(detail["index"], value)
    theirs.invoke()
    ours = open_executor(bytes(write_model(model)), numerics="litert").run(list(net.inputs))
    found = [theirs.get_tensor(detail["index"]) for detail in theirs.get_output_details()]
    return max(float(np.abs(np.asarray(a, np.float64) - b).max()) for a, b in zip(ours, found, strict=True))


def _nearly_itself(name: str) -> Make:
    def make(net: FloatNet) -> Any:
        x = net.real(3, 8)
        return net.add(name, x, net.add("MUL", x, net.const([1.0 + 1e-6])))

    return make


def _far_below(net: FloatNet) -> Any:
    x = net.real(3, 8, low=1000.0, high=1000.1)
    return net.add("SUB", x, net.add("MEAN", x, net.const([1], "int32"), keep_dims=True))


# Operators whose scales no kernel of LiteRT takes, or that are computed from 16-bit codes as if these had 8.
OUT_OF_REACH: dict[str, tuple[str, Make]] = {
    "difference of near equals": ("int8", _nearly_itself("SUB")),
    "square of next to nothing": ("int8", _nearly_itself("SQUARED_DIFFERENCE")),
    "a small part of a sum": ("int16x8", _far_below),
    "large numbers compared": (
        "int8",
        lambda net: net.add("LESS", net.real(3, 8, low=-1e3, high=1e3), net.real(3, 8, low=-1e3, high=1e3)),
    ),
    "tiny scores": ("int8", lambda net: net.add("SOFTMAX", net.real(3, 8, low=-1e-6, high=1e-6), beta=1.0)),
    "large arguments": ("int16x8", lambda net: net.add("TANH", net.real(3, 8, low=-1e6, high=1e6))),
    "computed filters": (
        "int16x8",
        lambda net: net.add(
            "CONV_2D",
            net.real(1, 5, 5, 2),
            net.real(3, 2, 2, 2),
            net.weights(3),
            padding="same",
            stride_h=1,
            stride_w=1,
        ),
    ),
}


@pytest.mark.parametrize("case", OUT_OF_REACH)
def test_what_is_out_of_reach_stays_real(case: str) -> None:
    """LiteRT would abort, or compute other numbers."""
    pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is not installed")
    scheme, make = OUT_OF_REACH[case]
    net = FloatNet(len(case))
    last = make(net)
    module = net.module(last)
    assign(module, scheme, reader="litert", granularity=SCHEMES[scheme])
    assert "LiteRT has no kernel for" in str(operator(module, net.name(last)).attributes[REASON])
    assert _off(module, net) <= 1e-5 * float(np.abs(net.array(last)).max() or 1)


def _biased(net: FloatNet) -> Any:
    """LiteRT reads the bias as if its codes had 32 bits."""
    return net.add("FULLY_CONNECTED", net.real(3, 8), net.real(5, 8), net.const(np.linspace(-3, 3, 5)))


def _little_left(net: FloatNet) -> Any:
    """The result is next to nothing beside the terms of its sum."""
    x, weights, bias = (
        net.real(3, 8, low=1.0, high=1.0 + 1e-5),
        net.const(-np.ones((5, 8))),
        net.const(np.full(5, 8.0001)),
    )
    return net.add("FULLY_CONNECTED", x, weights, bias, fused_activation_function="relu")


OUT_OF_REACH |= {
    "bias of computed weights": ("int16x8", _biased),
    "sums far beyond 8 bits": ("int8", _little_left),
    "sums far beyond 16 bits": ("int16x8", _little_left),
}


# Operator, element type, scales of operands and of the result, options; which LiteRT takes, and a bit further not.
LIMITS: list[tuple[str, str, tuple[float, ...], float, dict[str, Any], bool]] = [
    *((name, "int8", (1.0, 0.3), 1.01 * 2.0**-19, {}, True) for name in ("ADD", "SUB")),
    *((name, "int8", (1.0, 0.3), 2.0**-19, {}, False) for name in ("ADD", "SUB")),
    *((name, "int16", (0.9, 0.3), 0.91 * 2.0**-14, {}, True) for name in ("ADD", "SUB")),
    *((name, "int16", (0.9, 0.3), 0.89 * 2.0**-14, {}, False) for name in ("ADD", "SUB")),
    ("ADD", "int8", (0.01, 3e32), 3e32, {}, True),
    ("ADD", "int8", (0.01, 4e32), 4e32, {}, False),
    ("SQUARED_DIFFERENCE", "int8", (1.0, 1.0), 1.01 * 2.0**-12, {}, True),
    ("SQUARED_DIFFERENCE", "int8", (1.0, 1.0), 2.0**-12, {}, False),
    ("SOFTMAX", "int8", (1.01 * 2.0**-26,), 1 / 256, {"beta": 1.0}, True),
    ("SOFTMAX", "int8", (2.0**-26,), 1 / 256, {"beta": 1.0}, False),
    ("SOFTMAX", "int8", (1.01 * 2.0**-26,), 1 / 256, {"beta": 0.5}, False),
    ("LOG_SOFTMAX", "int8", (1.01 * 2.0**-26,), 1 / 16, {}, True),
    ("LOG_SOFTMAX", "int8", (2.0**-26,), 1 / 16, {}, False),
    ("RELU6", "int8", (2.8e-9,), 2.8e-9, {}, True),
    ("RELU6", "int8", (2.7e-9,), 2.7e-9, {}, False),
    ("ADD", "int8", (2.7e-9, 2.7e-9), 2.7e-9, {"fused_activation_function": "relu6"}, False),
]
# The same of products of [3, 64] and [4, 64], which are as large as can be.
PRODUCTS: list[tuple[str, str, str, float, bool]] = [
    ("FULLY_CONNECTED", "int8", "int8", 1.01 / 4, True),
    ("FULLY_CONNECTED", "int8", "int8", 1 / 4, False),
    ("FULLY_CONNECTED", "int16", "int8", 1.01 / 32, True),
    ("FULLY_CONNECTED", "int16", "int8", 1 / 32, False),
    ("FULLY_CONNECTED", "int16", "int16", 257 / 32, True),
    ("FULLY_CONNECTED", "int16", "int16", 8.0, False),
    ("BATCH_MATMUL", "int16", "int16", 1.01 / 65536, True),
    ("BATCH_MATMUL", "int16", "int16", 1 / 65536, False),
]


@pytest.mark.parametrize(("name", "dtype", "weights", "scale", "fits"), PRODUCTS)
def test_how_large_sums_litert_takes(name: str, dtype: str, weights: str, scale: float, fits: bool) -> None:
    left, right = nodes.tensor(dtype, (3, 64), nodes.quant(0.5)), nodes.tensor(weights, (4, 64), nodes.quant(0.5))
    connected = name == "FULLY_CONNECTED"
    options = {} if connected else {"adjoint_rhs": True}
    result = nodes.tensor(dtype, (3, 4), nodes.quant(scale))
    made = nodes.node(name, [left, right, None] if connected else [left, right], result, **options)
    assert (litert_refuses_node(made) is None) == fits
    if fits:
        rng = np.random.default_rng(5)
        codes = [np.iinfo(kind).max - rng.integers(0, 9, shape).astype(kind)
                 for kind, shape in ((dtype, (3, 64)), (weights, (4, 64)))]  # fmt: skip
        codes[0][1], codes[0][2] = -codes[0][1], 1
        found = reference(made, *codes, version=7 if connected else 3)
        made.context = Context(numerics="litert")
        np.testing.assert_array_equal(nodes.run(made, *codes), found)


_FIXED_ZEROS = {"SOFTMAX": -128, "LOG_SOFTMAX": 127}


@pytest.mark.parametrize(("name", "dtype", "scales", "scale", "options", "fits"), LIMITS)
def test_how_far_litert_reaches(
    name: str, dtype: str, scales: tuple[float, ...], scale: float, options: dict[str, Any], fits: bool
) -> None:
    shape = (4, 16)
    operands = [nodes.tensor(dtype, shape, nodes.quant(item)) for item in scales]
    result = nodes.tensor(dtype, shape, nodes.quant(scale, _FIXED_ZEROS.get(name, 0)))
    made = nodes.node(name, operands, result, **options)
    assert (litert_refuses_node(made) is None) == fits
    if fits:  # where it does not fit, LiteRT may abort
        rng, info = np.random.default_rng(2), np.iinfo(dtype)
        codes = [rng.integers(info.min, info.max + 1, shape).astype(dtype) for _ in scales]
        np.testing.assert_array_equal(nodes.run(made, *codes), reference(made, *codes))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_how_large_numbers_litert_compares(dtype: str) -> None:
    for scale, fits in ((0.999, True), (1.0, False)):
        operands = [nodes.tensor(dtype, (4, 16), nodes.quant(item)) for item in (scale, 0.5)]
        made = nodes.node("EQUAL", operands, nodes.tensor("bool", (4, 16)))
        assert (litert_refuses_node(made) is None) == fits
        if fits:
            codes = [np.arange(64, dtype=dtype).reshape(4, 16), np.arange(0, 128, 2, dtype=dtype).reshape(4, 16)]
            np.testing.assert_array_equal(nodes.run(made, *codes), reference(made, *codes))


@pytest.mark.parametrize("scheme", ["int8", "uint8"])
def test_divisions_stay_real(scheme: str) -> None:
    """LiteRT shifts quotients near 0 by more bits than their type has, which gives anything."""
    pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is not installed")
    net = FloatNet(9)
    made = net.add("DIV", net.input(np.linspace(-1, 1, 255, dtype=np.float32)), net.const(np.float32(9)))
    module = net.module(made)
    assign(module, scheme, reader="litert", granularity=SCHEMES[scheme])
    assert "other numbers of codes" in str(operator(module, net.name(made)).attributes[REASON])
    assert _off(module, net) <= 1e-6


@pytest.mark.parametrize("name", ["LOGISTIC", "TANH"])
def test_how_large_arguments_litert_takes(name: str) -> None:
    for scale, fits in ((0.999, True), (1.0, False)):
        made = nodes.node(
            name, [nodes.tensor("int16", (2,), nodes.quant(scale))], nodes.tensor("int16", (2,), nodes.quant(2.0**-15))
        )
        assert (litert_refuses_node(made) is None) == fits
        if fits:
            codes = np.array([-32768, 32767], np.int16)
            np.testing.assert_array_equal(nodes.run(made, codes), reference(made, codes))


@pytest.mark.parametrize("name", ["ADD", "SUB"])
@pytest.mark.parametrize("ranges", [(1.0, 0.5, 1.0), (0.25, 0.25, 1.0), (0.5, 0.25, 1.0), (2.0, 1.0, 1.0)])
def test_sums_of_ranges_that_are_powers_of_two(name: str, ranges: tuple[float, float, float]) -> None:
    """LiteRT shifts one operand, and takes that for all that could be done."""
    pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is not installed")
    net = FloatNet(6)
    left, right, most = ranges
    operands = [net.input(np.linspace(-reach, reach, 24, dtype=np.float32)) for reach in (left, right)]
    total = net.add(name, *operands)
    module = net.module(total)
    function = quantized_function(module)
    assert function is not None
    attach_ranges(function, {net.name(total): (-most, most), "in0": (-left, left), "in1": (-right, right)})
    assign(module, "int16x8", reader="litert")
    assert REASON not in operator(module, net.name(total)).attributes
    assert _off(module, net) == 0


@pytest.mark.parametrize("name", ["CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"])
@pytest.mark.parametrize("scheme", [*SCHEMES, "float"])
def test_a_bias_may_be_left_out(name: str, scheme: str) -> None:
    pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is not installed")
    net = FloatNet(4)
    options = {"padding": "same", "stride_h": 1, "stride_w": 1}
    if name == "TRANSPOSE_CONV":
        x, filters = net.const([1, 5, 5, 3], "int32"), net.weights(3, 2, 2, 3)
        made = net.add(name, x, filters, net.real(1, 5, 5, 3), None, **options)
    elif name == "CONV_2D":
        made = net.add(name, net.real(1, 5, 5, 3), net.weights(4, 2, 2, 3), None, **options)
    else:
        made = net.add(name, net.real(1, 5, 5, 3), net.weights(1, 2, 2, 3), None, depth_multiplier=1, **options)
    module = net.module(made)
    if scheme == "float":
        assert _off(module, net) < 1e-5
    else:
        assign(module, scheme, reader="litert", granularity=SCHEMES[scheme])
        assert REASON not in operator(module, net.name(made)).attributes
        assert _off(module, net) == 0


FORMS: dict[str, tuple[str, Make]] = {
    "ATAN2": ("operands of different shapes", lambda net: net.add("ATAN2", net.real(2, 3), net.real(3))),
    "FILL": ("no scalars", lambda net: net.add("FILL", net.const([2, 3], "int32"), net.real(1))),
}


@pytest.mark.parametrize("name", FORMS)
def test_forms_that_litert_lacks_are_refused_by_name(name: str) -> None:
    said, make = FORMS[name]
    net = FloatNet(2)
    module = net.module(make(net))
    made = odc_mlir.quantize(module, scheme="int8", calibration=[net.inputs] * 2, help=False, reader="litert")
    with pytest.raises(UnsupportedError, match=rf"{said}.*{name}.*write a .circle file"):
        made.to_tflite()


def test_what_litert_refuses_is_refused_by_name() -> None:
    module, samples = squeeze_excite()
    made = odc_mlir.quantize(module, scheme="uint8", calibration=samples, help=False)
    with pytest.raises(UnsupportedError, match=r"LiteRT has uint8 weights with one scale only.*CONV_2D"):
        made.to_tflite()
    fitting = odc_mlir.quantize(module, scheme="uint8", calibration=samples, help=False, reader="litert")
    assert fitting.verdict["choices"]["granularity"] == "tensor"
    fitting.to_tflite()


def test_weights_of_sixteen_bits_are_for_circle_files() -> None:
    module, _ = squeeze_excite()
    odc_mlir.quantize(module, scheme="int8_wo").to_tflite()
    with pytest.raises(UnsupportedError, match=r"weights of int16.*DEQUANTIZE"):
        odc_mlir.quantize(module, scheme="int16_wo").to_tflite()
    with pytest.raises(OptionError, match=r"int16_wo: LiteRT has no kernel for weights of int16"):
        odc_mlir.quantize(module, scheme="int16_wo", reader="litert")


@pytest.mark.parametrize("name", ["ARG_MAX", "ARG_MIN", "LESS", "ONE_HOT"])
def test_what_has_no_kernel_of_sixteen_bits_stays_real(name: str) -> None:
    net = FloatNet(3)
    module = net.module(OTHERS[name](net))
    assign(module, "int16x8", reader="litert")
    label = next(label for label in net.values if label.startswith(name.lower()))
    assert "LiteRT has" in str(operator(module, label).attributes[REASON])


PAGE = Path(__file__).parents[3] / "docs" / "quantisation.md"
TYPES = {"`int8`, `int8x4`": "int8", "`uint8`": "uint8", "`int16x8`": "int16"}


def _documented() -> dict[str, set[str]]:
    """Operators by the first cell of each row of the page's table; what is said beside lists of names is left out."""
    header = "| scheme | operators that stay float in `.tflite` files |\n"
    table = PAGE.read_text("utf-8").split(header)[1].split("\n\n")[0]
    found = {}
    for row in table.splitlines()[1:]:
        scheme, text = (cell.strip() for cell in row.strip("|").split("|"))
        lists = (re.sub(r" \([^)]*\)", "", part).strip().split(", ") for part in re.split(r"[;.] ", text))
        found[scheme] = {name for names in lists if all(map(str.isupper, names)) for name in names}
    return found


def test_the_page_names_the_operators_of_the_table() -> None:
    refused = {kind: {name for name in all_specs() if litert_refuses(name, kind)} for kind in TYPES.values()}
    in_all = set.intersection(*refused.values())
    documented = _documented()
    shared = documented["all"]
    assert shared <= in_all
    assert {scheme: documented[scheme] | shared for scheme in TYPES} == {
        scheme: refused[kind] for scheme, kind in TYPES.items()
    }
