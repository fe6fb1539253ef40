"""Configuration of real lit: ``lit test/filecheck``. pytest runs the same files in-process."""

import os
import sys

import lit.formats

config.name = "odc-mlir"
config.test_format = lit.formats.ShTest(execute_external=False)  # lit's own shell: the same everywhere, knows `not`
config.suffixes = [".mlir"]
config.excludes = ["Inputs", "Output"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.environ.get("ODC_LIT_OUTPUT", os.path.join(os.path.dirname(__file__), "..", "build", "lit"))
# The commands of the environment that runs lit, whether it is activated or not
config.environment["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])
for name in ("HOME", "ODC_TEST_DATA", "ODC_CACHE_DIR"):
    if name in os.environ:
        config.environment[name] = os.environ[name]
