"""The commands of the project: their parsers, and the arguments that name files."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Iterator, Sequence

from odc_mlir.tools.commands import commands

COMMANDS = {f"odc-{name}": module for name, module in commands().items()}


def main_of(command: str) -> Callable[[Sequence[str]], int]:
    """The function behind a command."""
    main: Callable[[Sequence[str]], int] = importlib.import_module(COMMANDS[command]).main
    return main


def parsers(command: str) -> Iterator[tuple[list[str], argparse.ArgumentParser]]:
    """Every parser of a command with the words that lead to it."""
    module = importlib.import_module(COMMANDS[command])
    yield from _below([], module.build_parser())


def _below(words: list[str], parser: argparse.ArgumentParser) -> Iterator[tuple[list[str], argparse.ArgumentParser]]:
    yield words, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from _below([*words, name], inner)
