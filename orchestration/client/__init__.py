"""A client of `warpsmith serve`, and reward functions for other trainers (docs/guides/other-trainers.md).

Imports neither torch nor Ray nor the service, so that a trainer's environment need not have them.
"""

from orchestration.client.rewards import Rewards
from orchestration.client.verdicts import ServiceError, Verdicts

__all__ = ["Rewards", "ServiceError", "Verdicts"]
