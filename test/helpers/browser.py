"""A real browser without a screen: pages are loaded in frames of several widths, used as a person would, and asked."""

from __future__ import annotations

import html
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
WIDTHS = (1280, 420)
_SECONDS = 60
_FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")

# What is done with every page: errors are gathered from the first line on, the first long table is sorted, searched
# and unfolded, and widths are measured.
_COLLECT = "<script>window.found=[];addEventListener('error',e=>found.push(e.message));</script>"
_DRIVE = """
function rows(box) { return [...box.querySelectorAll('tbody tr')].filter((row) => row.offsetParent !== null); }
function drive(window) {
  const document = window.document;
  const result = {errors: window.found, overflow: document.documentElement.scrollWidth - window.innerWidth};
  result.tables = [...document.querySelectorAll('div.table')].map((box) => {
    const about = {shown: rows(box).length, all: box.querySelectorAll('tbody tr').length};
    about.caption = box.querySelector('caption').textContent;
    about.values = {};
    box.querySelectorAll('thead th').forEach((head, place) => {
      const cells = [...box.querySelectorAll('tbody tr')].map((row) => row.cells[place].dataset.value);
      if (cells.every((value) => value !== undefined)) about.values[head.textContent] = cells.map(Number);
    });
    const tools = box.previousElementSibling;
    const has = tools !== null && tools.className === 'tools';
    const fold = has ? tools.querySelector('button') : null;
    if (fold) { fold.click(); about.unfolded = rows(box).length; }
    const numbers = [...box.querySelectorAll('thead th')].findIndex((head) => head.className === 'number');
    if (numbers >= 0) {
      const cells = () => rows(box).map((row) => row.cells[numbers]);
      const values = () => cells().map((cell) => Number(cell.dataset.value)).filter((value) => !Number.isNaN(value));
      const button = box.querySelectorAll('thead th button')[numbers];
      button.click(); about.down = values();
      button.click(); about.up = values();
    }
    if (has) {
      const search = tools.querySelector('input');
      const word = rows(box)[0].textContent.trim().slice(-12);
      search.value = word; search.dispatchEvent(new window.Event('input'));
      about.searched = rows(box).every((row) => row.textContent.toLowerCase().includes(word.toLowerCase()));
      search.value = 'no row holds this'; search.dispatchEvent(new window.Event('input'));
      about.none = rows(box).length;
    }
    return about;
  });
  return result;
}
"""


def find_browser() -> str | None:
    """The path of an installed Chromium, None without one."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def use_pages(browser: str, pages: Mapping[str, str], folder: Path) -> dict[str, Any]:
    """What using each of ``pages`` showed, by ``name@width``: errors, overflow in pixels, rows of every table."""
    frames = [
        f'<iframe id="{name}@{width}" width="{width}" height="900" srcdoc="{html.escape(_COLLECT + page)}"></iframe>'
        for name, page in pages.items()
        for width in WIDTHS
    ]
    run = (
        "addEventListener('load', () => { const all = {}; for (const frame of document.querySelectorAll('iframe'))"
        " all[frame.id] = drive(frame.contentWindow); document.body.textContent = JSON.stringify(all); });"
    )
    path = folder / "frames.html"
    path.write_text(f"<!DOCTYPE html><meta charset=utf-8><body>{''.join(frames)}<script>{_DRIVE}{run}</script>")
    flags = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--user-data-dir={folder / 'profile'}",
    ]
    done = subprocess.run(
        [browser, *flags, "--virtual-time-budget=20000", "--dump-dom", path.as_uri()],
        capture_output=True, text=True, timeout=_SECONDS, check=True, env={**os.environ, "HOME": str(folder)},
    )  # fmt: skip
    text = done.stdout
    found: dict[str, Any] = json.loads(html.unescape(text[text.index("{") : text.rindex("}") + 1]))
    return found


def take_picture(browser: str, page: Path, picture: Path, width: int) -> None:
    """A screenshot of ``page`` at ``width`` pixels."""
    subprocess.run(
        [browser, *_FLAGS, f"--window-size={width},2400", f"--screenshot={picture}", page.as_uri()],
        capture_output=True,
        timeout=_SECONDS,
    )
