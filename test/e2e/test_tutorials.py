"""The tutorials print what they say, and their pages become notebooks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import tutorials


@pytest.mark.slow
@pytest.mark.parametrize("name", [path.stem for path in tutorials.paths()])
def test_it_prints_what_it_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODC_CACHE_DIR", str(tmp_path / "cache"))
    script = Path(tutorials.__file__)
    run = subprocess.run(
        [sys.executable, str(script), name], cwd=tmp_path, capture_output=True, text=True, timeout=110, check=False
    )
    assert run.returncode == 0, run.stderr


TEXT = """# Title

<!-- needs: nosuchmodule -->
```python
raise RuntimeError
```

```python
print("one  two")
```

```output
one ...
```

End.
"""


def test_what_needs_a_missing_module_is_left_out(tmp_path: Path) -> None:
    ((cell, printed),) = tutorials.run(TEXT, tmp_path)
    assert printed == "one  two\n"
    assert cell.output is not None
    assert tutorials.matches(cell.output, printed)
    assert not tutorials.matches("two", printed)
    assert not tutorials.matches("one", printed)


def test_a_notebook_has_the_same_cells() -> None:
    made = json.loads(json.dumps(tutorials.notebook(TEXT)))
    kinds = [(cell["cell_type"], cell["source"]) for cell in made["cells"]]
    assert kinds == [
        ("markdown", "# Title"),
        ("code", "raise RuntimeError"),
        ("code", 'print("one  two")'),
        ("markdown", "End."),
    ]
    assert made["cells"][2]["outputs"][0]["text"] == "one ...\n"
