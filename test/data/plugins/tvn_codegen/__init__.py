"""A codegen plugin that writes the request in front of the model."""

from __future__ import annotations

from pathlib import Path

from odc_mlir.plugins.request import CodegenRequest

MAGIC = b"TVN1"


class TvnCodegen:
    """Makes ``.tvn`` files: magic, the request as one line of JSON, the model."""

    name = "tvn"
    extension = "tvn"
    quantization = "uint8"

    def supports(self, model: str) -> str | None:
        """Files that say so are refused."""
        return "the model asks for it" if Path(model).read_bytes().startswith(b"refuse") else None

    def compile(self, request: CodegenRequest) -> int:
        """Write the file; a model of three bytes gets the exit code 3."""
        data = Path(request.model).read_bytes()
        if len(data) == 3:
            return 3
        Path(request.output).write_bytes(MAGIC + request.to_json().encode() + b"\n" + data)
        return 0

    def validate(self, output: str) -> None:
        """The file starts with the magic."""
        if not Path(output).read_bytes().startswith(MAGIC):
            raise ValueError("no magic")


def create_codegen() -> TvnCodegen:
    """The plugin."""
    return TvnCodegen()
