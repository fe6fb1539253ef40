"""Buffers of a local memory that are filled in turn."""

from __future__ import annotations

from odc_mlir.transforms.npu.schedule.program import Buffer


class Slots:
    """Buffers used in turn. What a slot holds is remembered, so that nothing is loaded twice in a row."""

    def __init__(self, buffers: list[Buffer]) -> None:
        self.buffers = buffers
        self._keys: list[object] = [None] * len(buffers)
        self._next = 0

    def get(self, key: object) -> tuple[Buffer, bool]:
        """The slot that holds ``key``, and whether it has to be filled first."""
        if key in self._keys:
            return self.buffers[self._keys.index(key)], False
        index = self._next
        self._keys[index] = key
        self._next = (index + 1) % len(self.buffers)
        return self.buffers[index], True

    def take(self) -> Buffer:
        """The next slot, whatever it holds."""
        return self.get(object())[0]
