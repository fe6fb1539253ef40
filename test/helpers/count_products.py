"""Count the products that host kernels really perform: ``python count_products.py MODEL…`` prints them as JSON.

A hook rewrites the kernels and their arithmetic as they are imported, so that every matrix product, ``dot`` and
``einsum`` of two different arrays tells how many products it sums. Nothing here knows any operator. For each model the
output has one record per operator of the first subgraph: its name, the products counted in one run, and what we say of
them; so have the operators of product_cases.py.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

Record = dict[str, Any]

INSTRUMENTED = ("odc_mlir.numerics", "odc_mlir.runtime.kernels")
COUNTER = "__count_products__"


class Counter:
    """Stands in for products in rewritten code and adds up how many there are."""

    def __init__(self) -> None:
        self.products = 0

    def matmul(self, a: Any, b: Any) -> Any:
        result = a @ b
        if isinstance(a, np.ndarray):
            self.products += np.size(result) * a.shape[-1]
        return result

    def dot(self, a: Any, *arguments: Any, **options: Any) -> Any:
        result = a.dot(*arguments, **options)
        if isinstance(a, np.ndarray) and a is not arguments[0]:
            self.products += np.size(result) * a.shape[-1]
        return result

    def einsum(self, pattern: str, *operands: Any, **options: Any) -> Any:
        given = [np.asarray(operand) for operand in operands]
        if len(given) == 2 and given[0] is not given[1]:
            terms = pattern.partition("->")[0].split(",")
            sizes = {
                axis: n for term, x in zip(terms, given, strict=True) for axis, n in zip(term, x.shape, strict=True)
            }
            self.products += math.prod(sizes.values())
        return np.einsum(pattern, *operands, **options)


class _Rewrite(ast.NodeTransformer):
    def _call(self, method: str, arguments: list[ast.expr], keywords: Sequence[ast.keyword] = ()) -> ast.expr:
        function = ast.Attribute(ast.Name(COUNTER, ast.Load()), method, ast.Load())
        return ast.Call(function, arguments, list(keywords))

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        return self._call("matmul", [node.left, node.right]) if isinstance(node.op, ast.MatMult) else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr == "dot":
            return self._call("dot", [function.value, *node.args], node.keywords)
        if isinstance(function, ast.Attribute) and function.attr == "einsum":
            return self._call("einsum", node.args, node.keywords)
        return node


class _Loader(importlib.machinery.SourceFileLoader):
    counter: Counter

    def get_code(self, fullname: str) -> Any:
        tree = _Rewrite().visit(ast.parse(Path(self.path).read_text()))
        return compile(ast.fix_missing_locations(tree), self.path, "exec")

    def exec_module(self, module: ModuleType) -> None:
        setattr(module, COUNTER, self.counter)
        super().exec_module(module)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, counter: Counter) -> None:
        self.counter = counter

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if fullname.startswith(INSTRUMENTED) and spec is not None and isinstance(spec.origin, str):
            spec.loader = _Loader(fullname, spec.origin)
            spec.loader.counter = self.counter
        return spec


def count_model(path: Path, inputs: Sequence[Any], counter: Counter) -> list[Record]:
    """Products of each operator in one run on ``inputs``."""
    from odc_mlir.formats.circle.reader import read_model
    from odc_mlir.runtime.execution.executor import HostExecutor
    from odc_mlir.runtime.execution.graph import build_graph
    from odc_mlir.runtime.execution.work import graph_work
    from odc_mlir.targets.costs import load_host

    graph = build_graph(read_model(path))
    executor = HostExecutor(graph)
    shapes = [np.shape(value) for value in inputs]
    executor.prepare(shapes)
    work = graph_work(graph, load_host("reference", "here"), shapes)
    marks = [counter.products]
    executor.run(inputs, observe=lambda _: marks.append(counter.products))
    pairs = zip(work.nodes, work.works, np.diff(marks), strict=True)
    return [{"op": node.spec.name, "products": int(count), "macs": own.macs} for node, own, count in pairs]


def count_node(made: Any, inputs: Sequence[Any], counter: Counter) -> Record:
    """Products of one operator in one run."""
    from helpers.nodes import Session, bind

    types = made.spec.infer_function(made)
    made.results = tuple(replace(r, shape=t.shape) for r, t in zip(made.results, types, strict=True))
    session = Session(made)
    session.kernel = made.spec.kernel_function(made)
    if not any(info is not None and info.is_variable for info in made.operands):
        session.kernel(bind(made, inputs))  # what is prepared in the first run does not count
    before = counter.products
    session(*inputs)
    return {"op": made.spec.name, "products": counter.products - before, "macs": made.macs}


def main() -> None:
    """Count what the models named on the command line do, and the operators of ``product_cases``."""
    counter = Counter()
    sys.meta_path.insert(0, _Finder(counter))
    sys.path.insert(0, str(Path(__file__).parents[1]))
    found: dict[str, list[Record]] = {}
    for path in map(Path, sys.argv[1:]):
        with np.load(path.parent.parent / "data" / f"{path.stem}.npz") as data:
            names = (f"in_{i}" if "in_0" in data else f"in_0_{i}" for i in range(len(data.files)))
            inputs = [data[name] for name in names if name in data]
        found[path.stem] = count_model(path, inputs, counter)
    from helpers.product_cases import product_cases

    for name, (made, inputs) in product_cases().items():
        found[name] = [count_node(made, inputs, counter)]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
