"""Programs: weights, states, dynamic shapes, names and places, files, and refusals."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import odc_mlir
from odc_mlir.compiler import model_bytes
from odc_mlir.dialects.odc import states_of
from odc_mlir.errors import ModelError, OptionError, PackageError, UnsupportedError
from odc_mlir.runtime import Session
from odc_mlir.tools import odc_lint, odc_opt


class Fn(nn.Module):
    """A function of its modules and inputs."""

    def __init__(self, function: Any, *modules: nn.Module) -> None:
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(modules)

    def forward(self, *inputs: Any) -> Any:
        return self.function(self, *inputs)


def run(module: Any, *inputs: torch.Tensor) -> list[np.ndarray]:
    return odc_mlir.run(module, [item.numpy() for item in inputs])


NETWORKS = {
    "convolution, normalisation and pool": (
        nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        ),
        (torch.randn(2, 3, 8, 8),),
    ),
    "recurrent layers": (Fn(lambda m, x: m.parts[0](x)[0], nn.LSTM(4, 3, bidirectional=True)), (torch.randn(5, 2, 4),)),
    "gated recurrent layer": (
        Fn(lambda m, x: m.parts[0](x)[0], nn.GRU(4, 3, batch_first=True)),
        (torch.randn(2, 4, 4),),
    ),
    "transformer layer": (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (torch.randn(2, 5, 8),)),
    "normalise and select": (Fn(lambda m, x: F.normalize(x, dim=1)[:, :, -1]), (torch.randn(1, 2, 6),)),
    "embedding and triangle": (
        Fn(lambda m, x: torch.tril(m.parts[0](x)).cumsum(1), nn.Embedding(7, 4)),
        (torch.tensor([[1, 6, 0]], dtype=torch.int32),),
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name: str) -> None:
    module, inputs = NETWORKS[name]
    with torch.no_grad():
        wanted = module.eval()(*inputs)
    np.testing.assert_allclose(run(odc_mlir.from_torch(module, inputs), *inputs)[0], wanted.numpy(), atol=1e-5)


def test_the_mode_of_the_module_stays() -> None:
    module = nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 2))
    x = torch.ones(1, 3)
    converted = odc_mlir.from_torch(module, x)
    assert module.training
    np.testing.assert_allclose(run(converted, x)[0], module.eval()(x).detach().numpy(), rtol=1e-6)


def test_modules_that_pytorch_exported_keep_their_mode() -> None:
    layer, x = nn.Linear(3, 2), torch.ones(1, 3)
    module = torch.export.export(layer, (x,)).module()
    np.testing.assert_allclose(run(odc_mlir.from_torch(module, x), x)[0], layer(x).detach().numpy(), rtol=1e-6)


def test_shared_weights_are_stored_once_and_not_copied() -> None:
    layer = nn.Linear(4, 4)
    module = Fn(lambda m, x: m.parts[1](m.parts[0](x)), layer, layer)
    constants = [op for op in odc_mlir.from_torch(module, torch.ones(1, 4)).walk() if op.name == "circle.const"]
    assert len(constants) == 2
    addresses = {np.frombuffer(op.blob.data, np.uint8).ctypes.data for op in constants}
    assert layer.weight.data_ptr() in addresses


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.full((1, 3), 2.0))
        self.register_buffer("cache", torch.zeros(1, 4, 3))

    def forward(self, x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        self.total.add_(x)
        self.cache.index_copy_(1, place, x[:, None])
        return self.total * 2 + self.cache.sum(1)


def test_changed_buffers_are_states() -> None:
    module, x = Counter(), torch.tensor([[1.0, 2.0, 3.0]])
    converted = odc_mlir.from_torch(module, (x, torch.tensor([0])))
    states = {pair.input: pair.initial for pair in states_of(converted)}
    assert states == {"total": np.full(3, 2, np.float32).tobytes(), "cache": None}
    with Session(odc_mlir.compile(converted)) as session:
        for place in range(3):
            wanted = module(x, torch.tensor([place]))
            found = session.infer([x.numpy(), np.array([place], np.int32)])[0]
            np.testing.assert_allclose(found, wanted.numpy())


def test_indices_that_pytorch_checks_are_not_wrapped() -> None:
    """PyTorch takes negative numbers in ``x[place]``, but not in ``index_copy``."""

    def checked(m: Any, x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        return torch.zeros(4, 3).index_copy(0, place, x[place])

    def free(m: Any, x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        return x[place]

    inputs, wraps = (torch.rand(4, 3), torch.tensor([2])), []
    for function in (checked, free):
        converted = odc_mlir.from_torch(Fn(function), inputs)
        wraps.append("circle.less" in str(converted))
        np.testing.assert_array_equal(run(converted, inputs[0], inputs[1].int())[0], function(None, *inputs))
    assert wraps == [False, True]
    np.testing.assert_array_equal(run(converted, inputs[0], torch.tensor([-1]).int())[0], inputs[0][-1:])


DYNAMIC = {
    "batch": (Fn(lambda m, x: m.parts[0](x).flatten(1) + x.shape[0], nn.Conv1d(4, 2, 3, padding=1)), {0}),
    "length": (Fn(lambda m, x: m.parts[0](x).mean(2) * torch.arange(x.shape[2]).sum(), nn.Conv1d(4, 2, 3)), {2}),
    "two extents": (Fn(lambda m, x: x.reshape(x.shape[0] * x.shape[2], -1).sum(0)), {0, 2}),
    "joined": (Fn(lambda m, x: torch.cat([x, torch.zeros(x.shape[0], 4, 1)], 2)), {0}),
    "ends": (Fn(lambda m, x: x[:, :, -2:] + x[:, :, :2]), {2}),
    "attention": (Fn(lambda m, x: m.parts[0](x, x, x)[0], nn.MultiheadAttention(6, 2, batch_first=True)), {0, 1}),
    "pools": (Fn(lambda m, x: F.max_pool2d(F.avg_pool2d(x[:, None], 2, 1, 1), 3) + F.adaptive_avg_pool2d(x, 2)), {0}),
    "resize": (Fn(lambda m, x: m.parts[0](F.interpolate(x, scale_factor=2)), nn.ConvTranspose1d(4, 2, 3, 2)), {0}),
    "heads": (Fn(lambda m, x: F.scaled_dot_product_attention(*[x[:, None]] * 3, is_causal=True).var(2)), {0}),
}


@pytest.mark.parametrize("name", DYNAMIC)
def test_sizes_may_be_known_only_in_a_run(name: str) -> None:
    module, axes = DYNAMIC[name]
    shapes = {"inputs": (dict.fromkeys(axes, torch.export.Dim.DYNAMIC),)}
    converted = odc_mlir.from_torch(module, torch.randn(2, 4, 6), shapes)
    for change in (1, 3):
        x = torch.randn([size + change if axis in axes else size for axis, size in enumerate((2, 4, 6))])
        np.testing.assert_allclose(run(converted, x)[0], module.eval()(x).detach().numpy(), atol=1e-5)


def test_names_and_places_are_those_of_the_model() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.ReLU()))
    text = str(odc_mlir.from_torch(module, torch.ones(1, 3)))
    names = {
        str(op.location) for op in odc_mlir.from_torch(module, torch.ones(1, 3)).walk() if op.name == "circle.relu"
    }
    assert len(names) == 1
    assert '"1.0/relu"' in names.pop()
    assert "circle.fully_connected" in text


def test_a_program_and_its_file_are_models(tmp_path: Path) -> None:
    x = torch.randn(1, 3)
    module = nn.Linear(3, 2).eval()
    program = torch.export.export(module, (x,))
    torch.export.save(program, tmp_path / "model.pt2")
    wanted = module(x).detach().numpy()
    for model in (program, odc_mlir.from_torch(program), tmp_path / "model.pt2"):
        np.testing.assert_allclose(run(model, x)[0], wanted, rtol=1e-6)
        np.testing.assert_allclose(run(odc_mlir.compile(model), x)[0], wanted, rtol=1e-6)
        np.testing.assert_allclose(run(odc_mlir.optimize(odc_mlir.load(model)), x)[0], wanted, rtol=1e-6)
        assert odc_mlir.lint(model) == odc_mlir.lint(odc_mlir.load(model))
        quantised = odc_mlir.quantize(model, calibration=[[x.numpy()]] * 8, help=False)
        for source in (model, quantised, odc_mlir.compile(quantised)):
            with Session(source) as session:
                np.testing.assert_allclose(session.infer([x.numpy()])[0], wanted, atol=0.05)


def test_all_that_cannot_be_converted_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def function(module: Any, x: torch.Tensor) -> torch.Tensor:
        noisy = x + torch.randn(2, 3)
        made = torch.fft.rfft(noisy).abs() + torch.rand(2, 2)
        return torch.lgamma(made) + torch.special.i0(made) + torch.linalg.inv(made)

    program = torch.export.export(Fn(function), (torch.ones(2, 3),))
    with pytest.raises(UnsupportedError) as caught:
        odc_mlir.from_torch(program)
    torch.export.save(program, tmp_path / "model.pt2")
    assert odc_lint.main([str(tmp_path / "model.pt2")]) == 1
    for text in (str(caught.value), capsys.readouterr().err):
        for name in ("randn", "rand", "_fft_r2c", "lgamma", "i0", "linalg_inv_ex"):
            assert re.search(rf"aten\.{name}\.default at \S*test_import.py:\d+: no equivalent", text), (name, text)
        assert "draw them outside" in text
        assert "with_effects" not in text


@pytest.mark.parametrize(
    "function",
    [
        lambda m, x: x + 2**40,
        lambda m, x: torch.where(x > 1, x, -(2**31) - 1),
        lambda m, x: x < 2**31,
        lambda m, x: torch.full_like(x, 2**33) + x,
    ],
)
def test_constants_beyond_32_bits_are_refused(function: Any) -> None:
    with pytest.raises(UnsupportedError, match=r"a constant has the value -?\d{10,}, which is no "):
        odc_mlir.from_torch(Fn(function), torch.arange(3))


def test_limits_of_64_bits_become_those_of_32_bits() -> None:
    module = Fn(lambda m, x: torch.where(x > 1, x, torch.iinfo(torch.int64).max).amin(0))
    assert run(odc_mlir.from_torch(module, torch.arange(4)), torch.arange(4, dtype=torch.int32))[0] == 2


def test_example_inputs_may_be_named() -> None:
    class Scaled(nn.Module):
        def forward(self, x: torch.Tensor, factor: torch.Tensor, shift: Any = None) -> Any:
            return {"y": x * factor, "unused": shift}

    x, factor = torch.ones(2), torch.tensor([2.0, 3.0])
    converted = odc_mlir.from_torch(Scaled(), {"factor": factor, "x": x})
    np.testing.assert_array_equal(run(converted, factor, x)[0], [2, 3])


def test_batches_of_running_statistics_of_none_are_normalised_by_their_own() -> None:
    module, x = nn.BatchNorm1d(3, track_running_stats=False), torch.randn(4, 3, 5)
    found = run(odc_mlir.from_torch(module, x), x)[0]
    np.testing.assert_allclose(found, module(x).detach().numpy(), atol=1e-5)


def test_inputs_that_the_program_changes_and_branches_are_refused_with_a_remedy() -> None:
    for function, text in (
        (lambda m, x: x.add_(1), r"the program changes its input 'inputs?_0'; change a clone of it"),
        (
            lambda m, x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)),
            r"cond at \S*test_import.py:\d+: .*torch.where",
        ),
    ):
        with pytest.raises(UnsupportedError, match=text):
            odc_mlir.from_torch(Fn(function), torch.ones(3))


def test_a_module_with_branches_on_values_is_refused_with_its_line() -> None:
    function = Fn(lambda m, x: x * 2 if x.sum() > 0 else x)
    with pytest.raises(ModelError, match=r"cannot export.*\(in \S*test_import.py:\d+\)"):
        odc_mlir.from_torch(function, torch.ones(3))


def test_mistakes_of_the_caller(tmp_path: Path) -> None:
    for function in (odc_mlir.load, odc_mlir.compile, Session):
        with pytest.raises(OptionError, match=r"Linear is not a model.*from_torch\(module, example_inputs\)"):
            function(nn.Linear(3, 2))
    torch.save(nn.Linear(3, 2).state_dict(), tmp_path / "model.pt")
    with pytest.raises(PackageError, match=r"PyTorch checkpoint.*torch\.export\.save"):
        odc_mlir.load(tmp_path / "model.pt")
    with pytest.raises(OptionError, match="example_inputs is missing"):
        odc_mlir.from_torch(nn.ReLU())
    with pytest.raises(OptionError, match="allowed: 'export', 'tico'"):
        odc_mlir.from_torch(nn.ReLU(), torch.ones(1), via="onnx")
    with pytest.raises(ModelError, match="PyTorch cannot export the module"):
        odc_mlir.from_torch(nn.Linear(3, 2), torch.ones(1, 4))


def test_quantised_programs_keep_their_scales() -> None:
    """Written as PT2E writes them: codes of weights, and pairs of operators around activations."""
    importlib.import_module("torch.ao.quantization.fx._decomposed")  # declares the operators
    codes = torch.ops.quantized_decomposed
    weights = torch.randint(-127, 128, (4, 3), dtype=torch.int8)
    scales, points = torch.tensor([0.01, 0.02, 0.03, 0.04]), torch.zeros(4, dtype=torch.int64)

    class Quantised(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, tensor in (("weights", weights), ("scales", scales), ("points", points)):
                self.register_buffer(name, tensor)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            rounded = codes.quantize_per_tensor(x, 0.05, 3, -128, 127, torch.int8)
            x = codes.dequantize_per_tensor(rounded, 0.05, 3, -128, 127, torch.int8)
            w = codes.dequantize_per_channel(self.weights, self.scales, self.points, 0, -127, 127, torch.int8)
            return F.linear(x, w)

    module, x = Quantised(), torch.randn(2, 3)
    converted = odc_mlir.from_torch(module, x)
    np.testing.assert_allclose(run(converted, x)[0], module(x).numpy(), rtol=1e-6)
    text = str(converted)
    assert "tensor<2x3x!quant.uniform<i8:f32, 0.05:3>>" in text
    assert "!quant.uniform<i8:f32:0, {0.01, 0.02, 0.03, 0.04}>" in text


def test_a_file_of_a_quantised_program_is_read_in_a_new_process(tmp_path: Path) -> None:
    """Only the process that wrote the file imported the module that declares the operators."""
    importlib.import_module("torch.ao.quantization.fx._decomposed")
    codes = torch.ops.quantized_decomposed

    def function(module: Any, x: torch.Tensor) -> torch.Tensor:
        rounded = codes.quantize_per_tensor(x, 0.05, 3, -128, 127, torch.int8)
        return codes.dequantize_per_tensor(rounded, 0.05, 3, -128, 127, torch.int8) + 1.0

    torch.export.save(torch.export.export(Fn(function), (torch.ones(2, 3),)), tmp_path / "model.pt2")
    script = "import sys, odc_mlir; print(odc_mlir.load(sys.argv[1]))"
    made = subprocess.run([sys.executable, "-c", script, tmp_path / "model.pt2"], capture_output=True, text=True)
    assert "!quant.uniform<i8:f32, 0.05:3>" in made.stdout, made.stderr


def rounded(x: torch.Tensor, scale: float, point: int) -> torch.Tensor:
    codes, limits = torch.ops.quantized_decomposed, (scale, point, -128, 127, torch.int8)
    return codes.dequantize_per_tensor(codes.quantize_per_tensor(x, *limits), *limits)


def test_a_mean_that_keeps_its_codes_and_a_second_rounding_are_those_of_pytorch() -> None:
    importlib.import_module("torch.ao.quantization.fx._decomposed")  # declares the operators

    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        x = rounded(F.adaptive_avg_pool2d(rounded(x, 0.05, 3), 1), 0.05, 3)
        return rounded(torch.flatten(x, 1), 0.01, -20)

    torch.manual_seed(0)
    module, x = Fn(forward), torch.randn(1, 16, 3, 3)
    quantised = odc_mlir.quantize(odc_mlir.from_torch(module, x), scheme="int8", target="npu-256").model
    package = odc_mlir.compile(quantised, target="npu-256")
    left = [layer["op"] for layer in package.report["layers"] if layer["placed"] == "host"]
    assert left == ["QUANTIZE", "DEQUANTIZE"]
    assert "circle.average_pool_2d" in str(quantised)  # codes of MEAN are rounded twice
    np.testing.assert_allclose(odc_mlir.run(package, [x.numpy()])[0], module(x).numpy(), atol=1e-6)


def test_layers_without_negative_results_round_as_pytorch_although_sums_are_rounded_twice() -> None:
    importlib.import_module("torch.ao.quantization.fx._decomposed")  # declares the operators
    torch.manual_seed(0)
    weights, limits = torch.randint(-127, 128, (64, 64), dtype=torch.int8), (-127, 127, torch.int8)

    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        w = torch.ops.quantized_decomposed.dequantize_per_tensor(m.weights, 0.0101, 0, *limits)
        return rounded(F.relu(F.linear(rounded(x, 0.0203, 0), w, m.bias)), 0.0411, -128)

    module, x = Fn(forward), torch.randn(512, 64)
    excess = 0.5 / np.frexp(0.0101 * 0.0203 / 0.0411)[0]  # of rounding sums twice, in steps of sums
    module.register_buffer("weights", weights)
    module.register_buffer("bias", (torch.randint(-999, 999, (64,)) + excess) * 0.0101 * 0.0203)
    quantised = odc_mlir.quantize(odc_mlir.from_torch(module, x), scheme="int8").model
    differ = np.abs(odc_mlir.run(quantised, [x.numpy()])[0] - module(x).numpy()) > 1e-6
    assert np.count_nonzero(differ) < 5  # of 32,768; 71 otherwise


def test_codes_of_a_smaller_range_are_clamped_as_in_pytorch(tmp_path: Path) -> None:
    """The quantiser for x86 leaves the upper half of uint8 unused if processors add up in 16 bits."""
    importlib.import_module("torch.ao.quantization.fx._decomposed")  # declares the operators
    codes, half = torch.ops.quantized_decomposed, (0, 127, torch.uint8)

    def reduced(x: torch.Tensor, scale: float, point: int) -> torch.Tensor:
        return codes.dequantize_per_tensor(codes.quantize_per_tensor(x, scale, point, *half), scale, point, *half)

    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        w = codes.dequantize_per_tensor(m.weights, 0.01, 0, -128, 127, torch.int8)
        return reduced(F.linear(reduced(x, 0.05, 60), w), 0.09, 50)

    torch.manual_seed(0)
    module, x = Fn(forward), 4 * torch.randn(64, 16)
    module.register_buffer("weights", torch.randint(-127, 128, (8, 16), dtype=torch.int8))
    package = odc_mlir.compile(odc_mlir.from_torch(module, x), target="npu-256")
    wanted = module(x).numpy()
    assert abs(wanted.max() - 77 * 0.09) < 1e-5  # code 127
    assert np.abs(odc_mlir.run(package, [x.numpy()])[0] - wanted).max() < 0.091
    assert [layer["op"] for layer in package.report["layers"] if layer["placed"] == "host"] == [
        "QUANTIZE",
        "DEQUANTIZE",
    ]
    torch.export.save(torch.export.export(module, (x,)), tmp_path / "model.pt2")
    kinds = {finding.kind for finding in odc_mlir.lint(tmp_path / "model.pt2", target="npu-256")}
    assert kinds == {"float-interface"}  # neither float-model nor packed-weights: the integers run
    assert odc_opt.main([str(tmp_path / "model.pt2"), "--stage", "quant", "-o", str(tmp_path / "out.mlir")]) == 0
    assert "circle.fully_connected" in (tmp_path / "out.mlir").read_text()


def test_factors_stay_before_a_value_that_pytorch_rounds() -> None:
    importlib.import_module("torch.ao.quantization.fx._decomposed")  # declares the operators
    torch.manual_seed(0)
    limits = (0.01, 0, -127, 127, torch.int8)

    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        w = torch.ops.quantized_decomposed.dequantize_per_tensor(m.weights, *limits)
        return rounded(F.linear(rounded(rounded(x, 0.03, 0) * m.factors, 0.04, 5), w), 0.2, 3)

    module, x = Fn(forward), torch.randn(8, 32)
    module.register_buffer("weights", torch.randint(-127, 128, (16, 32), dtype=torch.int8))
    module.register_buffer("factors", torch.rand(32) + 1)
    quantised = odc_mlir.quantize(odc_mlir.from_torch(module, x), calibration=[[x.numpy()]], help=False).model
    assert np.abs(odc_mlir.run(quantised, [x.numpy()])[0] - module(x).numpy()).max() < 0.41  # two codes


def test_what_pytorch_quantised_compiles_to_its_integers_and_the_rest_stays_float() -> None:
    importlib.import_module("torch.ao.quantization.fx._decomposed")  # declares the operators
    codes = torch.ops.quantized_decomposed

    class Quantised(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weights", torch.randint(-128, 128, (8, 3, 3), dtype=torch.int8))
            self.register_buffer("scales", torch.rand(8) / 1000 + 0.001)
            self.register_buffer("points", torch.zeros(8, dtype=torch.int64))
            self.real = nn.Conv1d(8, 8, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            w = codes.dequantize_per_channel(self.weights, self.scales, self.points, 0, -128, 127, torch.int8)
            x = rounded(F.conv1d(rounded(x, 0.03, 3), w, padding=1), 0.02, -10)
            table = rounded(torch.tanh(x), 0.0046, 3)  # kernels of TANH have the scale 1/128
            return rounded(torch.cat([table, self.real(x), x], 1), 0.01, -3)

    torch.manual_seed(0)
    module, x = Quantised().eval(), torch.randn(1, 3, 40)
    package = odc_mlir.compile(odc_mlir.from_torch(module, x), target="npu-256", verify="run")
    floats = {layer["op"]: layer["reason"] for layer in package.report["layers"] if layer["placed"] == "host"}
    assert set(floats) <= {"QUANTIZE", "DEQUANTIZE", "CONV_2D"}
    assert "is float32" in floats["CONV_2D"]
    on_npu = {layer["op"] for layer in package.report["layers"] if layer["placed"] == "npu"}
    assert on_npu >= {"CONV_2D", "TANH", "CONCATENATION"}
    (found,), (on_host,) = odc_mlir.run(package, [x.numpy()]), odc_mlir.run(package, [x.numpy()], backend="host")
    assert np.array_equal(found, on_host)
    assert np.abs((found - module(x).detach().numpy()) / 0.01).max() < 2.01


def test_a_quantised_residual_block_runs_on_the_npu_with_its_own_scales() -> None:
    importlib.import_module("torch.ao.quantization.fx._decomposed")  # declares the operators
    codes = torch.ops.quantized_decomposed

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weights", torch.randint(-127, 128, (8, 8, 3, 3), dtype=torch.int8))
            self.register_buffer("scales", torch.rand(8) / 1000 + 0.001)
            self.register_buffer("points", torch.zeros(8, dtype=torch.int64))
            self.bias = nn.Parameter(torch.randn(8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = rounded(x, 0.03, 3)
            for scale, point in ((0.05, -128), (0.07, 10)):
                w = codes.dequantize_per_channel(self.weights, self.scales, self.points, 0, -127, 127, torch.int8)
                y = F.conv2d(x, w, self.bias, padding=1)
                x = rounded(F.relu(y), scale, point) if point == -128 else rounded(y, scale, point) + x
            return rounded(F.relu(x), 0.06, -128)

    torch.manual_seed(0)
    module, x = Block().eval(), torch.randn(1, 8, 6, 6)
    quantised = odc_mlir.quantize(odc_mlir.from_torch(module, x), target="npu-256").model
    package = odc_mlir.compile(quantised, target="npu-256")
    left = [layer["op"] for layer in package.report["layers"] if layer["placed"] == "host"]
    assert left == ["QUANTIZE", "DEQUANTIZE"]
    assert package.report["segment_count"] == 1
    difference = (odc_mlir.run(package, [x.numpy()])[0] - module(x).detach().numpy()) / 0.06
    assert np.abs(difference).max() < 1.01


def test_reports_and_errors_of_the_compiler_name_lines_of_the_model() -> None:
    module = nn.Sequential(nn.Conv2d(4, 4, 3), nn.ReLU(), Fn(lambda m, x: torch.atan(F.log_softmax(x, 1))))
    converted = odc_mlir.from_torch(module, torch.zeros(1, 4, 8, 8))
    samples = [[np.random.default_rng(seed).standard_normal((1, 4, 8, 8)).astype(np.float32)] for seed in range(8)]
    quantised = odc_mlir.quantize(converted, scheme="int8", calibration=samples, target="npu-256", help=False).model
    package = odc_mlir.compile(odc_mlir.load(model_bytes(quantised)), target="npu-256")
    layers = {layer["op"]: layer.get("source", "") for layer in package.report["layers"]}
    assert "test_import.py:" in layers["ATAN2"]
    assert layers["LOG_SOFTMAX"] == layers["ATAN2"]
    assert "torch/nn/modules/" in layers["CONV_2D"]
    with pytest.raises(UnsupportedError, match=r"'atan\S*' at \S*test_import.py:\d+ \("):
        odc_mlir.compile(quantised, target="npu-256", strict=True)


def test_normalised_rows_run_on_the_npu() -> None:
    """PyTorch's normalize divides by a norm with a lower bound; the quantiser makes it RMS_NORM."""

    def forward(m: Any, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-1, -2)

    torch.manual_seed(0)
    samples = [[torch.randn(1, 2, 8, 32), 3 * torch.randn(1, 2, 8, 32)] for _ in range(8)]
    given, module = [[item.numpy() for item in sample] for sample in samples], Fn(forward)
    model = odc_mlir.from_torch(module, tuple(samples[0]))
    package = odc_mlir.compile(model, target="npu-256", quantize="int8", calibration=given, help=False)
    layers = [(layer["op"], layer["placed"]) for layer in package.report["layers"]]
    assert [op for op, placed in layers if placed == "npu"] == ["RMS_NORM", "RMS_NORM", "BATCH_MATMUL"]
    wanted = module(*samples[1]).numpy()
    noise = odc_mlir.run(package, given[1])[0] - wanted
    assert 10 * np.log10(np.square(wanted).sum() / np.square(noise).sum()) > 30
