"""Errors by class and the values that they name, whatever their wording.

Oldest Python: 3.6.
"""

import functools
import os
import re
from contextlib import contextmanager

import pytest

LIST = os.path.join(os.path.dirname(__file__), "error_sentences.txt")


@contextmanager
def raising(kind, *values):
    """Expect an error whose sentence is in the list of its class, with these values in its places."""
    with pytest.raises(kind) as caught:
        yield caught
    name, message = type(caught.value).__name__, str(caught.value).strip('"')  # KeyError quotes its sentence
    fits = [fit.groups() for fit in (pattern.match(message) for pattern in patterns(name, True)) if fit]
    if not fits:  # a sentence that was put together of others
        fits = [fit.groups() for fit in (pattern.match(message) for pattern in patterns(name, False)) if fit]
    assert fits, "no %s of the list: %s" % (name, message)
    assert any(all(any(names(field, value) for field in fields) for value in values) for fields in fits), (
        "%s are not what is named in: %s" % (values, message)
    )


def names(field, value):
    """Whether a place of a sentence holds a value: a number as a whole one, a text also as a part, as of a path."""
    if isinstance(value, (int, float)):
        return re.search(r"(?<![\w.])%s(?![\w]|\.\d)" % re.escape(str(value)), field) is not None
    return str(value) in field


@functools.lru_cache(maxsize=None)
def patterns(name, wordy):
    """The sentences of a class with words of their own, or those that join what others say."""
    with open(LIST) as stream:
        lines = [line.rstrip("\n").partition(": ")[2] for line in stream if line.startswith(name + ": ")]
    found = [line.replace("\\n", "\n") for line in lines if (len(re.findall("[a-z]+", line)) > 2) == wordy]
    return [re.compile("(.*)".join(map(re.escape, line.split("{}"))) + r"\Z", re.DOTALL) for line in found]
