"""A page as a browser would read it."""

from html.parser import HTMLParser


class Page(HTMLParser):
    """Text outside scripts and styles, findings, headings, and every address that a browser would follow or fetch."""

    VOID = ("meta", "link", "br", "wbr", "img", "input")

    def __init__(self, text):
        super().__init__()
        self.words, self.headings, self.addresses, self.ids, self.open = [], [], [], [], []
        self.findings, self.found = [], False
        self.feed(text)
        assert self.open == [], "every element is closed"
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.addresses += [values[key] for key in ("src", "href", "action", "data", "poster") if values.get(key)]
        self.ids += [values["id"]] if "id" in values else []
        if tag == "ul":
            self.found = values.get("class") == "findings"
        if self.found and tag == "li":
            self.findings.append("")
        if tag not in self.VOID:
            self.open.append((tag, values.get("type")))

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag
        self.found = self.found and tag != "ul"

    def handle_data(self, data):
        if not {"script", "style"} & {tag for tag, _ in self.open}:
            self.words.append(data)
            if self.open and self.open[-1][0] in ("h1", "h2", "h3"):
                self.headings.append(data)
            if self.found and self.findings:
                self.findings[-1] += data
