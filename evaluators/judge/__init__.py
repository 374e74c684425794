"""TRUSTED: owns seeds, inputs, expected outputs, the clock and the verdict. Never imports `runner`."""
