"""From seconds to speed-ups with intervals: clocks, estimates, presets, the paper's protocol."""
