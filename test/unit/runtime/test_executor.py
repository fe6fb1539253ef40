"""The host executor: values, shapes, memory, state and errors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from helpers import kernels
from helpers.kernels import chain, spec, zeros
from helpers.models import ModelBuilder, add_model
from odc_mlir.errors import AllocationError, InputError, ModelError, OptionError
from odc_mlir.ops.spec import Array, Execute, Node, TensorInfo
from odc_mlir.runtime.execution import executor as executor_module
from odc_mlir.runtime.execution.executor import MAX_BYTES_VARIABLE, HostExecutor
from odc_mlir.runtime.execution.graph import Graph, GraphNode, build_graph
from odc_mlir.runtime.execution.units import Event, Frame, OperatorUnit, SpecializedGraph


def _values(*numbers: float) -> np.ndarray:
    return np.array([numbers], np.float32)


def test_runs_in_order_and_again() -> None:
    executor = HostExecutor(build_graph(add_model()))
    for _ in range(2):
        (out,) = executor.run([_values(1, 2, 3, 4), _values(10, 20, 30, 40)])
        np.testing.assert_array_equal(out, _values(12, 24, 36, 48))
        assert out.dtype == np.float32


def test_inputs_are_neither_changed_nor_returned() -> None:
    given = zeros(2)
    (out,) = HostExecutor(chain("identity")).run([given])
    out[0] = 5
    assert given[0] == 0
    with pytest.raises(ModelError, match="cannot run this operator: ValueError"):
        HostExecutor(chain("writes_to_its_operand")).run([given])
    assert given[0] == 0


def test_constant_outputs_belong_to_the_caller() -> None:
    builder = ModelBuilder()
    x = builder.tensor("x", (1,))
    w = builder.tensor("w", (1,), data=np.ones(1, np.float32))
    executor = HostExecutor(build_graph(builder.finish([x], [w, x])))
    constant, passed = executor.run([zeros(1)])
    constant[0] = passed[0] = 7
    np.testing.assert_array_equal(executor.run([zeros(1)])[0], [1])


def test_intermediates_are_freed_after_their_last_use() -> None:
    seen: list[set[int]] = []

    class Watching(OperatorUnit):
        def prepare(self, shaped: SpecializedGraph) -> None:
            super().prepare(shaped)

        def run(self, frame: Frame) -> None:
            seen.append(set(frame.values))
            super().run(frame)

    graph = chain("identity", "identity", "identity")
    executor = executor_module.Executor(graph, [Watching(i, (i,), (i + 1,)) for i in range(3)])
    executor.run([zeros(2)])
    assert seen == [{0}, {1}, {2}]


def test_dynamic_dimensions_take_any_size() -> None:
    executor = HostExecutor(build_graph(add_model((1, 4), signature=(-1, 4))))
    for batch in (1, 3, 2):
        ones = np.ones((batch, 4), np.float32)
        (out,) = executor.run([ones, ones])
        np.testing.assert_array_equal(out, 3 * ones)


def test_static_dimensions_do_not_unless_asked() -> None:
    graph = build_graph(add_model((1, 4)))
    wide = np.ones((1, 5), np.float32)
    with pytest.raises(InputError, match=r"input 0 must be float32\[1, 4\], not float32\[1, 5\] \(tensor 'a'\)"):
        HostExecutor(graph).run([wide, wide])
    assert HostExecutor(graph, resize=True).run([wide, wide])[0].shape == (1, 5)


def test_shapes_are_inferred_again_for_other_inputs() -> None:
    executor = HostExecutor(build_graph(add_model((1, 4), signature=(-1, 4))))
    assert executor.prepare([(7, 4), (1, 4)]).tensors[3].shape == (7, 4)
    with pytest.raises(ModelError, match=r"op ADD, tensor 'sum'"):
        executor.prepare([(7, 4), (6, 4)])


def test_an_operator_that_contradicts_its_declaration() -> None:
    with pytest.raises(ModelError, match=r"declared as float32, the operator gives int64 \(op TEST, tensor 't1'\)"):
        HostExecutor(chain("identity", infer="wrong_dtype")).run([zeros(2)])


def test_unknown_shapes_run() -> None:
    (out,) = HostExecutor(chain("identity", "identity", infer="unknown_shape")).run([zeros(2)])
    assert out.shape == (2,)


@pytest.mark.parametrize(
    ("kernel", "error", "text"),
    [
        ("raises", ModelError, "cannot run this operator: ZeroDivisionError: not funny"),
        ("raises_when_prepared", ModelError, "cannot prepare this operator: KeyError: 'missing'"),
        ("runs_out_of_memory", AllocationError, "not enough memory to run this operator"),
    ],
)
def test_foreign_exceptions_name_the_operator(kernel: str, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as raised:
        HostExecutor(chain("identity", kernel)).run([zeros(2)])
    assert str(raised.value) == f"{text} (op TEST, tensor 't2')"


def test_memory_limit_at_and_past_the_limit() -> None:
    # Two float tensors of 8 bytes live at a time: each result with its operand.
    graph = chain("identity", "identity", "identity")
    HostExecutor(graph, max_bytes=16).run([zeros(2)])
    with pytest.raises(AllocationError, match=r"need 16 bytes .* limit of 15 \(tensor 't1'\); raise max_bytes"):
        HostExecutor(graph, max_bytes=15).run([zeros(2)])


def test_memory_limit_is_checked_before_anything_is_allocated() -> None:
    executor = HostExecutor(build_graph(add_model((1, 4), signature=(-1, 4))))
    with pytest.raises(AllocationError, match="more than the limit"):
        executor.prepare([(1 << 26, 4), (1, 4)])


def test_memory_limit_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MAX_BYTES_VARIABLE, "15")
    with pytest.raises(AllocationError):
        HostExecutor(chain("identity")).run([zeros(2)])
    monkeypatch.setenv(MAX_BYTES_VARIABLE, "2 apples")
    with pytest.raises(OptionError, match="'2 apples', expected a number of bytes"):
        HostExecutor(chain("identity"))


def test_variables_start_at_zero_and_last_until_reset() -> None:
    tensors = (
        TensorInfo("x", "float32", (1,)),
        TensorInfo("state", "float32", (1,), is_variable=True),
        TensorInfo("y", "float32", (1,)),
    )
    node = Node(spec("counts_in_its_variable", operands=2, mutated=(1,)), tensors[:2], tensors[2:], name="y")
    graph = Graph("state", 0, tensors, (GraphNode(0, node, (0, 1), (2,)),), (0,), (2,))
    executor = HostExecutor(graph)
    one = np.ones(1, np.float32)
    outputs = [executor.run([one])[0] for _ in range(3)]
    assert [float(out[0]) for out in outputs] == [1, 2, 3]
    executor.reset()
    assert executor.run([one])[0][0] == 1


def test_constants_that_an_operator_may_write_are_not_copied_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators have weights where another form of theirs has state; a kernel that writes them makes its own copy."""
    seen: list[bool] = []

    def looking(node: Node) -> Execute:
        def execute(operands: Sequence[Array | None]) -> list[Array]:
            seen.append(operands[1] is None)
            return [node.const(1)]

        return execute

    monkeypatch.setattr(kernels, "identity", looking)
    tensors = (
        TensorInfo("x", "float32", (1,)),
        TensorInfo("w", "float32", (1,), data=memoryview(np.ones(1, np.float32)).cast("B")),
        TensorInfo("y", "float32", (1,)),
    )
    node = Node(spec("identity", operands=2, mutated=(1,)), tensors[:2], tensors[2:], name="y")
    graph = Graph("weights", 0, tensors, (GraphNode(0, node, (0, 1), (2,)),), (0,), (2,))
    assert HostExecutor(graph).run([zeros(1)])[0].tolist() == [1]
    assert seen == [True]


def test_variables_count_towards_the_memory_limit() -> None:
    tensors = (TensorInfo("x", "float32", (1,)), TensorInfo("state", "float32", (1 << 40,), is_variable=True))
    with pytest.raises(AllocationError, match="the variables need 4398046511104 bytes"):
        HostExecutor(Graph("state", 0, tensors, (), (0,), (0,)))


def test_observer_sees_every_operator() -> None:
    events: list[Event] = []
    HostExecutor(build_graph(add_model())).run([zeros(1, 4), zeros(1, 4)], observe=events.append)
    assert [(event.name, event.op, event.kind) for event in events] == [("sum", "ADD", "host"), ("out", "ADD", "host")]
    assert all(event.seconds >= 0 for event in events)


def test_few_shapes_are_kept() -> None:
    executor = HostExecutor(build_graph(add_model((1, 4), signature=(-1, 4))))
    first = executor.prepare([(1, 4), (1, 4)])
    for batch in range(2, 5):
        executor.prepare([(batch, 4), (1, 4)])
    assert executor.prepare([(1, 4), (1, 4)]) is first
    for batch in range(10, 14):
        executor.prepare([(batch, 4), (1, 4)])
    assert executor.prepare([(1, 4), (1, 4)]) is not first
