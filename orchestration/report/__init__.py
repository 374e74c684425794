"""Reports of a run, read from its run directory alone, and shown in the terminal or as one HTML page."""

from orchestration.report.assemble import Report, Stage, build_report
from orchestration.report.html import render_html
from orchestration.report.terminal import print_report

__all__ = ["Report", "Stage", "build_report", "print_report", "render_html"]
