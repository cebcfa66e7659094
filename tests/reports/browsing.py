"""Pages in a real browser: opened at every width, by a tab that forgives nothing."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.reports.sample import CHROMIUM, address_of

WIDTHS = (360, 768, 1000, 1280, 2000)  # CSS pixels
TABLES = 1000
# What reaches beyond the right edge of boxes that should not scroll, the innermost first, without what scrolls in them.
BEYOND = """(boxes) => [...document.querySelectorAll(boxes)].filter((box) => box.scrollWidth > box.clientWidth)
  .flatMap((box) => {
    const edge = box.getBoundingClientRect().left + box.clientWidth + 0.5;
    const inside = [...box.querySelectorAll('*')].filter((one) => {
      const scrolls = one.parentElement.closest('.scroll, .area, nav, .vh, pre');
      return !scrolls || scrolls.contains(box);
    });
    const beyond = inside.filter((one) => one.getBoundingClientRect().right > edge);
    return beyond.reverse().slice(0, 3).map((one) => one.outerHTML.slice(0, 200));
  })"""
# The words of a chart that reach beyond the right edge of their panel by more than a pixel.
CUT_OFF = """[...document.querySelectorAll('.track > svg text, .axis text, .area span')].filter((text) => {
  const box = text.getBoundingClientRect(), panel = text.closest('.panel').getBoundingClientRect();
  return box.width && Math.max(panel.left - box.left, box.right - panel.right) > 1;
}).map((text) => text.textContent)"""


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser; it wants playwright, and CHROMIUM."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        found = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@contextmanager
def tab(browser: Any, root: str) -> Iterator[Any]:
    """AssertionError at its end for an error, a warning, or a request that leaves what begins with the address."""
    faults: list[str] = []
    page = browser.new_page()
    page.on("console", lambda message: faults.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("requestfailed", lambda request: faults.append(request.url))
    page.on("request", lambda one: None if one.url.startswith((root, "data:")) else faults.append(one.url))
    yield page
    page.close()
    assert faults == []


def opened(page: Any, path: Path) -> None:
    """A page, `case.html` with some case of its run, once that is shown."""
    page.goto(address_of(path))
    until(page, "!document.getElementById('case') || document.querySelector('#case h1, #case a')")


def until(page: Any, condition: str) -> None:
    """Wait for a condition without what the pages' own policy forbids."""
    for _ in range(400):  # twenty seconds: beside other browsers charts are drawn anew slowly
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never true of {page.url}: {condition}")


def fits(page: Any, widths: Sequence[int] = WIDTHS, tables: int = TABLES) -> None:
    """Nothing stands beyond the right edge, from a telephone to the widest screen, and no text beyond its chart.

    From the width `tables` on, no table scrolls.
    """
    for width in widths:
        page.set_viewport_size({"width": width, "height": 900})
        boxes = "html, .scroll" if width >= tables else "html"
        wide = f"[...document.querySelectorAll('{boxes}')].some((box) => box.scrollWidth > box.clientWidth)"
        for condition in (f"!{wide}", f"!{CUT_OFF}.length"):
            with suppress(AssertionError):  # the next lines name what does not fit
                until(page, condition)
        beyond, cut_off = page.evaluate(BEYOND, boxes), page.evaluate(CUT_OFF)
        assert not beyond, f"{page.url} at {width} pixels has beyond its right edge {beyond}"
        assert not cut_off, f"{page.url} at {width} pixels cuts off {cut_off}"
