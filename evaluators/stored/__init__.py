"""What was measured before and need not be measured again: baselines, verdicts."""
