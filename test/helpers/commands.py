"""The commands of the project: their parsers, and the arguments that name files."""

from __future__ import annotations

import argparse
import importlib
import tomllib
from collections.abc import Callable, Iterator, Sequence

from helpers.data import REPOSITORY

COMMANDS: dict[str, str] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["scripts"]


def main_of(command: str) -> Callable[[Sequence[str]], int]:
    """The function behind a command."""
    module, _, name = COMMANDS[command].partition(":")
    main: Callable[[Sequence[str]], int] = getattr(importlib.import_module(module), name)
    return main


def parsers(command: str) -> Iterator[tuple[list[str], argparse.ArgumentParser]]:
    """Every parser of a command with the words that lead to it."""
    module = importlib.import_module(COMMANDS[command].partition(":")[0])
    yield from _below([], module.build_parser())


def _below(words: list[str], parser: argparse.ArgumentParser) -> Iterator[tuple[list[str], argparse.ArgumentParser]]:
    yield words, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from _below([*words, name], inner)
