"""Counts the memory of a computation on fake tensors: what is alive, of which kind, and the peak.

Fake tensors have shapes and types but no numbers, while autograd, optimizers, FSDP2 and DDP keep and free exactly the
storages that they keep and free for real. Workspaces inside kernels are not seen.
"""

import weakref

from torch import Tensor, UntypedStorage

KINDS = {
    "parameters": "parameters",
    "vectors": "gradients, engine's vectors",
    "optimizer": "optimizer",
    "activations": "graphs of a micro-batch",
    "gathered": "whole layers or buckets of ranks",
    "copies": "frozen or further copies",
}
"""What memory is for, in short and as a table says it."""


class Ledger:
    """Knows every storage from its creation to its end, as an allocator would.

    Attributes:
        kind: Kind of what is created now.
        live: Bytes alive of each kind, of one process.
        peak: ``live`` when its sum was largest.
        graphs: ``activations`` and ``gathered`` when their sum was largest.
    """

    def __init__(self) -> None:
        self.kind = "parameters"
        self.live, self.peak = dict.fromkeys(KINDS, 0.0), dict.fromkeys(KINDS, 0.0)
        self.graphs = {"activations": 0.0, "gathered": 0.0}
        self._known: dict[int, weakref.ref[UntypedStorage]] = {}
        self._resized: dict[int, tuple[weakref.ref[UntypedStorage], int]] = {}

    def count_as(self, kind: str) -> None:
        """Storages made from here on are of this kind."""
        self.kind = kind

    def begin(self) -> None:
        """Reset the peak to what is alive now; storages made from here on are vectors until ``count_as`` is called."""
        self.peak, self.kind = dict(self.live), "vectors"

    def note(self, x: Tensor, *, resized: bool = False) -> None:
        """Count a tensor's storage once; if ``resized``, FSDP2 frees it and fills it again with whole layers."""
        storage, kind = x.untyped_storage(), "gathered" if resized else self.kind
        key = id(storage)  # torch keeps one Python object a storage, as long as anything holds the storage
        if key in self._known:
            return
        size = storage.nbytes()

        def end(_: weakref.ref[UntypedStorage]) -> None:
            self.live[kind] -= self._resized.pop(key)[1] if key in self._resized else size
            del self._known[key]

        self._known[key] = weakref.ref(storage, end)
        if resized:
            self._resized[key] = self._known[key], size
        self.live[kind] += size
        self._look()

    def repeat(self) -> None:
        """Count the largest graph so far as if it were alive for a moment."""
        self._compare(self.live | self.graphs)

    def _look(self) -> None:
        """Compare what is alive with what was alive at most."""
        for key, (reference, last) in self._resized.items():
            storage = reference()
            size = last if storage is None else storage.nbytes()
            if size != last:
                self._resized[key] = reference, size
                self.live["gathered"] += size - last
        if self.live["activations"] + self.live["gathered"] > sum(self.graphs.values()):
            self.graphs = {kind: self.live[kind] for kind in self.graphs}
        self._compare(self.live)

    def _compare(self, live: dict[str, float]) -> None:
        if sum(live.values()) > sum(self.peak.values()):
            self.peak = dict(live)
