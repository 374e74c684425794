"""The HTML report of a published run, made again from its rows.

A published folder holds no run directory and no HTML report. This script writes the published rows into a new run
directory and renders its report there.

    python -m benchmarks.published_report docs/results/rehearsed /tmp/again

With `--page` it also makes the tables of the stages in the folder's README.md again, as this version shows them. It
changes nothing else there. `--baselines` takes the baselines on tasks without a right program from other published runs
on the same GPU.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from orchestration.report.assemble import Report, build_report
from orchestration.report.html import render_html
from orchestration.report.publish import stage_sections
from orchestration.report.published import published_baselines, restore

AFTER_STAGES = "\n## Over the steps\n"
"""The heading of a published page that follows the tables of its stages."""


def with_stages(page: str, report: Report) -> str:
    """A published page with its tables of the stages made again. Raises ValueError for another text."""
    introduction, first, rest = page.partition("\n## ")
    _, after, rest = rest.partition(AFTER_STAGES)
    if not first or not after:
        raise ValueError(f"not a published page: it lacks {AFTER_STAGES.strip()!r}")
    return "\n\n".join([introduction.rstrip(), *stage_sections(report)]) + "\n" + after + rest


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help="what `warpsmith report RUN --publish FOLDER` wrote")
    parser.add_argument("root", type=Path, help="the folder that the run directory is made in")
    parser.add_argument("--page", action="store_true", help="make the tables of the folder's README.md again")
    parser.add_argument("--baselines", type=Path, nargs="+", default=[], help="further published runs on the same GPU")
    options = parser.parse_args(arguments)
    run = restore(options.folder, options.root)
    report = build_report(run, published_baselines([path for path in options.baselines if path.is_dir()]))
    print(run.write_report(render_html(report)))
    if options.page:
        page = options.folder / "README.md"
        page.write_text(with_stages(page.read_text(encoding="utf-8"), report), encoding="utf-8")
        print(page)


if __name__ == "__main__":
    main()
