"""Objects that belong to one thread: used by another one they do not fail, but give wrong results now and then.

A Hugging Face tokenizer sets its own options before each text. A second thread's text is then encoded under the
options of the first one's, without any error.
"""

from __future__ import annotations

import threading


class OwnThread:
    """The thread in which this was made, as the only one that may use `what`."""

    def __init__(self, what: str) -> None:
        self._what, self._owner = what, threading.current_thread()

    def check(self) -> None:
        """Raises RuntimeError in any other thread."""
        if threading.current_thread() is not self._owner:
            raise RuntimeError(
                f"{self._what} belongs to thread {self._owner.name}, and {threading.current_thread().name} must not "
                f"use it: give it what it needs as values"
            )
