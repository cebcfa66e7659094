"""A page's numbers: what must not change however the words around them do."""

from html.parser import HTMLParser


class Cells(HTMLParser):
    """The cells with a number in every row of every table."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._rows: list[list[str]] = []
        self._in_cell = False
        self.feed(text)

    @property
    def rows(self) -> list[list[str]]:
        numbers = [[cell for cell in row if any(sign.isdigit() for sign in cell)] for row in self._rows]
        return [row for row in numbers if row]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self._rows.append([])
        elif tag == "td":
            self._rows[-1].append("")
            self._in_cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag == "td":
            self._in_cell = False

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self._rows[-1][-1] = " ".join((self._rows[-1][-1] + data).split())
