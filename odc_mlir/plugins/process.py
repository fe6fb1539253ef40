"""Starts Python for work of ours such that nothing of the application gets into it but what it is given.

The application's working folder, its script's folder and PYTHONSTARTUP and the like have no say in what is imported. Of
the environment only the variables below are passed on, those whose names begin with ``ODC_``, and those that
``ODC_PASS_ENV`` names, separated by semicolons: what a plugin's own licence server needs, for example.
"""

from __future__ import annotations

import os
import site
import sys
from pathlib import Path

PASS_VARIABLE = "ODC_PASS_ENV"
_PREFIXES = ("ODC_", "LC_")
_PASSED = frozenset(
    {"HOME", "LANG", "LANGUAGE", "PATH", "TMPDIR", "TZ", "USER", "LOGNAME", "XDG_CACHE_HOME"}
    | {"LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"}  # some Pythons do not start without
    | {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"}
    | {"SYSTEMROOT", "TEMP", "TMP", "USERPROFILE", "LOCALAPPDATA"}
)
# What is found behind Python's own modules cannot stand in for one of them.
_BOOT = (
    "import sys; module, *folders = sys.argv[1:]; del sys.argv[1:]; "
    "sys.path += [folder for folder in folders if folder not in sys.path]; "
    "import runpy; runpy.run_module(module, run_name='__main__', alter_sys=True)"
)


def isolated_command(module: str) -> list[str]:
    """What runs ``module`` of this package, wherever that was imported from."""
    return [sys.executable, "-I", "-c", _BOOT, module, *_folders()]


def _folders() -> list[str]:
    """Where this package is, and what an isolated Python leaves out of what users install packages into."""
    found = [str(Path(__file__).resolve().parents[2])]
    if site.ENABLE_USER_SITE:
        found.append(site.getusersitepackages())
    return found + [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(entry)]


def isolated_environment(**more: str) -> dict[str, str]:
    """The variables that such a process gets, and ``more``."""
    named = {name.strip() for name in os.environ.get(PASS_VARIABLE, "").split(";")}
    found = {
        name: value
        for name, value in os.environ.items()
        if name in _PASSED or name in named or name.startswith(_PREFIXES)
    }
    # Other than the folder that a process works in, where it was named does not follow from where it is.
    if path := found.get("ODC_PLUGIN_PATH"):
        found["ODC_PLUGIN_PATH"] = os.pathsep.join(os.path.abspath(entry) for entry in path.split(os.pathsep) if entry)
    return found | more
