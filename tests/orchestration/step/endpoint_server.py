"""A real server with the chat format that answers as a test says, well or badly."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PROGRAM = "class ModelNew:\n    pass"


def answer(program: str = PROGRAM, analysis: str = "The first is slow.") -> str:
    return f"""## Performance Analysis
{analysis}

## Algorithm Design
One pass.

## Code Implementation
```python
{program}
```
"""


def chat(content: str | None, tokens: tuple[int, int] | None = (100, 40)) -> str:
    """The body of a chat completion. `tokens`: of prompt and answer."""
    message = {"role": "assistant", "content": content}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    made = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
    if tokens:
        prompt, completion = tokens
        made["usage"] = {
            "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
        }  # fmt: skip
    return json.dumps(made)


@dataclass
class Reply:
    """What a request gets. `sends`: how many bytes of the body before the connection closes, all if None; -1: not even
    a status. `drip`: seconds between the bytes of the body."""

    body: str = field(default_factory=lambda: chat(answer()))
    status: int = 200
    kind: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    sends: int | None = None
    drip: float = 0.0


class Endpoint:
    """A server and the requests that it got. `reply`: the reply to a request, by its number and content."""

    def __init__(self, reply: Callable[[int, dict[str, Any]], Reply]) -> None:
        self.reply = reply
        self.seen: list[dict[str, Any]] = []
        self.url = ""
        self._lock = threading.Lock()

    def receive(self, request: dict[str, Any]) -> Reply:
        with self._lock:
            self.seen.append(request)
            number = len(self.seen) - 1
        return self.reply(number, request)

    @property
    def prompts(self) -> list[str]:
        """The prompts of its requests."""
        return [request["messages"][0]["content"] for request in self.seen]


@contextmanager
def serving(reply: Callable[[int, dict[str, Any]], Reply]) -> Iterator[Endpoint]:
    """A server on a free port of this machine."""
    endpoint, over = Endpoint(reply), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            reply = endpoint.receive({"path": self.path, "key": self.headers["Authorization"], **body})
            if reply.sends == -1:
                self.close_connection = True
                return
            content = reply.body.encode()
            self.send_response(reply.status)
            self.send_header("Content-Type", reply.kind)
            self.send_header("Content-Length", str(len(content)))
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.end_headers()
            if reply.sends is not None:
                content, self.close_connection = content[: reply.sends], True
            if not reply.drip:
                self.wfile.write(content)
                return
            for byte in content:
                self.wfile.write(bytes([byte]))
                over.wait(reply.drip)

        def log_message(self, *_: object) -> None:
            """Logs nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 64

        def handle_error(self, *_: object) -> None:
            """A client that was killed is no error of the server."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    endpoint.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield endpoint
    finally:
        over.set()
        server.shutdown()
        server.server_close()
        thread.join()
