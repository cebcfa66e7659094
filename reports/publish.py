"""A folder of results as a site for any web host: its runs, a feed and badges."""

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from xml.etree import ElementTree

from reports.frame import made
from reports.many import FEED, TITLE, Entry, runs_in, write
from suite.files import write_whole

ATOM = "http://www.w3.org/2005/Atom"


def publish(directory: Path, output: Path, address: str = "", docs: Path | None = None) -> list[Entry]:
    """Write the site of all runs below a folder; `address` is where it will stand, for the feed's permanent links."""
    found = write(runs_in(directory), output, docs, published=True, below=directory)
    write_whole(output / FEED, feed(found, address))
    made(output / "badges")
    for entry in found:
        write_whole(output / entry.badge, badge("stagebench", entry.outcomes or "nothing measured"))
    return found


def feed(entries: Sequence[Entry], address: str) -> str:
    """An Atom feed, an entry a run."""
    base = f"{address.rstrip('/')}/" if address else ""
    top = ElementTree.Element("feed", xmlns=ATOM)
    _put(top, id=base or "urn:stagebench:runs", title=TITLE, updated=entries[0].created if entries else "")
    _put(ElementTree.SubElement(top, "author"), name="stagebench")
    ElementTree.SubElement(top, "link", rel="self", href=base + FEED)
    for entry in entries:
        one = ElementTree.SubElement(top, "entry")
        place = f"{base}{entry.folder}/index.html"
        id_ = place if base else f"urn:stagebench:{entry.folder}"  # a relative address is no identity
        summary = " ".join(entry.findings[:3]) or f"{entry.outcomes}."
        _put(one, id=id_, title=entry.title, updated=entry.created, summary=summary)
        ElementTree.SubElement(one, "link", href=place)
    return ElementTree.tostring(top, "unicode", xml_declaration=True) + "\n"


def _put(element: ElementTree.Element, **texts: str) -> None:
    for name, text in texts.items():
        ElementTree.SubElement(element, name).text = text


def badge(left: str, right: str) -> str:
    """A label and a message as a picture, readable without its colours."""
    widths = [12 + round(6.6 * len(text)) for text in (left, right)]  # pixels of 11 px DejaVu Sans, about
    parts = "".join(_part(*part) for part in _parts((left, right), widths))
    title = escape(f"{left}: {right}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{sum(widths)}" height="20" role="img" aria-label="{title}">'
        f'<title>{title}</title><g font-family="DejaVu Sans,Verdana,sans-serif" font-size="11">{parts}</g></svg>\n'
    )


def _parts(texts: Sequence[str], widths: Sequence[int]) -> Iterator[tuple[str, int, int, str]]:
    begin = 0
    for text, width, shade in zip(texts, widths, ("#3a4450", "#0b5cad"), strict=True):
        yield text, begin, width, shade
        begin += width


def _part(text: str, begin: int, width: int, shade: str) -> str:
    return (
        f'<rect x="{begin}" width="{width}" height="20" fill="{shade}"/>'
        f'<text x="{begin + width / 2:g}" y="14" text-anchor="middle" fill="#fff">{escape(text)}</text>'
    )
