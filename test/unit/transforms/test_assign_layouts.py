"""Orders of dimensions: as few TRANSPOSEs as an exhaustive search finds, and the same results."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.func import FuncOp

import odc_mlir
from odc_mlir.dialects.circle import CircleOp
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.export_circle import export_with_operators
from odc_mlir.transforms.circle.circle_assign_layouts import CircleAssignLayoutsPass
from odc_mlir.transforms.circle.rewrites.layout import (
    ONE_TRANSPOSE,
    CostTable,
    LayoutGraph,
    blocks,
    cheapest,
    through_reshape,
)
from odc_mlir.universe import make_context


class _Text:
    """Random functions over tensors of three and four dimensions, as text."""

    def __init__(self, choose) -> None:
        self.choose = choose
        self.lines: list[str] = []
        self.values = [("%x", (1, 2, 3, 4)), ("%y", (1, 2, 3, 4))]

    def pick(self) -> tuple[str, tuple[int, ...]]:
        return self.values[self.choose(0, len(self.values) - 1)]

    def constant(self, numbers, type) -> str:
        name = f"%c{len(self.lines)}"
        self.lines.append(f"{name} = circle.const {list(numbers)} : tensor<{type}>")
        return name

    def add(self, mnemonic: str, operands, shape, options: str = "") -> None:
        def written(extents) -> str:
            return "x".join(map(str, (*extents, "f32")))

        name = f"%v{len(self.lines)}"
        names = ", ".join(operand for operand, _ in operands)
        types = ", ".join(f"tensor<{t if isinstance(t, str) else written(t)}>" for _, t in operands)
        self.lines.append(f"{name} = circle.{mnemonic}({names}) {options} : ({types}) -> tensor<{written(shape)}>")
        self.values.append((name, tuple(shape)))

    def step(self) -> None:
        value, shape = self.pick()
        kind = self.choose(0, 8)
        rank = len(shape)
        if kind <= 2:
            order = (
                ((0, 2, 3, 1), (0, 3, 1, 2), (0, 1, 3, 2), (2, 0, 3, 1))[self.choose(0, 3)] if rank == 4 else (0, 2, 1)
            )
            perm = self.constant(order, f"{rank}xi32")
            self.add("transpose", [(value, shape), (perm, f"{rank}xi32")], [shape[d] for d in order])
        elif kind == 3:
            same = [item for item in self.values if item[1] == shape]
            self.add("add", [(value, shape), same[self.choose(0, len(same) - 1)]], shape)
        elif kind == 4:
            self.add("relu", [(value, shape)], shape)
        elif kind == 5 and rank == 4:
            self.add("max_pool_2d", [(value, shape)], shape, "{padding = same, stride = [1, 1], filter = [2, 3]}")
        elif kind == 6:
            axis = self.choose(0, rank - 1)
            joined = [extent * (1 + (place == axis)) for place, extent in enumerate(shape)]
            self.add("concatenation", [(value, shape), (value, shape)], joined, f"{{axis = {axis}}}")
        elif kind == 7 and rank == 4:
            merged = (shape[0], shape[1] * shape[2], shape[3])
            wanted = self.constant(merged, "3xi32")
            self.add("reshape", [(value, shape), (wanted, "3xi32")], merged, f"{{new_shape = {list(merged)}}}")
        elif kind == 8:
            numbers = [0.5 + k for k in range(shape[-1])]
            factor = self.constant(numbers, f"{shape[-1]}xf32")
            self.add("mul", [(value, shape), (factor, f"{shape[-1]}xf32")], shape)

    def module(self):
        used = " ".join(line.split("=", 1)[1] for line in self.lines)
        ends = [item for item in self.values[2:] if f"{item[0]}," not in used and f"{item[0]})" not in used]
        ends = ends or [self.values[0]]
        types = ", ".join("tensor<" + "x".join(map(str, (*shape, "f32"))) + ">" for _, shape in ends)
        body = "\n".join(self.lines)
        returned = ", ".join(name for name, _ in ends)
        text = (
            f"func.func @main(%x: tensor<1x2x3x4xf32>, %y: tensor<1x2x3x4xf32>) -> ({types}) {{\n{body}\n"
            f"func.return {returned} : {types}\n}}"
        )
        return odc_mlir.load(text.encode())


def _transposes(module) -> int:
    return sum(isinstance(op, CircleOp) and op.SPEC.name == "TRANSPOSE" for op in module.walk())


def _run(module, inputs):
    return odc_mlir.run(bytes(write_model(export_with_operators(module)[0])), inputs)


def _total(graph, chosen):
    """The cost of all tensors for these choices."""
    return sum(
        edge.cost(edge.given(chosen.get(edge.source, 0)), order)
        for edge in graph.edges.values()
        for order in {edge.wanted(use, chosen.get(use.node, 0)) for use in edge.uses}
    )


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_no_order_is_better_and_results_stay(data):
    text = _Text(lambda low, high: data.draw(st.integers(low, high)))
    for _ in range(data.draw(st.integers(2, 9))):
        text.step()
    module = text.module()
    before = module.clone()
    (function,) = (op for op in module.body.block.ops if isinstance(op, FuncOp))
    graph = LayoutGraph(function)
    found = _total(graph, graph.solve())

    free = [node for node in graph.nodes if len(node.choices) > 1]
    if np.prod([len(node.choices) for node in free], dtype=np.float64) <= 3000:
        every = product(*(range(len(node.choices)) for node in free))
        assert found == min(_total(graph, dict(zip(free, chosen, strict=True))) for chosen in every)

    CircleAssignLayoutsPass().apply(make_context(), module)
    module.verify()
    assert _transposes(module) == found // ONE_TRANSPOSE <= _transposes(before)
    rng = np.random.default_rng(7)
    inputs = [rng.normal(size=(1, 2, 3, 4)).astype(np.float32) for _ in range(2)]
    for old, new in zip(_run(before, inputs), _run(module, inputs), strict=True):
        np.testing.assert_array_equal(old, new)


@given(st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_elimination_finds_the_minimum(seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 4, size=rng.integers(1, 7)).tolist()
    factors = []
    for _ in range(rng.integers(1, 10)):
        places = rng.permutation(len(sizes))[: rng.integers(1, 4)].tolist()
        factors.append(CostTable(tuple(places), rng.integers(0, 50, size=[sizes[p] for p in places])))

    def cost(chosen):
        return sum(int(f.table[tuple(chosen[v] for v in f.variables)]) for f in factors)

    assert cost(cheapest(sizes, factors)) == min(cost(chosen) for chosen in product(*map(range, sizes)))


def test_a_table_too_large_is_cut_by_fixing_a_variable(monkeypatch):
    monkeypatch.setattr("odc_mlir.transforms.circle.rewrites.layout.LARGEST_TABLE", 8)
    pairs = [(a, b) for a in range(8) for b in range(a)]
    factors = [CostTable(pair, np.array([[0, 1], [1, 0]])) for pair in pairs]
    assert len(set(cheapest([2] * 8, factors))) == 1


@pytest.mark.parametrize(
    ("before", "after", "order", "behind"),
    [
        ((1, 4, 6), (1, 4, 2, 3), (0, 2, 1), (0, 2, 3, 1)),
        ((1, 4, 2, 3), (1, 4, 6), (0, 2, 3, 1), (0, 2, 1)),
        ((1, 4, 2, 3), (1, 4, 6), (0, 3, 2, 1), None),  # the order inside a group is turned round
        ((1, 4, 2, 3), (1, 4, 6), (2, 1, 3, 0), None),  # a group is taken apart
        ((2, 1, 3), (2, 3), (2, 1, 0), (1, 0)),
    ],
)
def test_orders_through_reshape(before, after, order, behind):
    assert through_reshape(order, blocks(before, after), 0) == behind


def test_images_at_the_interface_may_be_stored_channels_last():
    text = """
    func.func @main(%x: tensor<1x2x4x3xf32>) -> tensor<1x2x4x3xf32> {
      %q = circle.const [0, 2, 3, 1] : tensor<4xi32>
      %p = circle.const [0, 3, 1, 2] : tensor<4xi32>
      %0 = circle.transpose(%x, %q) : (tensor<1x2x4x3xf32>, tensor<4xi32>) -> tensor<1x4x3x2xf32>
      %1 = circle.max_pool_2d(%0) {filter = [2, 2], padding = same, stride = [1, 1]} :
        (tensor<1x4x3x2xf32>) -> tensor<1x4x3x2xf32>
      %2 = circle.transpose(%1, %p) : (tensor<1x4x3x2xf32>, tensor<4xi32>) -> tensor<1x2x4x3xf32>
      func.return %2 : tensor<1x2x4x3xf32>
    }
    """
    kept, free = odc_mlir.load(text.encode()), odc_mlir.load(text.encode())
    CircleAssignLayoutsPass().apply(make_context(), kept)
    CircleAssignLayoutsPass("nhwc").apply(make_context(), free)
    free.verify()
    assert (_transposes(kept), _transposes(free)) == (2, 0)
    image = np.random.default_rng(1).normal(size=(1, 2, 4, 3)).astype(np.float32)
    (want,), (got,) = _run(kept, [image]), _run(free, [image.transpose(0, 2, 3, 1)])
    np.testing.assert_array_equal(want.transpose(0, 2, 3, 1), got)


@pytest.mark.parametrize("keep", [False, True])
def test_reductions_keep_or_remove_dimensions_in_any_order(keep):
    """The mean over height and width of a tensor that is transposed before, and after if it has all dimensions."""
    mean, kept = ("1x1x1x2xf32", "true") if keep else ("1x2xf32", "false")
    back = "%z = circle.transpose(%m, %q) : (tensor<1x1x1x2xf32>, tensor<4xi32>) -> tensor<1x2x1x1xf32>" if keep else ""
    name, result = ("%z", "1x2x1x1xf32") if keep else ("%m", mean)
    text = f"""func.func @main(%x: tensor<1x2x3x4xf32>) -> tensor<{result}> {{
      %p = circle.const [0, 2, 3, 1] : tensor<4xi32>
      %q = circle.const [0, 3, 1, 2] : tensor<4xi32>
      %a = circle.const [1, 2] : tensor<2xi32>
      %t = circle.transpose(%x, %p) : (tensor<1x2x3x4xf32>, tensor<4xi32>) -> tensor<1x3x4x2xf32>
      %m = circle.mean(%t, %a) {{keep_dims = {kept}}} : (tensor<1x3x4x2xf32>, tensor<2xi32>) -> tensor<{mean}>
      {back}
      func.return {name} : tensor<{result}>
    }}"""
    module = odc_mlir.load(text.encode())
    before = module.clone()
    CircleAssignLayoutsPass().apply(make_context(), module)
    module.verify()
    assert _transposes(module) == 0
    inputs = [np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)]
    np.testing.assert_allclose(_run(module, inputs)[0], _run(before, inputs)[0], rtol=1e-6)
