"""Control flow: IF, WHILE, CALL, CALL_ONCE, RUN_MODEL.

``node.subgraphs`` holds the executor's functions that run subgraphs, by subgraph index. A subgraph accepts arrays of
any shape, so the state of a loop may grow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from odc_mlir.ops.control import RUN_MODEL_CALLEE
from odc_mlir.ops.infer.common import option
from odc_mlir.ops.spec import Array, Execute, Node
from odc_mlir.runtime.kernels.common import fetch, single, unsupported


def if_(node: Node) -> Execute:
    """Run one of two subgraphs on the arguments."""
    condition_of, arguments_of = fetch(node, 0), _arguments(node, first=1)
    branches = {True: _callee(node, "then_subgraph_index"), False: _callee(node, "else_subgraph_index")}

    def execute(operands: Sequence[Array | None]) -> Sequence[Array]:
        condition = single(node, condition_of(operands), "the condition")
        return branches[bool(condition)](arguments_of(operands))

    return execute


def while_(node: Node) -> Execute:
    """Run the body until the condition is false. Raises ModelError after too many iterations."""
    condition, body = _callee(node, "cond_subgraph_index"), _callee(node, "body_subgraph_index")
    first_state, limit = _arguments(node), node.context.max_iterations

    def execute(operands: Sequence[Array | None]) -> Sequence[Array]:
        state: Sequence[Array] = first_state(operands)
        for _ in range(limit):
            (more,) = condition(state)
            if not single(node, more, "the condition's result"):
                return state
            state = body(state)
        raise node.error(
            f"the loop has not ended after {limit} iterations", hint="raise max_iterations if the loop is correct"
        )

    return execute


def call(node: Node) -> Execute:
    """Run a subgraph on the arguments."""
    return _passing_on(node, _callee(node, "subgraph"))


def call_once(node: Node) -> Execute:
    """Run a subgraph once per state. There are no results."""
    callee, key = _callee(node, "init_subgraph_index"), ("call_once", option(node, "init_subgraph_index"))

    def execute(operands: Sequence[Array | None]) -> Sequence[Array]:
        done: list[bool] = node.context.state.resource(key, list)
        if not done:
            callee(())
            done.append(True)
        return ()

    return execute


def run_model(node: Node) -> Execute:
    """Run another model on the arguments."""
    if RUN_MODEL_CALLEE not in node.subgraphs:
        raise unsupported(node, f"the model {option(node, 'location')!r} was not linked")
    return _passing_on(node, node.subgraphs[RUN_MODEL_CALLEE])


def _passing_on(node: Node, callee: Execute) -> Execute:
    arguments_of = _arguments(node)
    return lambda operands: callee(arguments_of(operands))


def _callee(node: Node, field: str) -> Execute:
    index = option(node, field)
    if index not in node.subgraphs:
        raise node.error(f"{field} is {index}; there is no such subgraph")
    return node.subgraphs[index]


def _arguments(node: Node, first: int = 0) -> Callable[[Sequence[Array | None]], list[Array]]:
    sources = [fetch(node, index) for index in range(first, len(node.operands))]
    return lambda operands: [source(operands) for source in sources]
