"""A report as an HTML page is self-contained, complete and safe."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from orchestration.report import build_report, render_html


class Page(HTMLParser):
    """Collects what a page would load, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        names = ("src", "href", "xlink:href", "action")
        self.loads += [value for name, value in attributes if name in names and not value.startswith("#")]

    def handle_data(self, data):
        self.text += data


def test_the_page_is_self_contained_and_shows_everything(run):
    html = render_html(build_report(run))
    page = Page(html)
    assert page.loads == []
    assert page.tags.count("script") == 1 + page.tags.count("svg"), "our own, and the data of each plot"
    assert re.search(
        r"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-[\w+/=]+'; img-src data:", html
    )
    assert "url(http" not in html
    assert "@import" not in html
    assert page.tags.count("svg") == 5 + 2, "curves, and a strip for each stage with right samples"
    assert "n = 4.2, 0" in page.text, "the best program's source"
    for expected in ("two cores", "self_supervised", "1.70x", "1 ms", "micro_batch_tokens", "finished"):
        assert expected in page.text
    assert "prefers-color-scheme: dark" in html
    assert not re.search(r"\bnan\b", page.text, re.IGNORECASE)


def test_source_text_of_a_model_is_shown_and_never_becomes_markup(run):
    html = render_html(build_report(run))
    assert "&lt;b&gt;&amp;" in html
    assert "<b>&" not in html
