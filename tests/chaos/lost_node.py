"""How soon Ray notices that a node is gone, after the clock of all processes has jumped.

    python -m tests.chaos.lost_node [--jump -3600]

With Ray 2.60 a jump back hides a lost node for as long as the clock lags: its actors count as alive, and others are
placed there. Nothing above Ray can find that out; a run's own bounds end such waits.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.clock import Clock
from tests.chaos.world import Cluster

_NODES = "import ray; ray.init({!r}, log_to_driver=False); print(sum(node['Alive'] for node in ray.nodes()), 'alive')"
_MOST_SECONDS = 60.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jump", type=int, default=0, help="seconds")
    jump = parser.parse_args().jump
    with tempfile.TemporaryDirectory(prefix="warpsmith-chaos-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "ray").mkdir()
        clock = Clock(folder)
        environment = {
            **os.environ,
            **clock.environment,
            "RAY_AUTH_MODE": "disabled",
            "RAY_TMPDIR": name,
        }
        cluster = Cluster(folder, environment)
        try:
            cluster.add()
            time.sleep(10.0)  # Ray's health checks begin some seconds after a node's start
            clock.set(jump)
            removed = time.monotonic()
            cluster.remove(1)
            asks = [sys.executable, "-c", _NODES.format(cluster.address)]
            while (passed := time.monotonic() - removed) < _MOST_SECONDS:
                if "1 alive" in subprocess.run(asks, env=environment, capture_output=True, text=True).stdout:
                    print(f"clock {jump:+d} s: noticed within {passed:.0f} s")
                    return 0
                time.sleep(1.0)
            print(f"clock {jump:+d} s: not noticed within {_MOST_SECONDS:.0f} s")
            return 1
        finally:
            cluster.stop()


if __name__ == "__main__":
    sys.exit(main())
