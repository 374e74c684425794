"""The learner as Ray actors: one for each rank, called together. Every wait has a bound.

A group that lost a rank cannot go on, because its collectives would hang: it raises LearnerLost, and the driver makes a
new group from the last checkpoint.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import ray
import torch
from ray.exceptions import RayError, RayTaskError

from actors.log_fields import name_role
from actors.start import start_actor
from actors.weight_transport import BROADCAST, HOST, SHARED, BroadcastChannel, ByBroadcast, DeviceMemory, gpu_id, share
from configs.schema import ContrastiveConfig, LearnerConfig, RunConfig
from learners.checkpoint_files import CheckpointFolder, WrittenFile
from learners.patience import Patience
from learners.records import Sample
from learners.weights import WeightManifest, pack_parts

_log = logging.getLogger(__name__)
_GRACE_SECONDS = 10.0


@dataclass(frozen=True)
class Part:
    """A part of the weights as a rank hands it over: its bytes, or the handles of the GPU memory that holds it."""

    manifest: WeightManifest
    data: np.ndarray | None = None
    handles: Mapping[str, str] = field(default_factory=dict)


class LearnerLost(Exception):
    """A rank died or stopped answering. The message names it."""


class RankDied(LearnerLost):
    """A process of the group has died, or hung as it started."""


@ray.remote(num_cpus=1)
class LearnerRank:
    """One rank: a `LearnerEngine` and the methods that its group calls on all ranks at once."""

    _channel: BroadcastChannel | None = None

    def address(self) -> tuple[str, int]:
        """Where the other ranks can meet this one: the address of its node and a free port."""
        with socket.socket() as probe:
            probe.bind(("", 0))
            return ray.util.get_node_ip_address(), probe.getsockname()[1]

    def node(self) -> str:
        """The id of its node."""
        return str(ray.get_runtime_context().get_node_id())

    def start(self, config: RunConfig, policy: str, rank: int, master: tuple[str, int], ranks_on_host: int) -> None:
        """Loads the policy and joins the group. `ranks_on_host`: how many ranks, this one included, its host has."""
        from learners.engine import LearnerEngine  # here: DeepSpeed takes seconds, and the driver has no use for it

        name_role("learner", rank=rank)
        self._patience = Patience(config.storage.patience)
        self._engine = LearnerEngine(
            config.learner,
            policy,
            max_length=config.policy.max_length,
            rank=rank,
            world_size=config.learner.ranks,  # those that go on
            ranks_on_host=ranks_on_host,
            master_address=master[0],
            master_port=master[1],
            seed=config.seed,
        )

    def call(self, method: str, *arguments: Any) -> Any:
        """Calls a method of the engine."""
        return getattr(self._engine, method)(*arguments)

    def save(self, place: str) -> list[WrittenFile]:
        """Writes this rank's files of a checkpoint to its folder; see `LearnerGroup.save`."""
        with CheckpointFolder(place, self._patience).new_files(self._engine.rank) as (folder, written):
            self._engine.save(folder)
        return written

    def export(self, place: str, below: str) -> list[WrittenFile]:
        """Writes this rank's files of the policy as a Hugging Face folder; see `LearnerGroup.export`."""
        checkpoint = CheckpointFolder(place, self._patience)
        with checkpoint.new_files(self._engine.rank, below=below) as (folder, written):
            self._engine.export(folder)
        return written

    def check(self, place: str, files: Sequence[WrittenFile]) -> None:
        """Reads back what another rank wrote."""
        CheckpointFolder(place, self._patience).check(files)

    def load(self, place: str, files: Sequence[WrittenFile]) -> None:
        """Continues from a checkpoint whose files it checks first; in a shared folder each rank checks some."""
        share = slice(self._engine.rank, None, self._engine.world_size)
        with CheckpointFolder(place, self._patience).local_copy(files, share) as folder:
            self._engine.load(folder)

    def set_version(self, version: int) -> None:
        """Sets the policy version, which checkpoints carry."""
        self._engine.policy_version = version

    def begin_push(self, dtype: str, version: int, transport: str, limit_bytes: int, adapters: bool) -> None:
        """Begins to pack the current weights, or the adapters alone, for `next_part`. All ranks must call it."""
        self._transport = transport
        on_device = transport != HOST and torch.cuda.is_available()
        self._parts = pack_parts(
            self._engine.named_adapters() if adapters else self._engine.named_weights(),
            getattr(torch, dtype),
            version,
            limit_bytes=limit_bytes,
            device=self._engine.device if on_device else "cpu",
            adapter=self._engine.adapter_settings if adapters else "",
        )

    def next_part(self) -> Part:
        """The next part of the weights. All ranks gather it.

        With the transport `shared` each rank hands over a handle of its own copy, otherwise only rank 0 hands it over.
        """
        part = self._part = next(self._parts)
        if self._transport == SHARED:
            return Part(part.manifest, handles={gpu_id(): share(part.data)})
        with_data = self._transport == HOST and self._engine.rank == 0
        return Part(part.manifest, data=part.data.numpy() if with_data else None)

    def join_weight_channel(self, port: int, size: int, timeout: float) -> None:
        """Makes rank 0's end of the channel that `send_part` uses, and closes the previous one.

        With gloo it waits here for all others, with NCCL in the first `send_part`.
        """
        device = "cuda" if torch.cuda.is_available() else "cpu"
        address = ray.util.get_node_ip_address()
        if self._channel is not None:
            self._channel.close()
        self._channel = BroadcastChannel(address, port, size, sends=True, timeout=timeout, device=device)

    def send_part(self) -> None:
        """Sends the part that `next_part` packed to everybody in the channel. Only rank 0 may call it."""
        if self._channel is None:
            raise RuntimeError("weight channel: it is closed")
        self._channel.broadcast(self._part.data)


class LearnerGroup:
    """All ranks of the learner. Methods take the samples of a whole step; the engine divides them among the ranks."""

    def __init__(
        self, config: RunConfig, policy: str, place: Callable[[int], dict[str, Any]] = lambda rank: {}
    ) -> None:
        """Starts the ranks. `place` gives Ray's options for each.

        If not all find a place within `learner.place_timeout`, those that did are enough if they are at least
        `learner.min_ranks`. Raises LearnerLost if they do not come up, and PolicyError if the policy does not load.
        """
        self._timeout = config.learner.timeout
        self._file_timeout = self._timeout + config.storage.patience
        limit = max(config.learner.start_timeout, self._timeout)
        self._ranks = [start_actor(LearnerRank, place(rank)) for rank in range(config.learner.ranks)]
        self.has_trained = False
        """Whether its weights have changed since the last push to all engines."""
        self.busy_seconds = 0.0
        """Seconds of finished calls, on each of which all ranks work. Waiting for engines in `send_part` is no work."""
        self.calls_ended = 0
        """Calls to all ranks that ended so far, whatever came of them."""
        self._waits: tuple[str, float, float] | None = None  # for what, since when, and until when
        try:
            if 0 < config.learner.min_ranks < config.learner.ranks:
                self._go_on_with_the_placed(config.learner, limit)
                config = replace(config, learner=replace(config.learner, ranks=len(self._ranks)))
            first: ray.ObjectRef[Any] = self._ranks[0].address.remote()
            if not ray.wait([first], timeout=limit)[0]:
                raise LearnerLost(f"learner rank 0 did not start within {limit:.0f} s: is there room for it?")
            master = self._wait([first], limit)[0]
            nodes = self._wait([rank.node.remote() for rank in self._ranks], limit)
            starts = [
                rank.start.remote(config, policy, index, master, ranks_on_host=nodes.count(node))
                for index, (rank, node) in enumerate(zip(self._ranks, nodes, strict=True))
            ]
            try:
                self._wait(starts, limit)
            except LearnerLost as error:  # one that hangs as it starts is as good as dead
                raise RankDied(str(error)) from error
        except BaseException:
            self.stop()
            raise

    def _go_on_with_the_placed(self, config: LearnerConfig, limit: float) -> None:
        """Ends the ranks that found no place within `config.place_timeout`. Raises LearnerLost if fewer than
        `config.min_ranks` are left after `limit` seconds."""
        started = time.monotonic()
        calls: dict[ray.ObjectRef[Any], Any] = {rank.node.remote(): rank for rank in self._ranks}
        placed, waiting = list[Any](), [*calls]
        while waiting:
            enough = len(placed) >= config.min_ranks
            left = started + (min(config.place_timeout, limit) if enough else limit) - time.monotonic()
            done, waiting = ray.wait(waiting, num_returns=1, timeout=max(left, 0.0))
            if not done:
                break
            with suppress(RayError):  # it died as it started
                ray.get(done[0])
                placed.append(calls[done[0]])
        placed = placed[: len(placed) - len(placed) % config.sequence_parallel]
        if len(placed) < config.min_ranks:
            raise LearnerLost(
                f"{len(placed)} of {config.ranks} learner ranks found a place within {limit:.0f} s, and "
                f"learner.min_ranks is {config.min_ranks}: is there room beside the others?"
            )
        if len(placed) == config.ranks:
            return
        for rank in self._ranks:
            if rank not in placed:
                ray.kill(rank)
        self._ranks = [rank for rank in self._ranks if rank in placed]
        _log.warning(
            "the learner goes on with %d of %d ranks: the others found no place within %g s (learner.place_timeout)",
            len(placed), config.ranks, config.place_timeout,
        )  # fmt: skip

    @property
    def size(self) -> int:
        """The number of its ranks."""
        return len(self._ranks)

    def train_cross_entropy(self, samples: Sequence[Sample], learning_rate: float) -> dict[str, float]:
        """One optimiser step of cross-entropy; see `LearnerEngine.train_cross_entropy`."""
        self.has_trained = True
        return self._call_engines("train_cross_entropy", ray.put(list(samples)), learning_rate)[0]

    def train_grpo(
        self, samples: Sequence[Sample], learning_rate: float, config: ContrastiveConfig, temperature: float
    ) -> dict[str, float]:
        """One GRPO step; see `LearnerEngine.train_grpo`."""
        self.has_trained = True
        return self._call_engines("train_grpo", ray.put(list(samples)), learning_rate, config, temperature)[0]

    def set_reference(self) -> None:
        """Freezes the current policy as the reference of the KL term."""
        self._call_engines("set_reference")

    def parts(
        self, version: int, dtype: str, transport: str = HOST, limit_bytes: int = 0, *, adapters: bool = False
    ) -> Iterator[tuple[WeightManifest, Any]]:
        """The weights as `version`, part by part: each manifest, and the data for `RolloutEngine.update_weights`.

        A part has at most `limit_bytes` (0: there is one part), and is valid until the next is requested. A part that
        comes `ByBroadcast` has to be sent (`send_part`) while the engines wait for it. `adapters`: the adapters alone.
        """
        self._call_ranks("set_version", version)
        self._call_ranks("begin_push", dtype, version, transport, limit_bytes, adapters)
        while True:
            parts: list[Part] = self._call_ranks("next_part")
            manifest = parts[0].manifest
            if transport == SHARED:
                yield manifest, DeviceMemory({gpu: handle for part in parts for gpu, handle in part.handles.items()})
            else:
                yield manifest, ByBroadcast() if transport == BROADCAST else ray.put(parts[0].data)
            if manifest.last:
                return

    def open_channel(self, size: int, timeout: float) -> tuple[str, int, ray.ObjectRef[Any]]:
        """Lets rank 0 make a channel for `size` processes, and close the previous one.

        Returns the address and port where they meet, and a call that ends when the channel is made (with gloo, when all
        have come).
        """
        address, port = self._wait([self._ranks[0].address.remote()], self._timeout)[0]
        return address, port, self._ranks[0].join_weight_channel.remote(port, size, timeout)

    def send_part(self, timeout: float) -> None:
        """Sends the part that was packed last to everybody in the channel, which was opened with this `timeout`.

        Raises TimeoutError if one of them does not come.
        """
        limit = max(self._timeout, timeout + _GRACE_SECONDS)
        self._wait([self._ranks[0].send_part.remote()], limit, what="send_part", counts=False)

    def describe(self) -> str:
        """What is waited for, in words. It may be called from another thread."""
        if (waits := self._waits) is None:
            return "no call is under way"
        (what, since, deadline), now = waits, time.monotonic()
        return f"its ranks work on {what} for {now - since:.0f} s and have {max(deadline - now, 0.0):.0f} s left"

    def release_memory(self) -> None:
        """Returns cached GPU memory that nothing uses, for the other processes on the GPU."""
        self._call_engines("release_memory")

    def save(self, place: str) -> list[WrittenFile]:
        """Writes a checkpoint, every rank its own files, into a folder that all ranks see: a path, or a URI.

        Returns all files. Each was read back, by another rank than its writer if there are several.

        Raises LearnerError if they do not see the same folder, or if a file is not what was written.
        """
        return self._checked(place, self._call_ranks("save", place, timeout=self._file_timeout))

    def export(self, place: str, below: str) -> list[WrittenFile]:
        """Writes the policy as a Hugging Face folder, into the folder `below` of a checkpoint. Returns its files, which
        were read back."""
        return self._checked(place, self._call_ranks("export", place, below, timeout=self._file_timeout))

    def _checked(self, place: str, written: list[list[WrittenFile]]) -> list[WrittenFile]:
        others = [*written[1:], written[0]]
        checks: list[ray.ObjectRef[Any]] = [
            rank.check.remote(place, files) for rank, files in zip(self._ranks, others, strict=True)
        ]
        self._wait(checks, self._file_timeout, what="check")
        return [file for files in written for file in files]

    def load(self, place: str, files: Sequence[WrittenFile] = ()) -> None:
        """Continues from a checkpoint in `place`. Raises LearnerError if one of `files` is missing or damaged.

        Without `files`, as with a checkpoint of an earlier version, nothing is checked, and `place` is a local path."""
        self._call_ranks("load", place, files, timeout=self._file_timeout)

    def stop(self) -> None:
        """Ends all ranks."""
        for rank in self._ranks:
            ray.kill(rank)

    def _call_engines(self, method: str, *arguments: Any) -> list[Any]:
        """The results of the engine's method on all ranks."""
        calls: list[ray.ObjectRef[Any]] = [rank.call.remote(method, *arguments) for rank in self._ranks]
        return self._wait(calls, self._timeout, what=method)

    def _call_ranks(self, method: str, *arguments: Any, timeout: float | None = None) -> list[Any]:
        """The results of a method of `LearnerRank` on all ranks, after `timeout` seconds at most."""
        calls = [getattr(rank, method).remote(*arguments) for rank in self._ranks]
        return self._wait(calls, timeout or self._timeout, what=method)

    def _wait(
        self, calls: list[ray.ObjectRef[Any]], timeout: float, *, what: str = "its start", counts: bool = True
    ) -> list[Any]:
        """The results of one call to each rank, in the order of the ranks.

        Raises an exception of the engine as it is, and LearnerLost for a rank that is gone or silent for `timeout`
        seconds. Ends at the first failure: if one rank is gone, the others wait for it in a collective. `counts`:
        whether the time counts as work of the learner. `what` the calls are, for the message.
        """
        started = time.monotonic()
        try:
            self._waits = (what, started, started + timeout)
            results = self._results(calls, started + timeout, timeout, what)
        finally:
            self._waits = None
            self.calls_ended += 1
        if counts:
            self.busy_seconds += time.monotonic() - started
        return results

    def _results(self, calls: list[ray.ObjectRef[Any]], deadline: float, timeout: float, what: str) -> list[Any]:
        results: dict[ray.ObjectRef[Any], Any] = {}
        missing = list(calls)
        while missing:
            done, missing = ray.wait(missing, num_returns=1, timeout=max(deadline - time.monotonic(), 0.0))
            if not done:
                rank = calls.index(missing[0])
                raise LearnerLost(f"learner rank {rank} did not answer within {timeout:.0f} s ({what})")
            rank = calls.index(done[0])
            try:
                results[done[0]] = ray.get(done[0])
            except RayTaskError as error:
                # A rank that dies makes the others' collectives fail. Either failure may arrive first.
                self._raise_if_a_rank_died(missing)
                raise error.cause from error
            except RayError as error:
                raise _lost(rank, error) from error
        return [results[call] for call in calls]

    def _raise_if_a_rank_died(self, calls: list[ray.ObjectRef[Any]]) -> None:
        """Raises LearnerLost if one of the calls ends, within seconds, because its rank died."""
        done = ray.wait(calls, num_returns=len(calls), timeout=_GRACE_SECONDS)[0] if calls else []
        for call in done:
            try:
                ray.get(call)
            except RayTaskError:
                continue
            except RayError as error:
                raise _lost(None, error) from error


def _lost(rank: int | None, error: RayError) -> RankDied:
    name = "a learner rank" if rank is None else f"learner rank {rank}"
    reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return RankDied(f"{name} died: {reason}")
