"""Drive every HTML page in Chromium at 1,280 and 420 pixels, light and dark: overflow, clipped text, errors, bytes.

On a compile page, the cards must equal the JSON report, and an operator selected in one view must be selected in all.

    python benchmarks/pages.py [--keep DIR] [MODEL]

Exit code 1 if a page is wider than the screen, cuts text off, has an error, or is larger than its limit. `--keep`
writes the pages and screenshots to a folder.
"""

from __future__ import annotations

import argparse
import html
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "test")]

import odc_mlir  # noqa: E402
from helpers.browser import WIDTHS, find_browser  # noqa: E402
from odc_mlir import samples  # noqa: E402
from odc_mlir.formats.quantities import counted, share_text, time_text  # noqa: E402
from odc_mlir.runtime.reporting import report_compare, report_html  # noqa: E402
from odc_mlir.simulator.path import CAUSES  # noqa: E402
from odc_mlir.tools import odc_explore, odc_opt  # noqa: E402

FLOAT_MODEL = ROOT / "examples" / "on_device" / "digits_mobile_hard.circle"
MODEL = ROOT / "examples" / "pytorch" / "digits_mbv2.circle"
SCHEMES = {"dark": 0, "light": 1}  # of Blink's setting preferredColorScheme
LIMITS = {"report": 300_000, "view": 400_000, "view-alloc": 1_000_000}
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=10000")

# Text is cut off if its box hides what is wider than it, or if it leaves its picture.
CHECK = """
<script>
const found = [];
addEventListener('error', (event) => found.push(event.message));
addEventListener('load', () => {
  const open = () => document.querySelectorAll('details').forEach((item) => { item.open = true; });
  open();
  setTimeout(() => { open(); check(); }, 3000);
});
function check() {
  const clipped = [];
  for (const item of document.querySelectorAll('body *')) {
    const style = getComputedStyle(item);
    const hides = style.overflowX === 'hidden' || style.overflowX === 'clip';
    const is_seen = style.clipPath === 'none' && !item.title && item.textContent.trim();
    if (hides && is_seen && item.scrollWidth > item.clientWidth + 1)
      clipped.push(item.tagName + ': ' + item.textContent.trim().slice(0, 60));
  }
  for (const picture of document.querySelectorAll('svg')) {
    const frame = picture.getBoundingClientRect();
    for (const item of picture.querySelectorAll('text')) {
      const box = item.getBoundingClientRect();
      if (box.height && box.height < 9) clipped.push('svg, unreadable: ' + item.textContent.slice(0, 60));
      if (box.width && (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1
          || box.bottom > frame.bottom + 1))
        clipped.push('svg: ' + item.textContent.slice(0, 60));
    }
  }
  const scheme = matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
  const overflow = document.documentElement.scrollWidth - innerWidth;
  const result = {errors: found, clipped, overflow, scheme, width: innerWidth};
  result.lines = document.querySelectorAll('pre').length;
  result.cards = [...document.querySelectorAll('.figure strong')].map((card) => card.textContent);
  result.links = links();
  parent.postMessage(JSON.stringify(result), '*');
}
const VIEWS = ['operators', 'when-operators-ran', 'rooflines', 'instructions', 'sram-over-time'];
function links() {
  const mark = (id, operator, kind) => document.querySelector(`#${id} [data-op="${operator}"]${kind}`);
  const seen = (operator, kind) => VIEWS.filter((id) => mark(id, operator, kind));
  const operators = [...new Set([...document.querySelectorAll('[data-op]')].map((item) => item.dataset.op))];
  const common = operators.find((operator) => seen(operator, '').length === VIEWS.length);
  if (common === undefined) return {common: false, wrong: []};
  const wrong = [];
  const judge = (way) => {
    const others = [...document.querySelectorAll('.selected')].some((item) => item.dataset.op !== common);
    if (others || seen(common, '.selected').length !== VIEWS.length) wrong.push(way);
    document.dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape'}));
    if (document.querySelector('.selected')) wrong.push(`${way}, cleared`);
  };
  for (const id of VIEWS) {
    mark(id, common, '').dispatchEvent(new MouseEvent('click', {bubbles: true}));
    judge(id);
  }
  const row = document.querySelector(`tr[data-op="${common}"]`);
  row.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', bubbles: true}));
  judge('keyboard');
  return {common: true, wrong};
}
</script>
"""


def cards_of(report: Mapping[str, Any]) -> list[str]:
    """Return the values of the five cards by the JSON report."""
    latency, parts = report["latency_ms"], report["modelled"]
    rate, on_host = 1e3 / latency, counted(report["host_op_count"], "operator")
    on_npu = sum(layer["macs"] for layer in report["layers"] if layer["placed"] == "npu")
    cards = [time_text(1e6 * latency), f"{rate:,.0f}", share_text(on_npu / report["macs"])]
    if parts["host_ms"] > parts["npu_ms"]:
        return [*cards, "operators on the host", f"{on_host} on the NPU"]
    best = min(report["what_if"].values(), key=lambda what: what["cycles"])
    return [*cards, CAUSES[max(report["causes"], key=report["causes"].get)], best["text"]]


def make_pages(model: Path, folder: Path) -> tuple[dict[str, str], dict[str, Mapping[str, Any]]]:
    """Return the text of one page of each kind, and the JSON reports of compile pages."""
    data = str(samples.path("calibration.npz"))
    quantized = odc_mlir.quantize(FLOAT_MODEL, calibration=data, help=False, max_samples=8)
    package = odc_mlir.compile(quantized.model)
    reports = {"report": package.report, "float": odc_mlir.compile(FLOAT_MODEL).report}
    pages = {
        "report": report_html.render(package.report, report_html.operator_code(package)),
        "float": report_html.render(reports["float"]),
        "verdict": quantized.report_html(),
        "compare": report_compare.render([package.report, odc_mlir.compile(quantized.model, memory="sram").report]),
    }
    small = str(samples.path("digits_cnn_int8.circle"))
    explored = folder / "explore.html"
    axes = ["array.macs_per_cycle=64,256", "memory=flash,sram"]
    assert odc_explore.main([small, "--vary", *axes, "-o", str(explored), "-q", "--overwrite"]) == 0
    pages["explore"] = explored.read_text()
    stored = folder / "model.circle"
    images = str(samples.path("digits_mbv2.calibration.npz"))
    odc_mlir.quantize(model, calibration=images, help=False, max_samples=8).save(stored, overwrite=True)
    for name, stage in (("view", "npu"), ("view-alloc", "npu-alloc")):
        page = folder / f"{name}.html"
        words = ["--stage", stage, "--target", "npu-256", "-o", str(folder / "ir.mlir"), "--view", str(page)]
        assert odc_opt.main([str(stored), *words, "--overwrite"]) == 0
        pages[name] = page.read_text()
    return pages, {name: json.loads(json.dumps(report)) for name, report in reports.items()}


def look(browser: str, page: str, width: int, scheme: str, folder: Path) -> dict[str, Any]:
    """Return what a page shows in a frame of this width."""
    frame = f'<iframe width="{width}" height="900" style="border:0" srcdoc="{html.escape(CHECK + page)}"></iframe>'
    keep = "addEventListener('message', (event) => { document.body.textContent = event.data; });"
    path = folder / "frame.html"
    path.write_text(f"<!DOCTYPE html><meta charset=utf-8><script>{keep}</script><body>{frame}")
    flags = [
        *FLAGS,
        f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}",
        f"--user-data-dir={folder / 'profile'}",
    ]
    done = subprocess.run([browser, *flags, "--dump-dom", path.as_uri()], capture_output=True, text=True, timeout=120)
    text = html.unescape(done.stdout)
    found: dict[str, Any] = json.loads(text[text.index('{"errors"') : text.rindex("}") + 1])
    return found


def problems_of(browser: str, name: str, page: str, report: Mapping[str, Any] | None, folder: Path) -> list[str]:
    """Return everything that is wrong with a page."""
    size = len(page.encode())
    told = [f"{name}: {size:,} bytes, at most {LIMITS[name]:,}"] if size > LIMITS.get(name, size) else []
    for width in WIDTHS:
        for scheme in SCHEMES:
            found, place = look(browser, page, width, scheme, folder), f"{name} at {width}, {scheme}"
            assert (found["scheme"], found["width"]) == (scheme, width)
            told += [f"{place}: shows no change"] if name.startswith("view") and not found["lines"] else []
            told += [f"{place}: error {text}" for text in found["errors"]]
            told += [f"{place}: too wide by {found['overflow']} pixels"] if found["overflow"] > 0 else []
            told += [f"{place}: cuts off {text!r}" for text in found["clipped"][:5]]
            if report is not None and found["cards"] != (cards := cards_of(report)):
                told.append(f"{place}: the cards say {found['cards']}, the report {cards}")
            told += (
                [f"{place}: no operator is in all views"] if name == "report" and not found["links"]["common"] else []
            )
            told += [f"{place}: not selected in all views by {way}" for way in found["links"]["wrong"]]
    return told


def main() -> int:
    """Check all pages; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path, default=MODEL, help="float model for the rewrite viewer")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="write pages and screenshots here")
    arguments = parser.parse_args()
    if (browser := find_browser()) is None:
        print("there is no Chromium")
        return 1
    told = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        pages, reports = make_pages(arguments.model, folder)
        for name, page in pages.items():
            found = problems_of(browser, name, page, reports.get(name), folder)
            print(f"{name}: {len(page.encode()):,} bytes, {len(found)} problems", flush=True)
            told += found
            for scheme, number in SCHEMES.items() if arguments.keep else ():
                arguments.keep.mkdir(parents=True, exist_ok=True)
                path = arguments.keep / f"{name}.html"
                path.write_text(page)
                for width in WIDTHS:
                    picture = arguments.keep / f"{name}-{width}-{scheme}.png"
                    flags = [*FLAGS, f"--blink-settings=preferredColorScheme={number}", f"--window-size={width},2400"]
                    flags += [f"--user-data-dir={folder / 'profile'}", f"--screenshot={picture}"]
                    subprocess.run([browser, *flags, path.as_uri()], capture_output=True, timeout=120)
    print(*told, sep="\n")
    return int(bool(told))


if __name__ == "__main__":
    raise SystemExit(main())
