"""Paths without the name of the person in whose home folder they lie: records and pages are published."""

import os
import re

# Of a path, not of a part of one: /data/root is nobody's home, -I/root is root's. The slash comes first, and what may
# not stand before it after it: what begins with a plain character is looked for eighty times as fast.
BEGINS, ENDS = r"/(?<![\w.]{2}/)", r"(?=/|\W|$)"
HOMES = re.compile(BEGINS + r"(?:(?:home|Users)/[\w.-]+|root)" + ENDS)


def without_home(text: str) -> str:
    """The text with `~` for this person's home folder; a HOME of / is none, and some users have none."""
    home = os.path.expanduser("~").lstrip("/")
    return text if home in ("", "~") else re.sub(BEGINS + re.escape(home) + ENDS, "~", text)


def without_homes(text: str) -> str:
    """The same for anybody's: a run may have been measured by somebody else, and a path may lead to their home."""
    return HOMES.sub("~", without_home(text))
