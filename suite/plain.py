"""Text from elsewhere made safe for a terminal and a page: no control characters, escape codes, home folders."""

import re
import shutil
import textwrap

from suite.worker.homes import without_home

# ECMA-48's sequences (CSI, OSC and its kin, two-character ones), then the other control characters, and the marks that
# change the direction of text.
CODES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)|\x1b[ -~]?|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
    r"|[\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


def plain(text: str) -> str:
    """Remove codes and write the user's home folder as `~`; newlines and tabs stay."""
    return without_home(without_codes(text))


def without_codes(text: str) -> str:
    """Remove escape codes and control characters; newlines and tabs stay."""
    return CODES.sub("", text)


def wrapped(text: str) -> str:
    """Wrap a text to the terminal's width, between words only."""
    columns = shutil.get_terminal_size().columns
    lines = text.split("\n")
    return "\n".join(textwrap.fill(line, columns, break_long_words=False, break_on_hyphens=False) for line in lines)
