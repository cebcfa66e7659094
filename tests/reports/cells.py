"""A page's tables and charts as plain values: what must not change however the words around them do."""

import json
from html.parser import HTMLParser


class Cells(HTMLParser):
    """`rows` of every table, a text a cell, and the `figures` that charts are drawn from."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.figures: list[object] = []
        self._in_cell = self._in_figure = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th") and self.rows:
            self.rows[-1].append("")
            self._in_cell = True
        elif tag == "script":
            self._in_figure = ("type", "application/json") in attrs

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._in_cell = False
        elif tag == "script":
            self._in_figure = False

    def handle_data(self, data: str) -> None:
        if self._in_figure:
            self.figures.append(json.loads(data))
        elif self._in_cell:
            self.rows[-1][-1] = " ".join((self.rows[-1][-1] + data).split())
