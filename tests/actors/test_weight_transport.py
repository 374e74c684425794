"""Weights between processes: broadcast by gloo and, on machines with GPUs, by NCCL or through a GPU's own memory."""

import multiprocessing
import os
import time

import pytest
import torch

from actors.weight_transport import BroadcastChannel, opened, share
from learners.weights import checksum_of
from tests.ports import free_port
from tests.processes import forks


def receive(port: int, size: int, device: str, timeout: float, queue, gpu: str = "") -> None:
    os.environ["CUDA_VISIBLE_DEVICES"] = gpu  # before CUDA starts here
    channel = BroadcastChannel("127.0.0.1", port, size, sends=False, timeout=timeout, device=device)
    data = torch.empty(1 << 20, dtype=torch.uint8, device=device)
    started = time.monotonic()
    try:
        for _ in range(2):
            channel.broadcast(data)
            queue.put((channel.rank, checksum_of(data)))
    except TimeoutError as error:
        queue.put((str(error), time.monotonic() - started))


@pytest.fixture
def receivers():
    """Starts processes that receive two broadcasts."""
    context = forks()
    queue, started = context.Queue(), []

    def start(count: int, port: int, size: int, timeout: float = 60.0):
        for _ in range(count):
            started.append(context.Process(target=receive, args=(port, size, "cpu", timeout, queue)))
            started[-1].start()
        return queue

    yield start
    for process in started:
        process.kill()
        process.join()


def test_everybody_in_a_channel_gets_what_rank_0_sends(receivers) -> None:
    port = free_port()
    queue = receivers(2, port, 3)
    channel = BroadcastChannel("127.0.0.1", port, 3, sends=True, timeout=60.0, device="cpu")
    sent = []
    for seed in range(2):
        data = torch.randint(0, 255, (1 << 20,), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
        channel.broadcast(data)
        sent.append(checksum_of(data))
    got = sorted(queue.get(timeout=240) for _ in range(4))
    assert got == sorted((rank, checksum) for rank in (1, 2) for checksum in sent)


def test_a_receiver_that_gets_nothing_names_the_silent_side_in_time(receivers) -> None:
    port = free_port()
    queue = receivers(1, port, 2, timeout=4.0)
    channel = BroadcastChannel("127.0.0.1", port, 2, sends=True, timeout=60.0, device="cpu")
    said, seconds = queue.get(timeout=240)
    assert "rank 0, the learner" in said
    assert seconds > 3.5
    channel.close()


def test_a_channel_that_nobody_joins_is_an_error() -> None:
    with pytest.raises(RuntimeError):
        BroadcastChannel("127.0.0.1", free_port(), 2, sends=True, timeout=3.0, device="cpu")


def send(port: int, timeout: float, queue) -> None:
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    channel = BroadcastChannel("127.0.0.1", port, 2, sends=True, timeout=timeout, device="cuda")
    data = torch.randint(0, 255, (1 << 20,), dtype=torch.uint8, device="cuda")
    channel.broadcast(data)
    queue.put((channel.rank, checksum_of(data)))
    time.sleep(timeout + 60)  # alive but silent


@pytest.mark.cuda
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_nccl_broadcasts_between_gpus_and_a_silent_sender_is_noticed_in_time() -> None:
    context, port = multiprocessing.get_context("spawn"), free_port()
    queue = context.Queue()
    both = [
        context.Process(target=send, args=(port, 10.0, queue)),
        context.Process(target=receive, args=(port, 2, "cuda", 10.0, queue, "1")),
    ]
    for process in both:
        process.start()
    try:
        (_, sent), (_, got) = sorted(queue.get(timeout=90) for _ in range(2))
        assert sent == got
        said, seconds = queue.get(timeout=240)
        assert "rank 0, the learner" in said
        assert 9.0 < seconds < 40.0, "this includes the first broadcast, which connects"
    finally:
        for process in both:
            process.kill()
            process.join()


def read_shared(handles: dict[str, str], queue, done) -> None:
    for _ in range(2):
        with opened(handles) as data:
            queue.put(checksum_of(data))
    done.wait(60)


@pytest.mark.cuda
def test_other_processes_read_a_tensor_in_gpu_memory() -> None:
    from actors.weight_transport import gpu_id

    context = multiprocessing.get_context("spawn")
    queue, done = context.Queue(), context.Event()
    whole = torch.randint(0, 255, (1 << 24,), dtype=torch.uint8, device="cuda")
    part = whole[1 << 20 : 1 << 23]
    handles = {gpu_id(): share(part)}
    readers = [context.Process(target=read_shared, args=(handles, queue, done)) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        assert {queue.get(timeout=240) for _ in range(4)} == {checksum_of(part)} == {checksum_of(part.cpu())}
    finally:
        done.set()
        for reader in readers:
            reader.join(30)


@pytest.mark.cuda
def test_memory_of_another_gpu_is_refused() -> None:
    with pytest.raises(LookupError, match="GPU-of-somebody-else"), opened({"GPU-of-somebody-else": ""}):
        pass
