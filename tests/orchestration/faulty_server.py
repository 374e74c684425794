"""MLflow's own server, which a test stops, starts again, and lets fail request by request."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from werkzeug.serving import BaseWSGIServer, make_server

LOG_BATCH, CREATE_RUN, UPDATE_RUN = "runs/log-batch", "runs/create", "runs/update"

Fault = Callable[[str], str]
"""What happens to a request for a path: empty (nothing), `500`, `hang`, `drop` (it is obeyed, and the connection ends
without an answer), or a process id, which is killed between obeying and answering."""


class FaultyServer:
    """A server on a port of its own. As a context manager it runs, and gives its port back in the end."""

    def __init__(self, database: str, artifacts: str) -> None:
        self.fault: Fault = lambda path: ""
        self.seen: list[str] = []
        self.failed = threading.Event()
        self._released = threading.Event()
        self._settings = {
            "_MLFLOW_SERVER_FILE_STORE": database,
            "_MLFLOW_SERVER_SERVE_ARTIFACTS": "true",
            "_MLFLOW_SERVER_ARTIFACT_ROOT": "mlflow-artifacts:/",
            "_MLFLOW_SERVER_ARTIFACT_DESTINATION": f"{artifacts}/served",
        }
        self._port = 0
        self._server: BaseWSGIServer | None = None

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Listens, on the same port as before."""
        self._released.clear()
        self._server = make_server("127.0.0.1", self._port, self._answer, threaded=True)
        self._server.daemon_threads = True
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self) -> None:
        """Refuses connections from now on."""
        self._released.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def __enter__(self) -> FaultyServer:
        self._patch = pytest.MonkeyPatch()
        for name, value in self._settings.items():
            self._patch.setenv(name, value)
        from mlflow.server import app, handlers

        self._patch.setattr(handlers, "_tracking_store", None)
        self._app = app.wsgi_app
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._patch.undo()

    def _answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        self.seen.append(path)
        fault = self.fault(path)
        if fault == "500":
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            self.failed.set()
            start_response("500 Internal Server Error", [("Content-Length", "0")])
            return []
        if fault == "hang":
            self.failed.set()
            self._released.wait(30)
            raise ConnectionError
        if not fault:
            return self._app(environ, start_response)
        list(self._app(environ, lambda *_: lambda _: None))
        if fault != "drop":
            os.kill(int(fault), signal.SIGKILL)
        self.failed.set()
        raise ConnectionError


def once(part: str, fault: str) -> Fault:
    """The fault for the first request whose path contains a part."""
    left = [fault]
    return lambda path: left.pop() if part in path and left else ""


def always(part: str, fault: str) -> Fault:
    """The fault for every request whose path contains a part."""
    return lambda path: fault if part in path else ""
