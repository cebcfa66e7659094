"""Loads `tests.support` first: Python 3.6's newest pytest would put an empty module `tests` in its place."""

import signal

import tests.support  # noqa: F401

# A shell that starts a job in the background has it ignore Ctrl-C, and with it all that the job starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
