"""The run as a whole: command line, driver, phases, pipeline, run directory, tracking, report."""
