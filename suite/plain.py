"""Text of others, fit for a terminal and for a page: no control characters, no escape codes, no home folders."""

import re
import shutil
import textwrap

from suite.worker.homes import without_home

# ECMA-48's sequences (CSI, OSC and its kin, two-character ones), then what is left of the control characters, and what
# makes text run the other way.
CODES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)|\x1b[ -~]?|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
    r"|[\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


def plain(text: str) -> str:
    """The text without codes; a newline and a tab stay; this person's home folder is `~`."""
    return without_home(without_codes(text))


def without_codes(text: str) -> str:
    """The text without escape codes and control characters; a newline and a tab stay."""
    return CODES.sub("", text)


def wrapped(text: str) -> str:
    """The text in lines that the terminal holds, broken between words alone."""
    columns = shutil.get_terminal_size().columns
    lines = text.split("\n")
    return "\n".join(textwrap.fill(line, columns, break_long_words=False, break_on_hyphens=False) for line in lines)
