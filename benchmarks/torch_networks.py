"""CPU time and accuracy of importing networks of torchvision, timm and transformers, and their cost on an NPU.

    python benchmarks/torch_networks.py [--no-native] [--json FILE] [NETWORK ...]
    python benchmarks/torch_networks.py --npu [--target NAME] [NETWORK ...]
    python benchmarks/torch_networks.py --pt2e [--target NAME] [NETWORK ...]

The networks have random weights and small inputs; they are written as their libraries write them. For each, the table
gives the CPU seconds of PyTorch's export, of PyTorch's decompositions, and of our conversion, and the largest
difference from PyTorch on host kernels and in native code, divided by the largest magnitude of PyTorch's outputs. The
status is 1 if a network takes more than 5 s or differs by more than 1e-4.

``--npu``: quantise to int8 and compile instead, imported by us and by TICO. The table gives the operators on the host,
the segments and the cycles of both ways. The status is 1 if the NPU's outputs differ from the host's, or if our way
takes more operators on the host, more segments, or over 2 % more cycles than TICO's.

``--pt2e``: quantise ten networks with PyTorch's tools (torchao) and compile them: five with random weights, and five
that are trained on digits first. The table compares outputs with PyTorch's execution: the largest difference in codes,
and the percentage of codes that differ, for the NPU and for PyTorch itself. PyTorch adds up in another order (images
channels last, or no oneDNN), or computes in float64, also with biases rounded to the integers of int8 kernels. Then
follow the agreement of the largest outputs of NPU and PyTorch in percent, and the share of products on the NPU, without
products that PyTorch computes with floats. The status is 1 if that share is below 1, or if the NPU's outputs differ
from the host's.

Needs the extra ``torch`` and torchvision, timm and transformers; ``--npu`` compares with TICO if it is installed.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import operator
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import odc_mlir
from odc_mlir.errors import OdcError
from odc_mlir.frontend.torch import importer
from odc_mlir.runtime.reporting.report import build_report

ROOT = Path(__file__).resolve().parents[1]
HERE = str(ROOT / "benchmarks")
sys.path[:] = [path for path in sys.path if path != HERE]  # transformers.py beside this file would hide the library

MOST_SECONDS = 5.0
MOST_DIFFERENCE = 1e-4
MOST_CYCLES = 1.02  # times the cycles of the model that TICO imports
SAMPLES = 4
TRAINED_ON, JUDGED_ON = 400, 64  # labelled digits
RANDOM_IMAGES = 16

TORCHVISION = {
    **dict.fromkeys(("alexnet", "squeezenet1_1", "vgg11", "resnet18", "resnet50", "resnext50_32x4d"), 64),
    **dict.fromkeys(("mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large", "mnasnet1_0"), 64),
    **dict.fromkeys(("shufflenet_v2_x1_0", "efficientnet_b0", "regnet_x_400mf", "regnet_y_400mf"), 64),
    **dict.fromkeys(("densenet121", "googlenet", "convnext_tiny", "swin_t"), 64),
    "inception_v3": 96,
    "segmentation.lraspp_mobilenet_v3_large": 64,
    "segmentation.deeplabv3_mobilenet_v3_large": 64,
}
TIMM = (
    "mobilevit_xxs ghostnet_100 mixer_s32_224 poolformer_s12 convmixer_768_32 repvgg_a0 edgenext_xx_small levit_128s"
    " tf_efficientnet_lite0 mobileone_s0 hardcorenas_a rexnet_100 deit_tiny_patch16_224 dla34 fastvit_t8"
)
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
WORDS = {"vocab_size": 99, **SIZES}
DECODERS = {**WORDS, "num_key_value_heads": 2, "use_cache": False}
TRANSFORMERS: dict[str, dict[str, Any]] = {
    "BertModel": WORDS,
    "RobertaModel": WORDS,
    "ElectraModel": {**WORDS, "embedding_size": 32},
    "AlbertModel": {**WORDS, "embedding_size": 16},
    "DistilBertModel": {"vocab_size": 99, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64},
    "GPT2Model": {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "use_cache": False},
    "LlamaForCausalLM": DECODERS,
    "Qwen2ForCausalLM": DECODERS,
    "T5EncoderModel": {"vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4},
    "ViTModel": {**SIZES, "image_size": 32, "patch_size": 8},
}


def networks() -> dict[str, Callable[[], tuple[torch.nn.Module, torch.Tensor]]]:
    """Constructors of the networks, each with an example of its input."""

    def of_torchvision(name: str, size: int) -> tuple[torch.nn.Module, torch.Tensor]:
        import torchvision

        options: dict[str, Any] = {"weights_backbone": None} if "segmentation" in name else {}
        options |= {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
        return torchvision.models.get_model(name.rpartition(".")[2], **options), torch.randn(1, 3, size, size)

    def of_timm(name: str) -> tuple[torch.nn.Module, torch.Tensor]:
        import timm

        module = timm.create_model(name)
        shape = module.default_cfg["input_size"] if module.default_cfg.get("fixed_input_size") else (3, 64, 64)
        return module, torch.randn(1, *shape)

    def of_transformers(name: str, sizes: dict[str, Any]) -> tuple[torch.nn.Module, torch.Tensor]:
        import transformers

        kind = getattr(transformers, name)
        module = kind(kind.config_class(**sizes))
        return module, torch.randn(1, 3, 32, 32) if name.startswith("ViT") else torch.randint(0, 99, (1, 16))

    found: dict[str, Callable[[], tuple[torch.nn.Module, torch.Tensor]]] = {}
    found |= {name: lambda name=name, size=size: of_torchvision(name, size) for name, size in TORCHVISION.items()}
    found |= {name: lambda name=name: of_timm(name) for name in TIMM.split()}
    found |= {name: lambda name=name, sizes=sizes: of_transformers(name, sizes) for name, sizes in TRANSFORMERS.items()}
    return found


def outputs_of(found: Any) -> Iterator[np.ndarray[Any, Any]]:
    """Tensors of a module's result, in the order of an exported program."""
    if isinstance(found, torch.Tensor):
        yield found.detach().numpy()
    else:
        for part in found.values() if isinstance(found, dict) else found or ():
            yield from outputs_of(part)


def difference(found: list[np.ndarray[Any, Any]], wanted: list[np.ndarray[Any, Any]]) -> float:
    """Largest difference of all outputs, divided by the largest magnitude of the wanted ones."""
    pairs = list(zip(found, wanted, strict=True))
    return max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)) for a, b in pairs)


def inputs_of(x: torch.Tensor) -> list[np.ndarray[Any, Any]]:
    """``x`` with the element type of our models."""
    return [x.numpy().astype(np.int32 if x.dtype == torch.int64 else np.float32)]


def imported(module: torch.nn.Module, x: torch.Tensor) -> tuple[Any, dict[str, float]]:
    """Our module, and CPU seconds of the three steps of its import."""
    gc.collect()
    start = time.process_time()
    program = importer.exported(module, x, None)
    exported = time.process_time()
    program = importer.decomposed(program)
    decomposed = time.process_time()
    made = importer.import_program(program)
    end = time.process_time()
    seconds = {"export": exported - start, "decompose": decomposed - exported, "convert": end - decomposed}
    return made, seconds


def check(name: str, module: torch.nn.Module, x: torch.Tensor, native: bool) -> dict[str, Any]:
    """A row of the table of imports."""
    with torch.no_grad():
        wanted = list(outputs_of(module(x)))
    made, seconds = imported(module, x)
    row: dict[str, Any] = {"network": name, **seconds, "host": difference(odc_mlir.run(made, inputs_of(x)), wanted)}
    if native:
        row["native"] = difference(odc_mlir.run(made, inputs_of(x), backend="native"), wanted)
    total = sum(seconds.values())
    row["passed"] = total <= MOST_SECONDS and max(row["host"], row.get("native", 0)) <= MOST_DIFFERENCE
    times = " ".join(f"{value:9.2f}" for value in (*seconds.values(), total))
    print(f"{name:44s} {times}  {row['host']:9.1e} {row.get('native', float('nan')):9.1e}", flush=True)
    return row


def compiled(model: Any, samples: list[list[np.ndarray[Any, Any]]], target: str) -> dict[str, Any]:
    """Figures of a model on the NPU: operators on the host, segments, cycles, and whether bits are the host's."""
    quantised = odc_mlir.quantize(model, scheme="int8", calibration=samples, help=False, target=target)
    package = odc_mlir.compile(quantised.model, target=target)
    report = build_report(package, quick=True)
    on_host = odc_mlir.run(quantised.model, samples[0])
    exact = all(np.array_equal(a, b) for a, b in zip(odc_mlir.run(package, samples[0]), on_host, strict=True))
    return {
        "host": report["host_op_count"],
        "segments": report["segment_count"],
        "cycles": report["cycles_total"],
        "exact": exact,
    }


def compare(name: str, module: torch.nn.Module, x: torch.Tensor, target: str) -> dict[str, Any]:
    """A row of the table of the NPU."""
    ways: dict[str, dict[str, Any]] = {}
    samples = [inputs_of(x)]
    for _ in range(SAMPLES - 1):
        samples.append(inputs_of(torch.randn_like(x) if x.is_floating_point() else torch.randint_like(x, 99)))
    texts = []
    for via in ("export", "tico"):
        try:
            given = (
                samples if via == "export" else [[item.astype(x.numpy().dtype) for item in each] for each in samples]
            )
            ways[via] = found = compiled(odc_mlir.from_torch(module, x, via=via), given, target)
            texts.append(f"{found['host']:5d} {found['segments']:5d} {found['cycles']:11d}")
        except OdcError as error:
            if via == "export":
                raise
            texts.append(str(error)[:60])
    ours, theirs = ways["export"], ways.get("tico", ways["export"])
    passed = ours["exact"] and all(ours[key] <= theirs[key] for key in ("host", "segments"))
    passed &= ours["cycles"] <= MOST_CYCLES * theirs["cycles"]
    print(f"{name:44s} {'  '.join(texts)}  {'' if passed else 'missed'}", flush=True)
    return {"network": name, **ways, "passed": bool(passed)}


def pt2e_networks() -> dict[str, Callable[[], tuple[torch.nn.Module, torch.Tensor]]]:
    """Constructors of the networks of ``--pt2e``, each with an example of its input."""
    nn, known = torch.nn, networks()
    convolutions = (
        *(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)),
    )
    layers = (nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    return {
        "convolutions": lambda: (nn.Sequential(*convolutions), torch.randn(1, 3, 32, 32)),
        "perceptron": lambda: (nn.Sequential(*layers), torch.randn(1, 16)),
        **{name: known[name] for name in ("resnet18", "mobilenet_v2", "squeezenet1_1")},
        **{name: lambda make=make: (make(), torch.randn(1, 1, 8, 8)) for name, make in DIGITS.items()},
    }


class Residual(torch.nn.Module):
    """Layers with their input added to their result."""

    def __init__(self, *layers: torch.nn.Module) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x) + x


class Attention(torch.nn.Module):
    """Self-attention of 32 channels with four heads."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.join = torch.nn.Linear(32, 96), torch.nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(2, (4, 8)).transpose(1, 2) for part in self.project(x).chunk(3, 2))
        found = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        return self.join(found.transpose(1, 2).flatten(2))


class Tokens(torch.nn.Module):
    """Pixels of ``[N, C, H, W]`` as tokens ``[N, H * W, C]``."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(2).transpose(1, 2)


def convolution(inputs: int, outputs: int, stride: int = 1, groups: int = 1, size: int = 3) -> torch.nn.Sequential:
    """Convolution and normalisation."""
    made = torch.nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return torch.nn.Sequential(made, torch.nn.BatchNorm2d(outputs))


def of_digits(*layers: torch.nn.Module, channels: int = 64) -> torch.nn.Sequential:
    """Classifier of ten digits by the means of ``channels``."""
    nn = torch.nn
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


def digits_cnn() -> torch.nn.Module:
    """Convolutions and a pooling layer."""
    nn = torch.nn
    parts = (convolution(1, 16), nn.ReLU(), nn.MaxPool2d(2), convolution(16, 32), nn.ReLU(), convolution(32, 64))
    return of_digits(*parts, nn.ReLU())


def digits_residual() -> torch.nn.Module:
    """Residual blocks."""
    nn = torch.nn
    blocks = [Residual(convolution(32, 32), nn.ReLU(), convolution(32, 32)) for _ in range(4)]
    return of_digits(
        convolution(1, 32), nn.ReLU(), *(part for block in blocks for part in (block, nn.ReLU())), channels=32
    )


def digits_depthwise() -> torch.nn.Module:
    """Separable convolutions."""
    nn = torch.nn
    parts: list[torch.nn.Module] = [convolution(1, 16), nn.ReLU6()]
    for inputs, outputs, stride in ((16, 32, 1), (32, 32, 2), (32, 64, 1), (64, 64, 1)):
        parts += [convolution(inputs, inputs, stride, inputs), nn.ReLU6(), convolution(inputs, outputs, size=1)]
        parts.append(nn.ReLU6())
    return of_digits(*parts)


def digits_perceptron() -> torch.nn.Module:
    """Fully connected layers."""
    nn = torch.nn
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 48), nn.ReLU(), nn.Linear(48, 10))


def digits_attention() -> torch.nn.Module:
    """A block of a transformer on patches."""
    nn = torch.nn
    block = (nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))
    layers = (Residual(nn.LayerNorm(32), Attention()), Residual(nn.LayerNorm(32), *block))
    return nn.Sequential(nn.Conv2d(1, 32, 2, 2), Tokens(), *layers, nn.Flatten(), nn.Linear(512, 10))


DIGITS = {
    made.__name__: made for made in (digits_cnn, digits_residual, digits_depthwise, digits_perceptron, digits_attention)
}


def digits(name: str) -> dict[str, torch.Tensor]:
    """Images ``[N, 1, 8, 8]`` and labels of a file in ``examples/digits``."""
    with np.load(ROOT / "examples" / "digits" / f"{name}.npz") as file:
        found = {key: torch.from_numpy(file[key]) for key in file.files}
    return found | {"in_0": found["in_0"].permute(0, 3, 1, 2).contiguous()}


def train(module: torch.nn.Module) -> None:
    """Train a classifier on the first labelled digits."""
    known = digits("evaluation")
    images, labels = known["in_0"][:TRAINED_ON], known["y"][:TRAINED_ON].long()
    optimiser, steps = torch.optim.AdamW(module.parameters(), 3e-3, weight_decay=1e-2), 600
    rates = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, steps)
    module.train()
    for _ in range(steps):
        some = torch.randint(TRAINED_ON, (64,))
        noisy = images[some] + 0.1 * torch.randn_like(images[some])
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(module(noisy), labels[some]).backward()
        optimiser.step()
        rates.step()


def quantised_by_pytorch(
    module: torch.nn.Module, x: torch.Tensor, samples: list[torch.Tensor] | None
) -> torch.nn.Module:
    """Module quantised to int8 by torchao on ``samples``, by default on random inputs, which also set normalisation."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.testing.pt2e._xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config

    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    if samples is None:
        module.train()
        for _ in range(3):
            module(torch.randn(8, *x.shape[1:]))
    prepared = prepare_pt2e(torch.export.export(module.eval(), (x,)).module(), quantizer)
    for sample in samples or (torch.randn_like(x) for _ in range(16)):
        prepared(sample)
    return convert_pt2e(prepared)


class InFloat64(torch.fx.Interpreter):
    """Interpreter of a quantised program that computes in float64 between dequantisation and quantisation."""

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        found = super().get_attr(target, args, kwargs)
        return found.double() if found.is_floating_point() else found

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        name = str(target).removeprefix("quantized_decomposed.")
        if name.startswith("quantize_per_tensor"):
            x, scale, zero, low, high = args[:5]
            return torch.clamp(torch.round(x.double() / float(np.float32(scale))) + zero, low, high).to(torch.int8)
        if name.startswith("dequantize_per_tensor"):
            return (args[0].double() - args[2]) * float(np.float32(args[1]))
        if name.startswith("dequantize_per_channel"):
            shape = [-1 if axis == args[3] else 1 for axis in range(args[0].ndim)]
            return args[0].double() * args[1].reshape(shape)
        return super().call_function(target, args, kwargs)


def with_whole_biases(module: torch.nn.Module) -> torch.nn.Module:
    """Copy of a quantised module with biases of whole steps of the sums, as int8 kernels have them."""
    made = copy.deepcopy(module)
    for node in made.graph.nodes:
        if str(node.target) in ("aten.conv2d.default", "aten.linear.default") and len(node.args) > 2 and node.args[2]:
            source, weights, bias = node.args[:3]
            while "dequantize" not in str(source.target):
                source = source.args[0]
            steps = float(np.float32(source.args[1])) * getattr(made, weights.args[1].target).double()
            values = operator.attrgetter(bias.target)(made)
            values.copy_(torch.round(values / steps) * steps)
    return made


def compare_codes(name: str, module: torch.nn.Module, x: torch.Tensor, target: str) -> dict[str, Any]:
    """A row of the table of networks that PyTorch quantised."""
    samples, images = None, [torch.randn_like(x) for _ in range(RANDOM_IMAGES)]
    if name in DIGITS:
        train(module)
        samples = list(digits("calibration")["in_0"].split(1))
        images = list(digits("evaluation")["in_0"][-JUDGED_ON:].split(1))
    with torch.no_grad():
        return compare_images(name, quantised_by_pytorch(module, x, samples), images, target)


def compare_images(name: str, module: torch.nn.Module, images: list[torch.Tensor], target: str) -> dict[str, Any]:
    """Compare codes of a quantised module's output for ``images``."""
    program, whole = torch.export.export(module, (images[0],)), with_whole_biases(module)
    step = next(node for node in program.graph.nodes if node.op == "output").args[0][0].args[1]
    package = odc_mlir.compile(program, target=target)
    same, found = True, []
    for image in images:
        ours = odc_mlir.run(package, inputs_of(image))[0]
        same &= np.array_equal(ours, odc_mlir.run(package, inputs_of(image), backend="host")[0])
        turned = module(image.to(memory_format=torch.channels_last) if image.ndim == 4 else image).numpy()
        with torch.backends.mkldnn.flags(enabled=False):
            plain = module(image).numpy()
        exact, rounded = (next(outputs_of(InFloat64(each).run(image))) for each in (module, whole))
        found.append([module(image).numpy(), ours, turned, plain, exact, rounded])
    wanted, *others = np.stack([np.stack(each) for each in found], axis=1)
    codes = [np.abs(other - wanted) / step for other in others]
    worst, shares = ([float(measure(each)) for each in codes] for measure in (np.max, lambda each: np.mean(each > 0.5)))
    agreement = float(np.mean(others[0].argmax(-1) == wanted.argmax(-1)))
    layers = [layer for layer in package.report["layers"] if "is float32" not in (layer["reason"] or "")]
    macs = [(layer.get("macs") or 0, layer["placed"]) for layer in layers]
    share = sum(count for count, place in macs if place != "host") / sum(count for count, _ in macs)
    texts = [f"{value:3.0f} {100 * part:5.1f}" for value, part in zip(worst, shares, strict=True)]
    print(f"{name:24s} {' '.join(texts)} {100 * agreement:9.1f} {share:9.3f}", flush=True)
    row = {"network": name, "codes": worst, "shares": shares, "agreement": agreement, "share": share}
    return row | {"passed": bool(same and share == 1)}


def main() -> int:
    """Print the table; return 1 if a network misses a limit."""
    summary, _, details = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=details, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NETWORK", help="default: all")
    parser.add_argument("--npu", action="store_true", help="quantise and compile; compare with TICO's import")
    parser.add_argument("--pt2e", action="store_true", help="compare codes of networks that PyTorch quantised")
    parser.add_argument("--target", default="npu-256", help="of --npu and --pt2e (default: npu-256)")
    parser.add_argument("--no-native", action="store_true", help="leave native code out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to FILE")
    arguments = parser.parse_args()
    known = pt2e_networks() if arguments.pt2e else networks()
    if unknown := set(arguments.names) - known.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    warnings.simplefilter("ignore")
    figures = f"{'host':>5s} {'segm.':>5s} {'cycles':>11s}"
    heads = [figures, f"{figures} of TICO"] if arguments.npu else []
    if arguments.pt2e:
        columns = ("NPU", "ch. last", "no oneDNN", "float64", "int. bias", "top-1", "products")
        heads = [" ".join(f"{column:>9s}" for column in columns)]
    heads = heads or [f"{'export':>9s} {'decomp.':>9s} {'convert':>9s} {'total':>9s}", f"{'host':>9s} {'native':>9s}"]
    print(f"{'network':{24 if arguments.pt2e else 44}s}", "  ".join(heads))
    odc_mlir.from_torch(torch.nn.Linear(2, 2), torch.ones(1, 2))  # imports PyTorch's own modules, once
    rows = []
    for name in arguments.names or known:
        torch.manual_seed(0)
        module, x = known[name]()
        module.eval()
        try:
            if arguments.pt2e:
                rows.append(compare_codes(name, module, x, arguments.target))
            elif arguments.npu:
                rows.append(compare(name, module, x, arguments.target))
            else:
                rows.append(check(name, module, x, not arguments.no_native))
        except OdcError as error:
            print(f"{name:44s} {error}", flush=True)
            rows.append({"network": name, "error": str(error), "passed": False})
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")
    missed = [row["network"] for row in rows if not row["passed"]]
    print(
        f"{len(rows) - len(missed)} of {len(rows)} networks pass" + (f"; missed: {', '.join(missed)}" if missed else "")
    )
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
