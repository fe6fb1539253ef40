"""Text generation of ``odc-run``: flags, output of tokens as they are generated, and costs of tokens."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from odc_mlir.errors import OptionError
from odc_mlir.formats.quantities import counted, time_text
from odc_mlir.tools.files import add_input

if TYPE_CHECKING:
    from odc_mlir.formats.tokenizer import Tokenizer
    from odc_mlir.runtime.package import Package

_INCOMPLETE = "\N{REPLACEMENT CHARACTER}"


def add_generation_flags(group: argparse._ArgumentGroup) -> None:
    """Add the flags of text generation."""
    group.add_argument("--prompt", metavar="TEXT", help="text that a language model continues")
    text = "tokenizer of the language model: tokenizer.json, or llama2.c's"
    add_input(group, "--tokenizer", metavar="FILE", stdin=False, help=text)
    group.add_argument("--max-tokens", type=int, metavar="N", default=64, help="token limit (%(default)s)")
    group.add_argument("--temperature", type=float, default=0.0, help="0: greedy decoding (%(default)s)")
    group.add_argument("--top-k", type=int, metavar="K", help="draw from the K likeliest tokens")
    group.add_argument("--seed", type=int, metavar="N", default=0, help="seed of the draws (%(default)s)")


class Printer:
    """Printer of the generated text. It prints a character of several tokens after the last of these tokens."""

    def __init__(self, tokenizer: Tokenizer, prompt_ids: Sequence[int]) -> None:
        self._tokenizer, self._ids, self._shown = tokenizer, list(prompt_ids), ""
        self._start = time.perf_counter()
        self.seconds: list[float] = []

    def __call__(self, token: int) -> None:
        """Print the text of ``token``, and record the time."""
        self.seconds.append(time.perf_counter() - self._start)
        self._ids.append(token)
        text = self._tokenizer.decode(self._ids)
        if not text.endswith(_INCOMPLETE):
            print(text[len(self._shown) :], end="", flush=True)
            self._shown = text


def generate_text(arguments: argparse.Namespace, model: str) -> None:
    """Print the continuation of --prompt, then speed and energy. Raises OdcError."""
    from odc_mlir.formats.tokenizer import read_tokenizer
    from odc_mlir.runtime.session import Session

    if arguments.tokenizer is None:
        raise OptionError("--prompt needs the model's tokenizer", hint="add --tokenizer FILE")
    tokenizer, package = read_tokenizer(arguments.tokenizer), _package(arguments, model)
    prompt_ids = tokenizer.encode(arguments.prompt)
    with Session(
        model if package is None else package,
        None if arguments.backend in ("auto", "npu") else arguments.backend,
        strict=arguments.strict,
        threads=arguments.threads,
        max_bytes=arguments.max_bytes,
        trust_code=arguments.trust_code,
    ) as session:
        if arguments.signature is not None:
            session.configure_signature(arguments.signature)
        session.prepare()
        printer = Printer(tokenizer, prompt_ids)
        chosen = (arguments.max_tokens, arguments.temperature, arguments.top_k, arguments.seed)
        session.generate(prompt_ids, *chosen, printer, stop=tokenizer.ends)
    print()
    if arguments.backend not in ("auto", "npu"):
        package = None
    arguments.files.tell(_summary(package, len(prompt_ids), printer.seconds))


def _package(arguments: argparse.Namespace, model: str) -> Package | None:
    from odc_mlir.formats.package import is_package
    from odc_mlir.runtime.api import compile
    from odc_mlir.runtime.package import Package
    from odc_mlir.runtime.reporting.report_object import is_modelled

    package = Package.from_path(model, trust_code=arguments.trust_code) if is_package(model) else None
    if arguments.backend == "npu" and (package is None or package.plan is None or not is_modelled(package.plan)):
        return compile(model, target=arguments.target, memory=arguments.memory, strict=arguments.strict)
    return package


def _summary(package: Package | None, read: int, seconds: Sequence[float]) -> Iterator[str]:
    from odc_mlir.runtime.reporting.report_object import is_modelled
    from odc_mlir.runtime.reporting.report_table import energy_line

    simulated = ""
    if package is not None and package.plan is not None and package.plan.segments and is_modelled(package.plan):
        report = package.report
        latency = report["latency_ms"]
        yield f"modelled, on the target: {time_text(1e6 * latency)} a token, {1000 / latency:,.0f} tokens/s"
        yield f"{energy_line(report['energy'])}, for each token"
        simulated = ", of the simulator and not of the NPU"
    speed = (len(seconds) - 1) / (seconds[-1] - seconds[0]) if len(seconds) > 1 else 1 / seconds[0]
    yield (
        f"measured here, wall time of this machine{simulated}: {speed:,.1f} tokens/s, the first of "
        f"{counted(len(seconds), 'token')} {seconds[0]:.3f} s after a prompt of {read}"
    )
