"""TRUSTED: turns seconds into speed-ups with intervals: clocks, estimates, presets, the paper's protocol.

Never imports `runner`.
"""
