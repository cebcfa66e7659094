"""Messages with most fields filled in, for ranks that are only played. Python 3.6."""

import time
from contextlib import contextmanager

from stagebench.suite.worker import messages
from stagebench.suite.worker.typed_json import to_json


def hello(**changes):
    """Rank 0 of 1 on host "a"."""
    plain = messages.Hello(2, 0, 1, "a", 1, "3.6.15", "1.19.5", [], {}, {})
    return plain._replace(**changes)


def joined(**changes):
    """The same, over nothing."""
    return messages.Joined(0, 1, "none", {}, 1, {})._replace(**changes)


def failed(message, kind="crash", time_s=None):
    """Now, if no time is given."""
    return messages.Failed(kind, message, "", time.time() if time_s is None else time_s)


def hello_json(**changes):
    """The fields of `hello`, as a record keeps them."""
    return to_json(hello(**changes))


def joined_json(**changes):
    """The fields of `joined`, as a record keeps them."""
    return to_json(joined(**changes))


class Nobody:
    """An outbox without a reader; it keeps what was sent."""

    def __init__(self):
        self.sent = []

    @contextmanager
    def at_work(self, alone=True):
        yield

    def send(self, message):
        """Keep it."""
        self.sent.append(message)

    def progress(self, *place, **named):
        """Nothing."""
