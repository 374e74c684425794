"""The part of a rollout engine that runs inside vLLM's worker process: it loads new weights, and ends with its owner.

vLLM adds this class to the bases of its worker (`worker_extension_cls`) and calls the methods by `collective_rpc`. It
must import neither ray nor vLLM, and must not change the old weights before the checksum of the new ones is verified.
"""

from __future__ import annotations

import mmap
import os
import select
import threading
from typing import Any

import torch
from torch import Tensor

from actors.weight_transport import BroadcastChannel, opened
from learners.weights import ChecksumMismatch, WeightManifest, unpack, verify

OWNER_VARIABLE = "WARPSMITH_ENGINE_OWNER"  # process id of the actor that a vLLM worker belongs to


class WeightReceiver:
    """Extends vLLM's worker (0.26 to 0.33, CPU and GPU)."""

    model_runner: Any  # vLLM's, as is the device
    device: torch.device
    _channel: BroadcastChannel | None = None
    _held: list[tuple[str, Tensor]]

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Any:
        """Watches the owner from the first moment, so that a kill during start-up leaves no process behind.

        vLLM makes the worker long before it answers calls, so a method that starts the watch would be called too late.
        """
        if owner := os.environ.get(OWNER_VARIABLE):
            threading.Thread(target=end_with, args=(int(owner),), name="owner-watch", daemon=True).start()
        return super().__new__(cls)

    def receive_weights(self, path: str, manifest: str) -> tuple[bool, str]:
        """Loads a part of the weights from the file `path`. `manifest`: its WeightManifest as JSON.

        Returns whether it was loaded, and the checksum of the bytes that arrived. If that is not the manifest's,
        nothing is loaded. This is an answer and not an exception, because vLLM passes exceptions on as text.
        """
        with open(path, "rb") as file:
            # Never closed here: vLLM may keep a view. The mapping ends with its last view.
            buffer = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        return self._receive(buffer, WeightManifest.from_json(manifest))

    def receive_shared_weights(self, handles: dict[str, str], manifest: str) -> tuple[bool, str]:
        """The same for a part in the memory of this worker's GPU. `handles`: those of `DeviceMemory`."""
        with opened(handles) as data:
            return self._receive(data, WeightManifest.from_json(manifest))

    def join_weight_channel(self, address: str, port: int, size: int, timeout: float) -> int:
        """Meets the learner and the other workers, for `receive_broadcast_weights`; returns this worker's rank."""
        device = torch.device(self.device).type
        if self._channel is not None:
            self._channel.close()
        self._channel = BroadcastChannel(address, port, size, sends=False, timeout=timeout, device=device)
        return self._channel.rank

    def receive_broadcast_weights(self, manifest: str) -> tuple[bool, str]:
        """The same for a part that the learner sends through its channel to all members."""
        expected = WeightManifest.from_json(manifest)
        if self._channel is None:
            raise RuntimeError("weight channel: this worker has joined none")
        data = torch.empty(expected.total_bytes, dtype=torch.uint8, device=self.device)
        self._channel.broadcast(data)
        return self._receive(data, expected)

    def seed_sampling(self, seed: int) -> None:
        """Seeds the generators that responses are sampled with."""
        torch.manual_seed(seed)

    def _receive(self, buffer: Any, expected: WeightManifest) -> tuple[bool, str]:
        try:
            verify(expected, buffer)
        except ChecksumMismatch as mismatch:
            return False, mismatch.actual
        tensors = unpack(expected, buffer)
        if torch.device(self.device).type == "cuda":
            self.model_runner.get_model().load_weights(tensors)
            torch.cuda.synchronize()  # after the answer the sender fills the buffer again
            return True, expected.checksum
        # The CPU build repacks linear weights when it loads them. The parameters then no longer have the checkpoint's
        # shapes, and `load_weights` alone fails. `reload_weights` restores and repacks them, all at once.
        held = [] if expected.part == 0 else self._held
        alone = expected.part == 0 and expected.last
        self._held = [*held, *((name, tensor if alone else tensor.clone()) for name, tensor in tensors)]
        if expected.last:
            self.model_runner.reload_weights(weights_iterator=iter(self._held))
            repack_tied_layers(self.model_runner.get_model())
            self._held = []
        return True, expected.checksum


def repack_tied_layers(model: Any) -> None:
    """Lets an output layer that shares the embedding's weights pack them again.

    When vLLM's CPU build (seen in 0.32) loads a model, it gives such a layer a packed copy of its own. A reload does
    not, because no tensor in it has the layer's name: the engine would combine the new model with the old output layer.
    """
    for layer in model.modules():
        if hasattr(layer, "cpu_linear") and type(layer).__name__ == "ParallelLMHead":
            layer.quant_method.process_weights_after_loading(layer)


def end_with(owner: int) -> None:
    """Ends this process as soon as the process `owner` is gone, for whatever reason."""
    try:
        descriptor = os.pidfd_open(owner)
    except ProcessLookupError:
        os._exit(1)
    select.select([descriptor], [], [])  # readable once the process has ended
    os._exit(1)
