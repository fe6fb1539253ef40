"""What settings say about ``odc-run``, as they do about sessions: the environment's, then those of a package."""

from __future__ import annotations

import argparse
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odc_mlir.runtime.api import Backend
    from odc_mlir.runtime.execution.executor import Executor
    from odc_mlir.runtime.package import Package
    from odc_mlir.runtime.session import Session

_log = logging.getLogger(__name__)


def backend_of_settings(package: Package | None) -> Backend:
    """The backend that BACKENDS names first of those that can run the model, ``auto`` where it names none.

    Raises SessionError where none of those that the environment names can.
    """
    from odc_mlir.errors import SessionError
    from odc_mlir.runtime.session.backends import HOST, LITERT, NPU, split_backends, usable_backends
    from odc_mlir.runtime.session.settings import Settings

    settings = Settings(package.files.config if package is not None else {})
    names = split_backends(settings.get("BACKENDS"))
    backends: dict[str, Backend] = {HOST: "host", LITERT: "litert"}
    try:
        first = usable_backends(names, package.plan if package is not None else None)[0] if names else NPU
    except SessionError as error:
        others = settings.without_backends(error.message)
        if others is None or others.get("BACKENDS"):  # they are the environment's
            raise
        _log.warning("%s", others.ignored[-1])
        return "auto"
    return backends.get(first, "auto")


def threads_of_settings(package: Package | None) -> int:
    """How many threads run native code, by NUM_THREADS; raises OptionError for what the environment cannot mean."""
    from odc_mlir.runtime.session.settings import Settings

    return Settings(package.files.config if package is not None else {}).threads


def session_of_settings(
    arguments: argparse.Namespace, model: str, package: Package | None, executor: Executor
) -> Session | None:
    """A session that compiles the model on the device, where OnDeviceCompilation is switched on; raises OdcError."""
    from odc_mlir.runtime.auto.original import why_not
    from odc_mlir.runtime.session import Session
    from odc_mlir.runtime.session.settings import ENABLE, Settings

    settings = Settings(package.files.config if package is not None else {})
    if not settings.flag(ENABLE) or (package is not None and package.plan is not None):
        return None
    asked = {"--backend": arguments.backend != "auto", "--numerics": arguments.numerics != "fixed"}
    asked |= {"--profile": arguments.profile, "--trace": arguments.trace, "--signature": arguments.signature}
    flag = next((name for name, given in asked.items() if given), None)
    reason = f"{flag} is given" if flag is not None else why_not(executor.graph)
    if reason is not None:
        _log.warning("the model is not compiled on the device: %s", reason)
        return None
    session = Session(model, strict=arguments.strict, max_bytes=arguments.max_bytes)
    session.prepare()
    return session


def session_text(session: Session) -> str:
    """How far compiling on the device is, as ``odc-run`` prints it."""
    status = session.odc_status
    recorded = f"{status.records} of {status.records_needed} recorded"
    text = f"ON DEVICE    {status.phase}, served by {status.serving}, {recorded}"
    return text if status.reason is None else f"{text}: {status.reason}"
