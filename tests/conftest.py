"""Loads `tests.support` first: Python 3.6's newest pytest would put an empty module `tests` in its place."""

import tests.support  # noqa: F401
