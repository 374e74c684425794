"""Reports of one run or of several, read from run directories alone, and shown in the terminal or as one HTML page."""

from orchestration.report.assemble import Report, Stage, build_report
from orchestration.report.html import render_comparison, render_html
from orchestration.report.side_by_side import SideBySide, report_as_json, side_by_side
from orchestration.report.terminal import print_comparison, print_report

__all__ = [
    "Report",
    "SideBySide",
    "Stage",
    "build_report",
    "print_comparison",
    "print_report",
    "render_comparison",
    "render_html",
    "report_as_json",
    "side_by_side",
]
