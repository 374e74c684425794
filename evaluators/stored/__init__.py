"""TRUSTED: measurements that are kept so that they need not be made again: baselines, verdicts of earlier runs."""
