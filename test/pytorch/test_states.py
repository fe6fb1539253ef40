"""Programs whose changed buffers are states of the NPU: a streaming recurrent cell, and a decoder with a cache."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import odc_mlir
from odc_mlir.compiler import model_bytes
from odc_mlir.errors import ModelError, OptionError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.frontend.torch import importer
from odc_mlir.runtime import Session

POSITIONS, WIDTH, HEADS = 16, 32, 4


class StreamingGru(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.GRUCell(WIDTH, 16), nn.Linear(16, 4)
        self.register_buffer("hidden", torch.zeros(1, 16))

    def forward(self, x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        self.hidden.copy_(self.cell(x[:, 0], self.hidden))
        return self.out(self.hidden)


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, POSITIONS, WIDTH))

    def forward(self, x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        query, key, value = self.qkv(x).chunk(3, -1)
        self.keys.index_copy_(1, place, key)
        self.values.index_copy_(1, place, value)
        parts = [item.view(1, -1, HEADS, WIDTH // HEADS).transpose(1, 2) for item in (query, self.keys, self.values)]
        mask = torch.arange(POSITIONS) <= place[:, None]
        y = F.scaled_dot_product_attention(*parts, attn_mask=mask[None, None])
        return x + self.out(y.transpose(1, 2).reshape(1, -1, WIDTH))


@pytest.mark.parametrize(("make", "states", "rows"), [(StreamingGru, 1, 1), (Decoder, 2, 1), (Decoder, 2, 4)])
def test_changed_buffers_stay_on_the_npu(make: type[nn.Module], states: int, rows: int) -> None:
    torch.manual_seed(0)
    module, random = make().eval(), np.random.default_rng(0)
    samples = [
        [random.standard_normal((1, rows, WIDTH)).astype(np.float32), np.arange(i, i + rows, dtype=np.int32)]
        for i in range(0, POSITIONS, rows)
    ]
    converted = odc_mlir.from_torch(module, (torch.zeros(1, rows, WIDTH), torch.arange(rows)))
    quantised = odc_mlir.quantize(
        converted, scheme="int8", calibration=samples, target="npu-256", io="quantized", help=False
    ).model
    package = odc_mlir.compile(quantised, target="npu-256")
    report = package.report
    assert sum(layer["macs"] for layer in report["layers"] if layer["placed"] == "host") == 0
    assert package.plan is not None
    (segment,) = package.plan.segments
    assert len(segment.states) == states
    with Session(model_bytes(quantised)) as on_host, Session(package, strict=True) as on_npu:
        for x, place in samples:
            codes = [np.clip(np.round(x * 40), -128, 127).astype(np.int8), place]
            np.testing.assert_array_equal(on_npu.infer(codes)[0], on_host.infer(codes)[0])


def test_inputs_by_signature_make_one_model_with_one_set_of_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    module = Decoder()
    inputs = {str(rows): (torch.randn(1, rows, WIDTH), torch.arange(rows)) for rows in (1, 4)}
    joint = odc_mlir.from_torch(module, {"decode": inputs["1"], "prefill": inputs["4"]})
    assert not module.keys.any(), "the comparison changes no buffer"
    model = read_model(model_bytes(joint))
    assert [signature.key for signature in model.signatures] == ["decode", "prefill"]
    weights = 4 * sum(parameter.numel() for parameter in module.parameters())
    assert weights < sum(map(len, model.buffers)) < 1.2 * weights
    expected = module.eval()(*inputs["1"]).detach()
    with Session(model_bytes(joint)) as session:
        np.testing.assert_allclose(session.infer([x.numpy() for x in inputs["1"]])[0], expected, atol=1e-5)
    with pytest.raises(OptionError, match=r"by signature; the signatures are \['a'\]"):
        odc_mlir.from_torch(module, {"a": inputs["1"]}, ({0: 2}, None))
    answers = importer.answers
    monkeypatch.setattr(
        importer, "answers", lambda program: [answers(program)[0], [a * 1.01 for a in answers(program)[1]]]
    )
    with pytest.raises(ModelError, match=r"differs from PyTorch's.*signature 'a'"):
        odc_mlir.from_torch(module, {"a": inputs["1"]})
    odc_mlir.from_torch(module, {"a": inputs["1"]}, check=False)
