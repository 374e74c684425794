"""The weights of a rollout engine: pushes in parts, adapters, and the sleep that frees the GPU's memory.

Weights are never swapped under a running request: a change waits at the engine's gate until requests have ended. An
engine must never generate with a mixture of old and new weights; it ends its actor instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

import numpy as np

from actors.engine_gate import EngineGate, within
from actors.engine_options import adapter_folder, shared_file
from actors.engine_process import end_actor, end_process
from actors.generation import derive_seed
from actors.weight_transport import ByBroadcast, DeviceMemory
from learners.weights import ChecksumMismatch, WeightManifest, verify

GRACE = 1.5  # of `rollout.timeout`: the pool's own limit ends a call first, and retries it


@dataclass(frozen=True)
class WeightReceipt:
    """What an engine loaded, by its own account."""

    version: int
    checksum: str


class EngineWeights:
    """Changes the weights of one vLLM engine while its gate is shut, and knows their version."""

    def __init__(
        self, engine: Any, gate: EngineGate, names: frozenset[str], version: int, timeout: float, seed: int
    ) -> None:
        """`names`: the tensors of the engine's checkpoint. `timeout`: of one change, in seconds. `seed`: of samples."""
        self._engine, self._gate = engine, gate
        self._names, self._timeout, self._seed = names, timeout, seed
        self._missing = frozenset[str]()  # tensors that further parts of a push have to bring
        self._change = asyncio.Lock()
        self._expiry: asyncio.TimerHandle | None = None  # set while a push is half loaded
        self._asleep = False
        self.version = version
        self.adapter: Any = None  # vLLM's LoRARequest for the adapter that was pushed last

    async def update(self, data: np.ndarray | DeviceMemory | ByBroadcast, manifest: WeightManifest) -> WeightReceipt:
        """Loads a part of new weights; see `RolloutEngine.update_weights`."""
        if self._asleep:
            raise RuntimeError(f"weights of policy version {manifest.version}: the engine sleeps; wake it up first")
        missing = self._still_missing(manifest)
        what = f"weights of policy version {manifest.version}"
        async with within(self._timeout * GRACE, f"part {manifest.part + 1} of {what}", self._gate), self._change:
            half_loaded = self._expiry is not None
            if self._expiry is not None:
                self._expiry.cancel()
                self._expiry = None
            if manifest.part == 0:
                await self._shut_gate(what)
            try:
                checksum = await self._load(data, manifest)
            except ChecksumMismatch as mismatch:
                if half_loaded:
                    end_actor(self._engine, str(mismatch))
                self._gate.open()
                raise
            self._missing = missing
            if manifest.last:
                await self._empty_prefix_cache()
                await self.call_workers("seed_sampling", _seed_of(self._seed, manifest.version))
                self.version = manifest.version
                self._gate.open()
            else:
                reason = f"part {manifest.part + 1} of version {manifest.version} did not come"
                self._expiry = asyncio.get_running_loop().call_later(self._timeout, end_process, self._engine, reason)
        return WeightReceipt(manifest.version, checksum)

    async def sleep(self) -> None:
        """Moves the weights to the host and drops the cache. Raises TimeoutError if running requests did not end.

        If vLLM does not fall asleep, the actor ends: nobody knows where its weights are.
        """
        async with self._change:
            if self._gate.is_open:
                await self._shut_gate("a sleep")
                await self._in_time(self._engine.sleep(level=1), "fall asleep")
                self._asleep = True

    async def wake_up(self) -> None:
        """Takes the memory again, and lets requests in. If vLLM does not wake up, the actor ends."""
        async with self._change:
            if self._asleep:
                await self._in_time(self._engine.wake_up(), "wake up")
                self._asleep = False
                self._gate.open()

    async def _in_time(self, work: Awaitable[Any], what: str) -> None:
        try:
            await asyncio.wait_for(work, self._timeout)
        except TimeoutError:
            end_actor(self._engine, f"vLLM did not {what} within {self._timeout:g} s")

    async def call_workers(self, method: str, *arguments: Any) -> list[Any]:
        """The results of a method of `WeightReceiver`, one a worker. A failure ends the actor: weights may be half
        loaded."""
        try:
            results: list[Any] = await self._engine.collective_rpc(method, timeout=self._timeout, args=arguments)
        except Exception as error:  # noqa: BLE001 - whatever it was, the weights may be half loaded
            end_actor(self._engine, f"{method} failed: {error}")
        return results

    def _still_missing(self, manifest: WeightManifest) -> frozenset[str]:
        """The tensors that are missing once this part is loaded.

        Raises ValueError if its tensors, or those of all parts together, are not the checkpoint's.
        """
        if manifest.adapter:
            return frozenset()
        awaited = self._names if manifest.part == 0 else self._missing
        names = frozenset(entry.name for entry in manifest.tensors)
        left = awaited - names
        wrong = names - awaited - {"lm_head.weight"} | (left if manifest.last else frozenset())
        if not self._names or not wrong:
            return left
        reason = (
            f"weights of policy version {manifest.version} do not fit the engine's checkpoint: {sorted(wrong)[:4]} "
            f"are on one side only ({len(wrong)} in all); pack exactly the tensors that the checkpoint holds"
        )
        if manifest.part > 0:
            end_actor(self._engine, reason)
        raise ValueError(reason)

    async def _shut_gate(self, purpose: str) -> None:
        try:
            await self._gate.shut(self._timeout, purpose)
        except TimeoutError:
            raise TimeoutError(
                f"{purpose}: {self._gate.running} requests still ran after {self._timeout:.0f} s; "
                f"version {self.version} stays, push again or raise rollout.timeout"
            ) from None

    async def _load(self, data: np.ndarray | DeviceMemory | ByBroadcast, manifest: WeightManifest) -> str:
        """Lets all workers load a part; returns its checksum. Raises ChecksumMismatch."""
        if manifest.adapter:
            assert isinstance(data, np.ndarray)
            return await self._load_adapter(data, manifest)
        description = manifest.to_json()
        if isinstance(data, DeviceMemory):
            replies = await self.call_workers("receive_shared_weights", dict(data.handles), description)
        elif isinstance(data, ByBroadcast):
            replies = await self.call_workers("receive_broadcast_weights", description)
        else:
            with shared_file(data) as path:
                replies = await self.call_workers("receive_weights", path, description)
        for is_loaded, checksum in replies:
            if not is_loaded:  # every worker refuses alike, before it touches a weight
                raise ChecksumMismatch(manifest.version, manifest.checksum, checksum)
        return str(replies[0][1])

    async def _load_adapter(self, data: np.ndarray, manifest: WeightManifest) -> str:
        """Replaces the adapter; returns its checksum. A failure ends the actor, since the old adapter is gone then."""
        from vllm.lora.request import LoRARequest

        verify(manifest, data)
        number = self.adapter.lora_int_id + 1 if self.adapter else 1  # a new one: its cached prompts are its own
        try:
            with adapter_folder(manifest, data) as folder:
                request = LoRARequest(f"version-{manifest.version}", number, folder)
                if self.adapter is not None:
                    await self._engine.remove_lora(self.adapter.lora_int_id)
                if not await self._engine.add_lora(request):
                    raise RuntimeError("vLLM did not take it")
        except Exception as error:  # noqa: BLE001 - whatever it was, the engine has no adapter now
            end_actor(self._engine, f"loading the adapter of policy version {manifest.version} failed: {error}")
        self.adapter = request
        return manifest.checksum

    async def _empty_prefix_cache(self) -> None:
        """Drops the cached prompts, which the old weights computed."""
        if not await self._engine.reset_prefix_cache():
            end_actor(self._engine, "the prefix cache could not be emptied after a change of weights")


def _seed_of(seed: int, version: int) -> int:
    """The seed of an engine's samples under one policy version.

    So a run that goes on in new processes draws what it would have drawn, and not what its first steps drew.
    """
    return derive_seed(seed, version)
