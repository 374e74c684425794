"""Messages arrive whole or not at all, within their time; anything else is a violation."""

from __future__ import annotations

import fcntl
import os
import resource
import socket
import struct
import time

import pytest

from evaluators.shared.protocol import MAX_MESSAGE, Channel, PeerClosed, PeerTimeout, ProtocolViolation


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Channel(ours, trusted=False), theirs


def framed(body: bytes) -> bytes:
    return struct.pack("<I", len(body)) + body


def test_messages_and_descriptors_arrive() -> None:
    one, other = map(Channel, socket.socketpair())
    reading, writing = os.pipe()
    one.send({"op": "a"}, [writing])
    one.send({"op": "b"})
    message, (received,) = other.receive(1.0)
    assert message == {"op": "a"}
    os.write(received, b"x")
    assert os.read(reading, 1) == b"x"
    assert other.receive(1.0) == ({"op": "b"}, [])
    for descriptor in (reading, writing, received):
        os.close(descriptor)
    one.close()
    with pytest.raises(PeerClosed):
        other.receive(1.0)
    with pytest.raises(PeerClosed):
        other.send({"x": "y"})
    other.close()


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("<I", MAX_MESSAGE + 1),
        framed(b"{"),
        framed(b"\xff"),
        framed(b"3"),
        framed(b'{"a": ' + b"[" * 200000),
        framed(b'{"a": ' + b"[" * 100 + b"]" * 100 + b"}"),
        framed(b'{"a": %s}' % (b"9" * 10000)),
    ],
)
def test_data_that_is_no_message_is_a_violation(ends, data) -> None:
    channel, peer = ends
    peer.sendall(data)
    with pytest.raises(ProtocolViolation):
        channel.receive(1.0)


@pytest.mark.parametrize("data", [b"", b"\x01", framed(b'{"a": 1}')[:-1]])
def test_half_a_message_is_waited_for_until_the_deadline(ends, data) -> None:
    channel, peer = ends
    peer.sendall(data)
    start = time.monotonic()
    with pytest.raises(PeerTimeout):
        channel.receive(0.1)
    assert 0.05 < time.monotonic() - start < 30.0


def test_descriptors_of_an_untrusted_end_are_not_taken(ends) -> None:
    channel, peer = ends
    before = len(os.listdir("/proc/self/fd"))
    socket.send_fds(peer, [framed(b'{"a": 1}')], [0] * 100)
    assert channel.receive(1.0) == ({"a": 1}, [])
    assert len(os.listdir("/proc/self/fd")) == before


def test_data_that_nobody_asked_for_is_a_violation(ends) -> None:
    channel, peer = ends
    channel.expect_silence()
    peer.sendall(b"x")
    with pytest.raises(ProtocolViolation):
        channel.expect_silence()
    channel.socket.recv(1)
    peer.close()
    with pytest.raises(PeerClosed):
        channel.expect_silence()


def test_a_channel_works_with_descriptors_above_the_limit_of_select(ends) -> None:
    channel, peer = ends

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 3000:
        pytest.skip("this host allows too few descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 3000), hard))
    high = socket.socket(fileno=fcntl.fcntl(channel.socket, fcntl.F_DUPFD_CLOEXEC, 2000))
    peer.sendall(framed(b"{}"))
    assert Channel(high).receive(1.0) == ({}, [])
    high.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
