"""Text form of the documents of ``odc-dump``: headings, tables with aligned columns, shortened lists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from odc_mlir.formats.quantities import aligned

Document = Mapping[str, Any]

_INDENT = "  "
_SHOWN_ITEMS = 4
_SHOWN_HEX_DIGITS = 64


def render(document: Document) -> Iterator[str]:
    """Yield the lines that describe ``document``."""
    renderers = {"nnpackage": _package, "npu": _segment, "cpu": _native, "records": _records, "minmax": _minmax}
    kind = document["format"]
    if kind in _MODELS:
        yield from _model(document)
    elif kind in renderers:
        yield from renderers[kind](document)
    else:
        yield f"{text(document['file'])}: {document['bytes']:,} bytes of code in another package's format"


_MODELS = {"circle": "Circle", "tflite": "TFLite"}


def _model(document: Document) -> Iterator[str]:
    name = _MODELS[document["format"]]
    yield f"{text(document['file'])}: {name} model, version {document['version']}, {document['bytes']:,} bytes"
    if document["description"] is not None:
        yield f"description: {text(document['description'])}"
    for unknown in document["unknown"]:
        yield f"unknown: {unknown}"
    for signature in document["signatures"]:
        names = [
            ", ".join(f"{text(key)}={index}" for key, index in signature[end].items()) for end in ("inputs", "outputs")
        ]
        yield f"signature {text(signature['key'])}: subgraph {signature['subgraph']}, ({names[0]}) -> ({names[1]})"
    for entry in document["metadata"]:
        yield f"metadata {text(entry['name'])}: buffer {entry['buffer']}, {entry['bytes']:,} bytes"
    sizes = [buffer["bytes"] for buffer in document["buffers"]]
    yield f"buffers: {len(sizes)}, of which {sum(map(bool, sizes))} hold {sum(sizes):,} bytes"
    for subgraph in document["subgraphs"]:
        yield ""
        yield from _subgraph(subgraph)


def _subgraph(subgraph: Document) -> Iterator[str]:
    name = "" if subgraph["name"] is None else f" {text(subgraph['name'])}"
    yield f"subgraph {subgraph['index']}{name}: {_indices(subgraph['inputs'])} -> {_indices(subgraph['outputs'])}"
    rows: list[Sequence[str]] = [
        (
            str(tensor["index"]),
            tensor["role"],
            tensor["dtype"] + _shape(tensor),
            f"{tensor['buffer']}:{tensor['bytes']:,}" if tensor["bytes"] else "",
            _quantization(tensor["quantization"]) + (" sparse" if tensor["sparsity"] is not None else ""),
            text(tensor["name"]),
        )
        for tensor in subgraph["tensors"]
    ]
    yield from _table(("tensor", "role", "type", "buffer:bytes", "quantisation", "name"), rows)
    rows = [
        (
            str(operator["index"]),
            _label(operator) + f" v{operator['version']}",
            f"{_indices(operator['inputs'])} -> {_indices(operator['outputs'])}",
            _options(operator),
        )
        for operator in subgraph["operators"]
    ]
    yield from _table(("operator", "kind", "tensors", "options"), rows)


def _label(operator: Document) -> str:
    custom = operator["custom_code"]
    return f"{operator['name']}({text(custom)})" if custom else str(operator["name"])


def _shape(tensor: Document) -> str:
    if tensor["shape"] is None:
        return "[*]"
    dims = zip(tensor["shape_signature"] or tensor["shape"], tensor["shape"], strict=True)
    return "[" + ",".join("?" if -1 in pair else str(pair[1]) for pair in dims) + "]"


def _quantization(quantization: Document | None) -> str:
    if quantization is None:
        return ""
    parts = []
    scales, zero_points = quantization["scale"], quantization["zero_point"]
    if len(scales) == 1:
        parts.append(f"{scales[0]:.6g}" + (f":{zero_points[0]}" if zero_points else ""))
    elif scales:
        parts.append(f"{len(scales)} scales along {quantization['axis']}")
    if quantization["min"] or quantization["max"]:
        parts.append(f"range {_short(quantization['min'])} to {_short(quantization['max'])}")
    if quantization["details"] is not None:
        parts.append(" ".join(f"{key}={_short(value)}" for key, value in quantization["details"].items()))
    return ", ".join(parts)


def _options(operator: Document) -> str:
    parts = [f"{key}={_short(value)}" for key, value in operator["options"].items()]
    for key in ("intermediates", "mutating_variable_inputs"):
        if operator[key]:
            parts.append(f"{key}={_indices(operator[key])}")
    if custom := operator["custom_options"]:
        shown = custom[:_SHOWN_HEX_DIGITS] + ("..." if len(custom) > _SHOWN_HEX_DIGITS else "")
        parts.append(f"{len(custom) // 2} bytes {shown}")
    return " ".join(parts)


def _short(value: Any) -> str:
    if isinstance(value, list):
        items = [_short(item) for item in value[:_SHOWN_ITEMS]]
        return "[" + ",".join(items) + (f",... {len(value)}" if len(value) > _SHOWN_ITEMS else "") + "]"
    if isinstance(value, float):
        return f"{value:.6g}"
    return text(value) if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)


def _records(document: Document) -> Iterator[str]:
    digest = document["digest"]
    yield f"{text(document['file'])}: records of ranges, version {document['version']}, {document['bytes']:,} bytes"
    yield f"model: {digest or 'unknown'}"
    for entry in document["shapes"]:
        shapes = " ".join("[" + ",".join(map(str, shape)) + "]" for shape in entry["inputs"])
        yield f"runs: {entry['runs']} on {shapes}"
    yield f"raw inputs kept: {document['raw_inputs']}"
    yield ""
    rows: list[Sequence[str]] = [
        (
            str(tensor["subgraph"]),
            str(tensor["runs"]),
            *(_number(tensor[key]) for key in ("minimum", "maximum", "mean", "deviation")),
            str(tensor["elements"]),
            str(tensor["nan"] + tensor["infinite"]),
            text(tensor["name"]),
        )
        for tensor in document["tensors"]
    ]
    columns = ("subgraph", "runs", "minimum", "maximum", "mean", "deviation", "elements", "not finite", "name")
    yield from _table(columns, rows)
    if document["findings"]:
        yield ""
    for finding in document["findings"]:
        where = f" {text(finding['tensor'])}" if finding["tensor"] else ""
        yield f"{finding['severity']}{where}: {finding['text']}"


def _minmax(document: Document) -> Iterator[str]:
    yield (
        f"{text(document['file'])}: minmax.bin, version {document['version']}, {document['runs']} runs, "
        f"{document['bytes']:,} bytes"
    )
    yield ""
    rows: list[Sequence[str]] = [
        (
            *(str(entry[key]) for key in ("model", "subgraph", "kind", "index", "runs")),
            _number(entry["minimum"]),
            _number(entry["maximum"]),
        )
        for entry in document["ranges"]
    ]
    yield from _table(("model", "subgraph", "kind", "index", "runs", "minimum", "maximum"), rows)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _segment(document: Document) -> Iterator[str]:
    metadata = document["metadata"]
    yield (
        f"{text(document['file'])}: NPU program for {text(str(metadata.get('target')))}, memory "
        f"{text(str(metadata.get('memory')))}, {document['bytes']:,} bytes"
    )
    yield f"code: {document['code_bytes']:,} bytes, {len(document['instructions'])} instructions"
    yield "regions: " + ", ".join(f"{name} {size:,} bytes" for name, size in document["region_bytes"].items() if size)
    for key, value in metadata.items():
        yield f"{text(key)}: {_short(value)}"
    for end in ("inputs", "outputs"):
        rows = [
            (
                text(tensor["name"]),
                f"{tensor['dtype']}[{','.join(map(str, tensor['shape']))}]",
                "" if tensor["scale"] is None else f"{_short(tensor['scale'])}:{tensor['zero_point']}",
                f"{tensor['region']}+{tensor['offset']:#x}",
            )
            for tensor in document[end]
        ]
        yield from _table((end[:-1], "type", "quantisation", "place"), rows)
    rows = [
        (entry["kind"], f"{entry['macs']:,}", _ranges(entry["ranges"]), text(entry["name"]))
        for entry in document["operators"]
    ]
    yield from _table(("operator", "macs", "instructions", "name"), rows)
    yield "program:"
    width = len(str(len(document["instructions"])))
    for index, line in enumerate(document["instructions"]):
        yield f"{_INDENT}{index:{width}}  {line}"


def _native(document: Document) -> Iterator[str]:
    yield f"{text(document['file'])}: native code for {text(document['target'])}, {document['bytes']:,} bytes"
    yield f"processor: {text(document['triple'])}, needs {', '.join(map(text, document['features'])) or 'no features'}"
    yield f"function: {text(document['entry'])}"
    yield (
        f"code: {document['code_bytes']:,} bytes, constants {document['constants_bytes']:,} bytes, arena "
        f"{document['arena_bytes']:,} bytes"
    )
    yield f"buffers: aligned to {document['alignment_bytes']} bytes, {document['slack_bytes']} bytes more after each"
    for end in ("inputs", "outputs"):
        rows = [
            (text(port["name"]), f"{text(port['dtype'])}[{','.join(map(str, port['shape']))}]")
            for port in document[end]
        ]
        yield from _table((end[:-1], "type"), rows)


def _ranges(ranges: Sequence[Sequence[int]]) -> str:
    shown = [f"{first}-{first + count - 1}" for first, count in ranges[:_SHOWN_ITEMS] if count]
    return ",".join(shown) + (",..." if len(ranges) > _SHOWN_ITEMS else "")


def _package(document: Document) -> Iterator[str]:
    yield f"{text(document['file'])}: nnpackage"
    yield from _table(("member", "bytes"), [(text(m["path"]), f"{m['bytes']:,}") for m in document["members"]])
    for key, value in document["config"].items():
        yield f"config {text(key)}: {text(value)}"
    plan = document["plan"]
    if plan is not None:
        target, memory = text(str(plan["target"])), text(str(plan["memory"]))
        yield f"plan: target {target}, memory {memory}, {len(plan['steps'])} steps"
        rows = [
            (str(index), step["kind"], text(step.get("file", "")), _indices(step["operators"]))
            for index, step in enumerate(plan["steps"])
        ]
        yield from _table(("step", "where", "program", "operators"), rows)
    for part in (*document["models"], *document["segments"]):
        yield ""
        yield from render(part)


def _indices(indices: Sequence[Any]) -> str:
    return "(" + ", ".join(str(index) for index in indices) + ")"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield aligned columns below heads, with numbers aligned right. If there are no rows, yield nothing."""
    content = list(rows)
    if not content:
        return
    columns = zip(heads, zip(*content, strict=True), strict=True)
    numeric = {head for head, cells in columns if all(cell.replace(",", "").isdigit() for cell in cells)}
    yield from (_INDENT + line for line in aligned(heads, content, numeric))


def text(value: str) -> str:
    """Return ``value`` safe to print: quoted and escaped if it is empty or has control characters."""
    return value if value and value.isprintable() else repr(value)
