"""The page of ``odc-opt --view``: passes, the rewrites in them, and what they changed."""

from __future__ import annotations

import base64
import html
import re
import zlib
from pathlib import Path

import numpy as np
import pytest
from xdsl.rewriter import Rewriter

from odc_mlir import samples, viewer
from odc_mlir.dialects.circle import ConstOp
from odc_mlir.support.text import parse_module
from odc_mlir.tools import odc_opt
from odc_mlir.transforms.common.rewriting import real
from odc_mlir.universe import make_context

MODEL = """
func.func @main(%x: tensor<1x4xf32>) -> tensor<1x4xf32> {
  %zero = circle.const [0.0] : tensor<1xf32>
  %a = circle.add(%x, %zero) {activation = none} : (tensor<1x4xf32>, tensor<1xf32>) -> tensor<1x4xf32>
  %b = circle.relu(%a) : (tensor<1x4xf32>) -> tensor<1x4xf32>
  %c = circle.relu(%b) : (tensor<1x4xf32>) -> tensor<1x4xf32>
  func.return %c : tensor<1x4xf32>
}
"""


def view(folder: Path, model: str, *passes: str) -> str:
    source, page = folder / "in.mlir", folder / "view.html"
    source.write_text(model)
    assert odc_opt.main([str(source), *passes, "-o", str(folder / "out.mlir"), "--view", str(page)]) == 0
    return page.read_text()


def test_rewrites_are_named_with_their_source(tmp_path: Path) -> None:
    found = view(tmp_path, MODEL, "--circle-optimize", "--cse")
    assert "rewrites: 1 by DropIdentity." in found
    assert "<strong>DropIdentity</strong> at circle.add" in found
    assert "<code>transforms/circle/rewrites/canonical.py:" in found
    assert "2. cse" in found.partition("Passes without changes")[2]
    assert 'class="removed"' in found


def test_values_keep_their_names(tmp_path: Path) -> None:
    """A value without a name in front of others leaves their names alone when it goes."""
    model = MODEL.replace("%zero", "%0").replace("%a", "%1").replace("%b", "%2").replace("%c", "%3")
    found = html.unescape(re.sub("<[^>]*>", "", view(tmp_path, model, "--circle-optimize")))
    gone, kept = "-    %vrelu = circle.relu(%vadd)", "     %vrelu_1 = circle.relu(%vrelu)"
    assert gone in found
    assert gone.replace("-", "+").replace("%vadd", "%x") in found
    assert kept in found
    assert kept.replace(" ", "-", 1) not in found


def test_a_replaced_constant_keeps_the_name_of_its_place(tmp_path: Path) -> None:
    model = MODEL.replace("[0.0] : tensor<1xf32>", '[0.0] : tensor<1xf32> loc("layer/zero")')
    module = parse_module(make_context(), model)
    observer = viewer.Viewer(module)
    with observer.watching("circle", "replace"):
        (constant,) = [op for op in module.walk() if isinstance(op, ConstOp)]
        replaced = real(np.ones(1, np.float32), "layer/zero")
        Rewriter.replace_op(constant, replaced)
        replaced.result.name_hint = None
    assert viewer.difference(observer.steps[0].before, observer.steps[0].after) != []
    assert any("%zero = circle.const [1.0]" in line for line in observer.steps[0].after)


def test_long_modules_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewer, "MOST_LINES", 3)
    found = view(tmp_path, MODEL, "--circle-optimize")
    assert "lines became" in found
    assert "<pre" not in found


def test_much_text_is_compressed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = view(tmp_path, MODEL, "--circle-optimize")
    monkeypatch.setattr(viewer, "MOST_PLAIN", 10)
    (packed,) = re.findall('data-packed="([^"]*)"', view(tmp_path, MODEL, "--circle-optimize"))
    content = zlib.decompress(base64.b64decode(packed)).decode()
    assert 'class="removed"' in content
    assert content in plain


def test_differences() -> None:
    assert viewer.difference(["a", "b"], ["a", "c"]) == ["@@", " a", "-b", "+c"]
    assert viewer.difference(["a"], ["a"]) == []


def test_the_page_does_not_change_the_result(tmp_path: Path) -> None:
    model = str(samples.path("digits_cnn_int8.circle"))
    plain, watched = tmp_path / "plain.mlir", tmp_path / "watched.mlir"
    for out, more in ((plain, []), (watched, ["--view", str(tmp_path / "v.html")])):
        assert odc_opt.main([model, "--stage", "npu-sched", "--target", "npu-256", "-o", str(out), *more]) == 0
    assert plain.read_text() == watched.read_text()
