"""These tests need PyTorch, an extra: without it they are left out, and do not count as skipped."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["test_*.py"]
