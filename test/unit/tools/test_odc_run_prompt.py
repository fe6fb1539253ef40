"""odc-run --prompt: the text, the cost of a token, and the flags that go with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.language import PIECES, language_model, likeliest, tokenizer_bytes
from helpers.models import model_bytes
from odc_mlir.tools import odc_package, odc_run


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A package with a model, and its tokenizer."""
    monkeypatch.chdir(tmp_path)
    Path("m.circle").write_bytes(model_bytes(language_model({"decode": 1, "prefill": 3})))
    assert odc_package.main(["pack", "m.circle", "-o", "p"]) == 0
    Path("tokenizer.bin").write_bytes(tokenizer_bytes())
    return ["p", "--tokenizer", "tokenizer.bin"]


@pytest.mark.parametrize("backend", ["auto", "npu"])
def test_a_text_is_continued(backend: str, files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert odc_run.main([*files, "--prompt", "dab", "--max-tokens", "4", "--backend", backend]) == 0
    text, *told = capsys.readouterr().out.splitlines()
    made = likeliest([1, 3, 7, 19], 4)
    wanted = made[: next((at for at, token in enumerate(made) if token in (1, 2)), 4)]
    assert text == "dab" + "".join(PIECES[token] for token in wanted)
    assert told[-1].startswith("measured here, wall time of this machine: ")
    assert told[-1].endswith("s after a prompt of 4")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--prompt", "a", "--num_runs", "2"], "--num_runs does not apply to texts (--prompt); leave it out"),
        (["--prompt", "a", "--numerics", "litert"], "--numerics does not apply to texts"),
        (["--seed", "2"], "--tokenizer needs the text of --prompt, which is not given; add --prompt TEXT"),
        (["--prompt", "a", "--max-tokens", "9"], "the context is full: a prompt of 3 tokens and 9 more need 11"),
        (["--prompt", "?"], "the text '?' has characters that the tokenizer lacks"),
    ],
)
def test_flags_that_do_not_fit_are_refused(
    flags: list[str], message: str, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert odc_run.main([*files, *flags]) == 1
    printed = capsys.readouterr()
    assert message in printed.err
    assert not printed.out


def test_a_prompt_needs_a_tokenizer(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert odc_run.main(["p", "--prompt", "a"]) == 1
    assert "--prompt needs the model's tokenizer; add --tokenizer FILE" in capsys.readouterr().err


def test_packages_state_their_step(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert odc_package.main(["inspect", "p", "--json"]) == 0
    step = json.loads(capsys.readouterr().out)["step"]
    assert (step["token"], step["mask"], step["context"], len(step["caches"])) == ("tok", "mask", 8, 2)
