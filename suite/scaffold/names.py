"""What an adapter may be called."""

import keyword
import re

from suite.errors import RequestError
from suite.plugins import adapters

PATTERN = re.compile(r"[a-z][a-z0-9_]*")


def check(name: str) -> None:
    """RequestError for a name that cannot be a folder, a package, a plan's word and a tox environment at once."""
    remedy = "choose lower-case letters, digits and underscores, such as 'lumen'"
    if not PATTERN.fullmatch(name):
        raise RequestError(f"an adapter cannot be called {name!r}: its name is a Python identifier too; {remedy}")
    if keyword.iskeyword(name):
        raise RequestError(f"an adapter cannot be called {name!r}: that is a word of Python's own; {remedy}")
    if name in adapters():
        raise RequestError(
            f"there is an adapter {name!r} already (`stagebench list adapters`); choose another name, "
            "or uninstall the package that brings it"
        )
