"""The judge's hold on processes and devices of this host: runners, zygotes, locks, memory."""
