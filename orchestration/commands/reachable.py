"""Whether anybody listens at the address of an endpoint: a run would find that out only after its actors started."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from configs.addresses import without_login

_CONNECT_SECONDS = 10.0


def refuse_silent(key: str, url: str) -> None:
    """Raises ConfigError if nobody listens at an address, which `key` gives. Behind a proxy nothing is tried: only the
    proxy knows."""
    from configs.load import ConfigError

    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        if getproxies().keys() & {parts.scheme, "all"} and not proxy_bypass(host):
            return
        with socket.create_connection((host, port), _CONNECT_SECONDS):
            return
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{key}: {without_login(url)} cannot be reached ({error}); start it, or correct the address"
        ) from error
