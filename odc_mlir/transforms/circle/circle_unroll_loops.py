"""``circle-unroll-loops``: unroll loops with constant trip counts.

Before::

    %0:2 = circle.while(%zero, %x) {cond_subgraph_index = @more, body_subgraph_index = @step} : …

After, if ``@more`` holds twice: two copies of the operators of ``@step``. The second reads the first one's results.

Converters write recurrent layers as loops. Unrolled steps are ordinary operators. Counters and other values computed
only from constants become constants. Rows that a loop writes into a list become one CONCATENATION, and a read of a row
at a constant index becomes a SLICE. Unchanged: loops with a condition that depends on data, loops with effects, loops
that unroll to more than ``limit`` operators, and loops that return a value that no operator computes. Unused functions
are removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, SymbolRefAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from odc_mlir.dialects.circle import CircleOp, ConstOp, NoneOp
from odc_mlir.ops.spec import Trait
from odc_mlir.support.locations import location_names, names_loc, value_name
from odc_mlir.transforms.circle.circle_fold_constants import FoldConstants, constants_like
from odc_mlir.transforms.circle.circle_infer_shapes import forget_known, infer_shapes
from odc_mlir.transforms.common import rewriting
from odc_mlir.transforms.common.placement import functions, main_function
from odc_mlir.transforms.common.tensor_names import keep_output_names, outputs_of

LIMIT = 1024

Row = tuple[SSAValue, int]  # a value and an index of its first dimension


@dataclass(frozen=True)
class CircleUnrollLoopsPass(ModulePass):
    """Replace loops by the operators of all iterations."""

    name = "circle-unroll-loops"

    limit: int = LIMIT
    """Maximum number of operators that the loops of a function may become."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        bodies = {function.sym_name.data: function for function in functions(op)}
        called = set[str]()
        for function in bodies.values():
            names, before = [value_name(value) for value in outputs_of(function)], len(called)
            left, loops = self.limit, _loops([] if function.is_declaration else function.body.block.ops)
            while loops:
                loop = loops.pop(0)
                trips = _Trips(left)
                state = trips.run(loop, bodies)
                if state is None:
                    for made in reversed(trips.made):
                        made.erase()
                    continue
                left -= trips.size
                loops = [*_loops(trips.made), *loops]
                called.update(_callees(loop))
                Rewriter.replace_op(loop, trips.made, state)
            if len(called) > before:
                infer_shapes(function)
                forget_known(function)
                _follow_rows(function)
                keep_output_names(function, names)
        if called:
            _remove_unused(op, called)


def _loops(ops: Iterable[Operation]) -> list[CircleOp]:
    return [op for op in ops if isinstance(op, CircleOp) and op.SPEC.name == "WHILE" and op.unverified is None]


def _callees(loop: CircleOp) -> tuple[str, str]:
    return str(loop.option("cond_subgraph_index")), str(loop.option("body_subgraph_index"))


def _is_pure(function: FuncOp) -> bool:
    """Return whether no operator has effects. Nested loops are checked when they are unrolled."""
    return not function.is_declaration and all(
        isinstance(op, ConstOp | NoneOp | ReturnOp)
        or bool(_loops([op]))
        or (isinstance(op, CircleOp) and op.unverified is None and Trait.PURE in op.SPEC.traits)
        for op in function.body.block.ops
    )


def _fit(values: Sequence[SSAValue], others: Sequence[SSAValue]) -> bool:
    return all(rewriting.is_same_element(value, other) for value, other in zip(values, others, strict=True))


class _Trips:
    """Copies of the operators of a loop's iterations. Constants, and operators on constants, are copied once."""

    def __init__(self, limit: int) -> None:
        self.made: list[Operation] = []
        self.size = 0  # operators without constants
        self._limit = limit
        self._fold = FoldConstants()
        self._constants: dict[SSAValue, SSAValue] = {}

    def run(self, loop: CircleOp, bodies: Mapping[str, FuncOp]) -> Sequence[SSAValue] | None:
        """Return the last state of ``loop``, or None if the loop must stay."""
        condition, body = (bodies.get(name) for name in _callees(loop))
        if condition is None or body is None or not (_is_pure(condition) and _is_pure(body)):
            return None
        state: Sequence[SSAValue] = tuple(loop.operands)
        if not (_fit(state, condition.args) and _fit(state, body.args) and _fit(state, outputs_of(body))):
            return None
        for trip in range(self._limit):
            decided = rewriting.constant(self._copy(condition, state, trip)[0])
            if decided is None or self.size > self._limit:
                return None
            if not decided.any():
                ends = zip(loop.results, state, strict=True)
                is_lost = any(rewriting.is_returned(old) and not isinstance(new.owner, CircleOp) for old, new in ends)
                return None if is_lost else state
            if not any(argument.uses for argument in condition.args):
                return None  # it never ends
            state = self._copy(body, state, trip)
        return None

    def _copy(self, function: FuncOp, arguments: Sequence[SSAValue], trip: int) -> list[SSAValue]:
        values = dict(zip(function.args, arguments, strict=True)) | self._constants
        for op in function.body.block.ops:
            if isinstance(op, ReturnOp) or (op.results and op.results[0] in values):
                continue
            copied = op.clone(values)
            if isinstance(copied, ConstOp | NoneOp):
                self._constants[op.results[0]] = copied.results[0]
                self.made.append(copied)
                continue
            assert isinstance(copied, CircleOp)
            names = [f"{name}/trip{trip}" for name in location_names(op.location)]
            copied.location = names_loc(names) if names else op.location
            results = self._fold.results_of(copied)
            if results is None:
                self.size += 1
                self.made.append(copied)
                continue
            folded = constants_like(copied, results)
            values.update(zip(op.results, (constant.result for constant in folded), strict=True))
            copied.erase()
            self.made += folded
        return [values[value] for value in outputs_of(function)]


def _follow_rows(function: FuncOp) -> None:
    """Make operators that read rows of a list read the values that iterations wrote."""
    rows: dict[SSAValue, list[Row]] = {}
    for op in list(function.body.block.ops):
        if not isinstance(op, CircleOp) or op.unverified is not None or len(op.results) != 1:
            continue
        if op.SPEC.name == "GATHER":
            _cut(op, rows)
        elif (found := _rows_of(op, rows)) is not None:
            joined = _join(op, found)
            rows[(joined or op).results[0]] = found


def _rows(value: SSAValue, known: dict[SSAValue, list[Row]]) -> list[Row]:
    extents = rewriting.static_shape_of(value) or (0,)
    return known.get(value) or [(value, place) for place in range(extents[0])]


def _rows_of(op: CircleOp, known: dict[SSAValue, list[Row]]) -> list[Row] | None:
    if op.SPEC.name not in ("CONCATENATION", "SLICE", "REVERSE_V2", "DYNAMIC_UPDATE_SLICE"):
        return None
    shapes = [rewriting.static_shape_of(value) for value in (*op.operands, *op.results)]
    widths = [shape[1:] for shape in shapes if shape]
    if None in shapes or () in shapes:
        return None
    first = _rows(op.operands[0], known)
    if op.SPEC.name == "CONCATENATION" and op.option("axis") == 0 and rewriting.activation(op) == "none":
        is_moved = all(rewriting.is_same_element(operand, op.results[0]) for operand in op.operands)
        return [row for operand in op.operands for row in _rows(operand, known)] if is_moved else None
    if op.SPEC.name == "CONCATENATION" or (numbers := rewriting.constant(op.operands[-1])) is None:
        return None
    if op.SPEC.name == "REVERSE_V2":
        return first[::-1] if list(numbers) == [0] else None
    if op.SPEC.name == "SLICE" and (begin := rewriting.constant(op.operands[1])) is not None:
        return first[int(begin[0]) :][: len(_rows(op.results[0], {}))] if widths[0] == widths[-1] else None
    if op.SPEC.name == "DYNAMIC_UPDATE_SLICE" and widths[0] == widths[1]:
        new = _rows(op.operands[1], known)
        start = min(max(int(numbers[0]), 0), len(first) - len(new))
        return [*first[:start], *new, *first[start + len(new) :]]
    return None


def _cut(op: CircleOp, known: dict[SSAValue, list[Row]]) -> None:
    place, rows = rewriting.constant(op.operands[1]), _rows(op.operands[0], known)
    shape, wanted = (rewriting.static_shape_of(value) for value in (op.operands[0], op.results[0]))
    if place is None or place.size != 1 or place.ndim > 1 or not shape or wanted is None:
        return
    index = int(place.reshape(-1)[0])
    if op.option("axis") != 0 or op.option("batch_dims") or not 0 <= index < len(rows):
        return
    source, row = rows[index]
    name, made = value_name(op.results[0]), list[Operation]()
    if len(_rows(source, {})) > 1:
        one = (1, *shape[1:])
        begin = rewriting.indices([row] + [0] * (len(shape) - 1), f"{name}/begin")
        size = rewriting.indices(one, f"{name}/size")
        cut = rewriting.part("SLICE", [source, begin.result, size.result], op.results[0], "row", one)
        made += [begin, size, cut]
        source = cut.results[0]
    Rewriter.replace_op(op, [*made, *rewriting.reshaped(source, op.results[0])])


def _join(op: CircleOp, rows: list[Row]) -> CircleOp | None:
    """Replace the operator that completes a list by CONCATENATION of whole values."""
    values = list(dict.fromkeys(value for value, _ in rows))
    if [(value, place) for value in values for place in range(len(_rows(value, {})))] != rows:
        return None
    if len(values) < 2 or (op.SPEC.name == "CONCATENATION" and list(op.operands) == values):
        return None
    made = rewriting.operator("CONCATENATION", values, op.results[0], {"axis": 0})
    Rewriter.replace_op(op, [made])
    return made


def _remove_unused(module: ModuleOp, called: set[str]) -> None:
    kept = main_function(module)
    while True:
        uses = {
            symbol.root_reference.data
            for op in module.walk()
            for value in (op.attributes | op.properties).values()
            for symbol in _symbols(value)
        }
        unused = [f for f in functions(module) if f is not kept and f.sym_name.data in called - uses]
        if not unused:
            return
        for function in unused:
            Rewriter.erase_op(function)


def _symbols(value: Attribute) -> Iterator[SymbolRefAttr]:
    if isinstance(value, SymbolRefAttr):
        yield value
    elif isinstance(value, ArrayAttr | DictionaryAttr):
        for item in value.data.values() if isinstance(value, DictionaryAttr) else value:
            yield from _symbols(item)
