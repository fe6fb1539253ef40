"""Several models of a package as one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.models import ModelBuilder, add_model, model_bytes
from odc_mlir.errors import ModelError, PackageError
from odc_mlir.formats.circle.connect import connect
from odc_mlir.formats.circle.model import Model, Tensor
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.manifest import MANIFEST_PATH, Connection, IoIndex, Manifest
from odc_mlir.formats.package import PackageFiles, write_package
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import build_graph, linked_files


def _index(text: str) -> IoIndex:
    return IoIndex(*map(int, text.split(":")))


def _manifest(count: int, inputs: str, outputs: str, *edges: tuple[str, str]) -> Manifest:
    return Manifest(
        tuple(f"m{index}.circle" for index in range(count)),
        inputs=tuple(map(_index, inputs.split())),
        outputs=tuple(map(_index, outputs.split())),
        connections=tuple(Connection(_index(a), tuple(map(_index, b.split()))) for a, b in edges),
    )


def _unary(name: str, dtype: str = "float32", quant: tuple[float, int] | None = None, shape: Any = (1, 4)) -> Model:
    builder = ModelBuilder()
    x, y = (builder.tensor(tensor, shape, dtype, quant=quant) for tensor in "xy")
    builder.operator(name, [x], [y])
    return builder.finish([x], [y])


def _run(model: Model, *inputs: Any) -> list[Any]:
    return HostExecutor(build_graph(model)).run(list(inputs))


def _row(*values: float) -> Any:
    return np.array([values], np.float32)


def test_a_fan_of_models_given_out_of_order() -> None:
    models = [_unary("NEG"), add_model(), _unary("ABS")]
    # abs feeds neg and the first operand of the addition; neg feeds the second.
    manifest = _manifest(3, "2:0:0", "1:0:0 2:0:0", ("2:0:0", "0:0:0 1:0:0"), ("0:0:0", "1:0:1"))
    joint = connect(models, manifest, "p")
    out, middle = _run(joint, _row(1, -2, 3, -4))
    np.testing.assert_array_equal(middle, _row(1, 2, 3, 4))
    np.testing.assert_array_equal(out, _row(1, 2, 3, 4))
    names = [tensor.name for tensor in joint.subgraphs[0].tensors]
    assert len(set(names)) == len(names)
    assert "m2/x" in names


def test_bytes_of_constants_and_called_subgraphs_find_their_way() -> None:
    first, second = (_choosing(value) for value in (10, 100))
    manifest = _manifest(2, "0:0:0 0:0:1 1:0:0", "1:0:0", ("0:0:0", "1:0:1"))
    joint = connect([first, second], manifest, "p")
    yes, no = np.array([True]), np.array([False])
    for a in (yes, no):
        for b in (yes, no):
            (y,) = _run(joint, a, _row(1, 2, 3, 4), b)
            expected = _row(1, 2, 3, 4) + (10 if a[0] else -10)
            np.testing.assert_array_equal(y, expected + (100 if b[0] else -100))


def _choosing(value: float) -> Model:
    """``y = x + value`` if the first input says so, else ``x - value``."""
    builder = ModelBuilder()
    condition = builder.tensor("condition", (1,), "bool")
    x, y = (builder.tensor(name, (1, 4)) for name in "xy")
    builder.operator("IF", [condition, x], [y], options={"then_subgraph_index": 1, "else_subgraph_index": 2})
    builder.finish([condition, x], [y])
    for name in ("ADD", "SUB"):
        builder.begin(name)
        a, c = builder.tensor("a", (1, 4)), builder.tensor("c", (1,), data=np.array([value], np.float32))
        b = builder.tensor("b", (1, 4))
        builder.operator(name, [a, c], [b])
        builder.finish([a], [b])
    return builder.model


@pytest.mark.parametrize(
    ("source", "target", "kind"),
    [
        (_unary("ABS"), _unary("ABS", "int8", (0.5, 1)), "QUANTIZE"),
        (_unary("ABS", "int8", (0.5, 1)), _unary("ABS", "int8", (0.25, 0)), "QUANTIZE"),
        (_unary("ABS", "int8", (0.5, 1)), _unary("ABS"), "DEQUANTIZE"),
        (_unary("ABS"), _unary("ABS", "int32"), "CAST"),
        (_unary("ABS", "int8", (0.5, 1)), _unary("ABS", "int8", (0.5, 1)), None),
    ],
)
def test_conversions_between_models(source: Model, target: Model, kind: str | None) -> None:
    joint = connect([source, target], _manifest(2, "0:0:0", "1:0:0", ("0:0:0", "1:0:0")), "p")
    between = [operator.name for operator in joint.subgraphs[0].operators][1:-1]
    assert between == ([kind] if kind else [])
    info = build_graph(joint).input_infos()[0]
    codes = np.array([[-3, 2, 0, 5]], info.info.numpy)
    (y,) = _run(joint, codes)
    real = codes.astype(np.float64)
    if info.quant is not None:
        real = info.quant.scale * (real - info.quant.zero_point)
    out = build_graph(joint).output_infos()[0]
    found = y.astype(np.float64)
    if out.quant is not None:
        found = out.quant.scale * (found - out.quant.zero_point)
    np.testing.assert_allclose(found, np.abs(real), atol=0.25)


@pytest.mark.parametrize(
    ("manifest", "text"),
    [
        (_manifest(2, "0:0:0", "1:0:0", ("2:0:0", "1:0:0")), "2:0:0 names model 2, the package has 2"),
        (_manifest(2, "0:3:0", "1:0:0", ("0:3:0", "1:0:0")), "0:3:0 names a subgraph that 'm0.circle' does not have"),
        (
            _manifest(2, "0:0:1", "1:0:0", ("0:0:0", "1:0:0")),
            "nothing is connected to input 0:0:0 \\('x'\\) of 'm0.circle'",
        ),
        (_manifest(2, "0:0:0", "1:0:7", ("0:0:0", "1:0:0")), "1:0:7: 'm1.circle' has 1 outputs"),
        (_manifest(2, "0:0:0", "1:0:0"), "nothing is connected to input 1:0:0"),
        (
            _manifest(2, "0:0:0", "1:0:0", ("0:0:0", "1:0:0"), ("1:0:0", "1:0:0")),
            "the input 1:0:0 is connected twice",
        ),
        (_manifest(2, "0:0:0", "1:0:0", ("0:0:0", "1:0:0"), ("1:0:0", "0:0:0")), "are connected in a cycle"),
    ],
)
def test_refusals(manifest: Manifest, text: str) -> None:
    with pytest.raises(PackageError, match=text) as raised:
        connect([_unary("ABS"), _unary("NEG")], manifest, "some/package")
    assert raised.value.location == "some/package"


def test_shapes_and_types_that_do_not_meet() -> None:
    manifest = _manifest(2, "0:0:0", "1:0:0", ("0:0:0", "1:0:0"))
    with pytest.raises(PackageError, match=r"'m0/y' has the shape \(1, 4\), but 'x', which it feeds, \(1, 5\)"):
        connect([_unary("ABS"), _unary("NEG", shape=(1, 5))], manifest, "p")
    with pytest.raises(PackageError, match="one is quantised, the other is not"):
        connect([_unary("ABS", "int32"), _unary("NEG", "int8", (0.5, 0))], manifest, "p")


@pytest.mark.parametrize("name", ["p", "p.zip"])
def test_a_package_of_connected_models_runs_and_compiles(tmp_path: Path, name: str) -> None:
    models = [_unary("ABS", "int8", (0.5, 1)), _unary("NEG", "int8", (0.25, 0))]
    manifest = _manifest(2, "0:0:0", "1:0:0", ("0:0:0", "1:0:0"))
    members = {
        MANIFEST_PATH: manifest.to_json(),
        "m0.circle": model_bytes(models[0]),
        "m1.circle": model_bytes(models[1]),
    }
    write_package(PackageFiles(members, manifest, {}, None, "test"), tmp_path / name)
    codes = np.array([[-3, 2, 0, 5]], np.int8)
    (expected,) = odc_mlir.run(tmp_path / name, [codes])
    compiled = odc_mlir.compile(tmp_path / name)
    assert compiled.plan is not None
    assert compiled.plan.segments
    np.testing.assert_array_equal(odc_mlir.run(compiled, [codes])[0], expected)


def test_models_that_run_others_of_their_package(tmp_path: Path) -> None:
    builder = ModelBuilder()
    a, b, y = (builder.tensor(tensor, (1, 4)) for tensor in "aby")
    builder.operator("RUN_MODEL", [a, b], [y], options={"location": "sub/other.circle", "signature": ""})
    main = builder.finish([a, b], [y])
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/other.circle").write_bytes(model_bytes(add_model()))
    (tmp_path / "main.circle").write_bytes(model_bytes(main))
    inputs = [_row(1, 2, 3, 4), _row(10, 20, 30, 40)]
    (expected,) = odc_mlir.run(tmp_path / "main.circle", inputs)
    package = odc_mlir.compile(tmp_path / "main.circle")
    for path in (tmp_path / "p", tmp_path / "p.zip"):
        package.save(path)
        np.testing.assert_array_equal(odc_mlir.run(path, inputs)[0], expected)


def test_a_model_that_is_missing_beside_the_one_that_runs_it(tmp_path: Path) -> None:
    builder = ModelBuilder()
    a, y = (builder.tensor(tensor, (1, 4)) for tensor in "ay")
    builder.operator("RUN_MODEL", [a], [y], options={"location": "none.circle", "signature": ""})
    (tmp_path / "main.circle").write_bytes(model_bytes(builder.finish([a], [y])))
    with pytest.raises(ModelError, match=r"cannot be read.*none\.circle"):
        linked_files(read_model(tmp_path / "main.circle"))


def test_tensors_are_copied_not_shared() -> None:
    model = _unary("ABS")
    before = [Tensor(t.name, t.dtype, t.shape) for t in model.subgraphs[0].tensors]
    connect([model, model], _manifest(2, "0:0:0", "1:0:0", ("0:0:0", "1:0:0")), "p")
    assert [Tensor(t.name, t.dtype, t.shape) for t in model.subgraphs[0].tensors] == before
