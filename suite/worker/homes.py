"""Removal of home folders, which name a person, from paths: records and pages are published."""

import os
import re

# A home begins a path: /data/root is no home, -I/root is root's. The slash comes first and the look behind it second,
# because a pattern that begins with a plain character is found eighty times as fast.
BEGINS, ENDS = r"/(?<![\w.]{2}/)", r"(?=/|\W|$)"
HOMES = re.compile(BEGINS + r"(?:(?:home|Users)/[\w.-]+|root)" + ENDS)


def without_home(text: str) -> str:
    """Return the text with `~` for this person's home folder; a HOME of / is none, and some users have none."""
    home = os.path.expanduser("~").lstrip("/")
    return text if home in ("", "~") else re.sub(BEGINS + re.escape(home) + ENDS, "~", text)


def without_homes(text: str) -> str:
    """Return the text with `~` for every home folder.

    Another person may have measured a run, and a path may lead to a third person's home.
    """
    return HOMES.sub("~", without_home(text))
