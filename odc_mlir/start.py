"""Entry points of the commands (``odc-opt`` is ``odc_mlir.start:opt``). SIGINT ends a command within two seconds.

The exit code is then 130. While a command works, the signal raises KeyboardInterrupt. The command can then remove
temporary files. At all other times, or if the clean-up takes very long, the process ends at once.
"""

from __future__ import annotations

import _thread
import atexit
import gc
import os
import signal
import sys
import time

TYPE_CHECKING = False  # typing is imported after the handler is installed
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

EXIT_INTERRUPTED = 130
_GRACE_SECONDS = 1.5  # from the signal to the end of the process
# Allocations between garbage collections. With Python's 700, collections take a tenth of a short command's time.
_ALLOCATIONS = 20_000


def __getattr__(name: str) -> Callable[[], int]:
    """Return the entry point of the command ``odc-NAME``."""
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return lambda: start_command(f"{__package__}.tools.odc_{name}", f"odc-{name}")


def start_command(module: str, prog: str) -> int:
    """Run ``main()`` of ``module``, the command ``prog``, and return the exit code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not ignored, as in the background of a script
        interrupts = Interrupts(prog)
        signal.signal(signal.SIGINT, interrupts)
        interrupts.watch()
    gc.set_threshold(_ALLOCATIONS, *gc.get_threshold()[1:])
    from importlib import import_module

    code: int = import_module(module).main()
    return code


class Interrupts:
    """Handler of SIGINT in a process that runs one command."""

    def __init__(self, prog: str) -> None:
        self.prog = prog
        self.happened = False
        self.is_told = False
        self._depth = 0  # nesting depth of blocks in which the handler raises KeyboardInterrupt

    def __call__(self, number: int, frame: object) -> None:
        if self.happened or not self._depth:
            self.end()
        self.happened = True
        raise KeyboardInterrupt

    def __enter__(self) -> None:
        """Enter a block in which the handler raises KeyboardInterrupt. Outside of blocks it ends the process."""
        self._depth += 1

    def __exit__(self, *error: object) -> None:
        self._depth -= 1

    def watch(self) -> None:
        """Start a thread that watches for the signal, even while the main thread runs no Python code."""
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)  # after all other exit functions
        sys.unraisablehook = self._report_lost
        _thread.start_new_thread(self._end_late, (reader,))

    def end(self) -> NoReturn:
        """End the process."""
        if not self.is_told:
            os.write(2, f"{self.prog}: interrupted\n".encode())
        os._exit(EXIT_INTERRUPTED)

    def _end_late(self, reader: int) -> None:
        while os.read(reader, 1) != bytes([signal.SIGINT]):
            pass
        time.sleep(_GRACE_SECONDS)
        self.end()

    @staticmethod
    def _report_lost(lost: Any) -> None:
        """Report an unraisable exception, for example of a destructor, if it is not the interrupt."""
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            sys.__unraisablehook__(lost)


def current_handler() -> Interrupts | None:
    """Return the handler of this process, or None if :func:`start_command` was not called."""
    handler = signal.getsignal(signal.SIGINT)
    return handler if isinstance(handler, Interrupts) else None
