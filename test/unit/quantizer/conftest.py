"""Fixtures of all tests of the quantiser."""

from __future__ import annotations

import pytest

from odc_mlir.universe import VERIFY_VARIABLE


@pytest.fixture(autouse=True)
def _verify_as_for_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verify candidates once, not after each pass: tests of passes and of whole models do that.

    The quantiser builds hundreds of candidates, so checks after each pass would take a quarter of the time.
    """
    monkeypatch.delenv(VERIFY_VARIABLE, raising=False)
