"""TRUSTED: the judge's hold on processes and devices of this host: runners, zygotes, locks, memory. All that a runner
says enters the judge's process here, through `claims`. Never imports `runner`."""
