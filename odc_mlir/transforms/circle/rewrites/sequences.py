"""LSTM and GRU that were unrolled, as the operators for sequences."""

from __future__ import annotations

import numpy as np
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint

from odc_mlir.dialects.circle import CircleOp, NoneOp, op_class, tensor_type
from odc_mlir.support.locations import name_loc, value_name
from odc_mlir.transforms.circle.functions.recognise import GRU, LSTM, Unrolled, unrolled
from odc_mlir.transforms.common import rewriting


class _Sequence(rewriting.OperatorPattern):
    """Steps become one operator on ``[T, N, I]`` that gives all states ``[T, N, units]``."""

    names = frozenset({"ADD"})
    kind: str

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        found = unrolled(op)
        if found is None or found.kind != self.kind:
            return
        members = {*found.members(), found.inputs.op}
        shape = rewriting.static_shape_of(found.inputs.op.operands[0])
        if shape is None or len(shape) != 3 or any(_is_read_elsewhere(value, members) for value in _hidden(found)):
            return
        made = self.make(found, shape[1])
        rewriter.insert(made, InsertPoint.before(op))
        _give_states(found, made[-1].results[0], members, rewriter)
        rewriting.erase_unused(members, rewriter)

    def make(self, found: Unrolled, batch: int) -> list[Operation]:
        """The operator, last, behind its constants."""
        raise NotImplementedError


class SequenceLstm(_Sequence):
    """Its states are left out, and so begin at zero in every run, as the steps do."""

    kind = LSTM

    def make(self, found: Unrolled, batch: int) -> list[Operation]:
        name = value_name(found.states[-1])
        inputs, states = _blocks(found, "inputs"), _blocks(found, "recurrent")
        constants = [
            rewriting.real(weights, f"{name}/{role}{gate}")
            for role, blocks in (("input", inputs), ("recurrent", states))
            for gate, (weights, _) in enumerate(blocks)
        ]
        sums = [first + second for (_, first), (_, second) in zip(inputs, states, strict=True)]
        biases = [rewriting.real(total, f"{name}/bias{gate}") for gate, total in enumerate(sums)]
        nothing = NoneOp()
        none = nothing.result
        operands = [
            found.inputs.op.operands[0],
            *(item.result for item in constants),
            *[none] * 3,
            *(item.result for item in biases),
            *[none] * 8,
        ]
        options = {"fused_activation_function": "tanh", "time_major": True}
        return [nothing, *constants, *biases, _whole("UNIDIRECTIONAL_SEQUENCE_LSTM", operands, found, batch, options)]


class SequenceGru(_Sequence):
    """The steps of a GRU, unrolled, to one custom GRU over the sequence."""

    kind = GRU

    def make(self, found: Unrolled, batch: int) -> list[Operation]:
        name = value_name(found.states[-1])
        inputs, states = _blocks(found, "inputs"), _blocks(found, "recurrent")
        # In spite of its name, hidden_hidden multiplies the input.
        constants = [
            rewriting.real(np.concatenate([block[which] for block in blocks]), f"{name}/{role}")
            for blocks, role in ((inputs, "hidden_hidden"), (states, "hidden_input"))
            for which in (0, 1)
        ]
        zero = rewriting.real(np.zeros((batch, found.units)), f"{name}/state")
        operands = [found.inputs.op.operands[0], *(item.result for item in constants), zero.result]
        options = {"fused_activation_function": "tanh", "return_sequences": True, "time_major": True}
        return [*constants, zero, _whole("GRU", operands, found, batch, options)]


def _hidden(found: Unrolled) -> list[SSAValue]:
    """Results that the sequence operator lacks: cell states."""
    return [step.after for step in found.steps if step.after is not step.state]


def _is_read_elsewhere(value: SSAValue, members: set[CircleOp]) -> bool:
    return any(use.operation not in members for use in value.uses)


def _blocks(found: Unrolled, which: str) -> list[tuple[rewriting.Reals, rewriting.Reals]]:
    """Weights and biases by gate."""
    layer = found.inputs if which == "inputs" else found.recurrent
    weights = layer.real_weights()
    assert weights is not None
    bias = layer.real_bias(weights.shape[0])
    assert bias is not None
    size = found.units
    return [(weights[row * size : (row + 1) * size], bias[row * size : (row + 1) * size]) for row in found.rows]


def _whole(name: str, operands: list[SSAValue], found: Unrolled, batch: int, options: dict[str, object]) -> CircleOp:
    """The operator in the place of the CONCATENATION of all steps, if there is one."""
    shape = (len(found.steps), batch, found.units)
    joined = _joined(found, shape)
    label = f"{value_name(found.states[-1])}/sequence" if joined is None else value_name(joined.results[0])
    type = tensor_type("float32", shape) if joined is None else joined.results[0].type
    made = op_class(name).make(operands, [type], options, location=name_loc(label))
    missing = {key: option for key, option in made.OPTIONS.items() if key not in made.properties}
    made.properties |= {key: o.encode(o.default) for key, o in missing.items() if o.default is not None}
    return made


def _give_states(found: Unrolled, whole: SSAValue, members: set[CircleOp], rewriter: PatternRewriter) -> None:
    """Readers of the steps' results read the sequence: as it is where they join all steps, or a row of it."""
    joined = _joined(found, rewriting.static_shape_of(whole))
    if joined is not None:
        rewriter.replace(joined, [], [whole])
    for number, state in enumerate(found.states):
        uses = [use for use in state.uses if use.operation not in members]
        if not uses:
            continue
        shape = rewriting.static_shape_of(state)
        assert shape is not None
        row = _row(whole, number, state, shape)
        rewriter.insert(row, InsertPoint.after(whole.owner) if isinstance(whole.owner, Operation) else None)
        for use in uses:
            use.operation.operands[use.index] = row[-1].results[0]
            rewriter.notify_op_modified(use.operation)


def _joined(found: Unrolled, shape: tuple[int, ...] | None) -> CircleOp | None:
    """The CONCATENATION of all steps, in order, of this shape."""
    for use in found.states[0].uses:
        op = use.operation
        if not isinstance(op, CircleOp) or op.SPEC.name != "CONCATENATION" or op.option("axis") != 0:
            continue
        if tuple(op.operands) == found.states and rewriting.static_shape_of(op.results[0]) == shape:
            return op
    return None


def _row(whole: SSAValue, number: int, state: SSAValue, shape: tuple[int, ...]) -> list[Operation]:
    """One step of the sequence in the shape of that step's result."""
    extents = rewriting.static_shape_of(whole)
    assert extents is not None
    name = value_name(state)
    begin = rewriting.make_constant(np.array([number, 0, 0], np.int32), "int32", f"{name}/begin")
    size = rewriting.make_constant(np.array([1, *extents[1:]], np.int32), "int32", f"{name}/size")
    wanted = rewriting.make_constant(np.array(shape, np.int32), "int32", f"{name}/shape")
    cut = rewriting.part("SLICE", [whole, begin.result, size.result], state, "row", (1, *extents[1:]))
    view = rewriting.operator("RESHAPE", [cut.results[0], wanted.result], state, {"new_shape": list(shape)})
    return [begin, size, wanted, cut, view]
