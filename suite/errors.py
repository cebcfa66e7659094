"""The errors that end a command, each with its exit code.

Each message names the value, the place and the remedy. Any other exception is a defect of stagebench and is shown with
its traceback.
"""

import errno
from collections.abc import Iterable
from typing import NamedTuple

MAY_PASS = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.ESTALE)  # a disk may raise these for a while
OF_A_DISK = (*MAY_PASS, errno.EROFS)  # errors of the disk, not of the request


def may_pass(error: Exception) -> bool:
    """True if the error was caused by a disk that may work again soon."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in MAY_PASS


class StagebenchError(Exception):
    """Base of the errors that are shown without a traceback; the second of two arguments is the remedy."""

    exit_code = 1

    def __str__(self) -> str:
        """Return the whole message: the problem and its place, then the remedy."""
        return "; ".join(map(str, self.args))


class RequestError(StagebenchError):
    """The request was wrong (plan, option, path); nothing was started."""

    exit_code = 2


class Unavailable(StagebenchError):
    """This machine lacks something; the message is the remedy."""

    exit_code = 2


class StoreError(StagebenchError):
    """A result could not be written or read; what was written before stays."""

    exit_code = 1


class Interrupted(StagebenchError):
    """Ctrl-C or SIGTERM stopped the command; running it again resumes."""

    exit_code = 130


class Refused(NamedTuple):
    """A case without a result: not an error of the command."""

    label: str
    of: str  # the adapter or the backend
    outcome: str
    reason: str
    cases: int = 1


def once_per_reason(refused: Iterable[Refused]) -> list[Refused]:
    """Join the cases of one outcome and reason; their `label` is then such as "pytorch, mxnet (12 cases)"."""
    groups: dict[tuple[str, str], list[Refused]] = {}
    for case in refused:
        groups.setdefault((case.outcome, case.reason), []).append(case)
    joined = []
    for alike in groups.values():
        names = ", ".join(dict.fromkeys(case.of for case in alike))
        label = alike[0].label if len(alike) == 1 else f"{names} ({len(alike)} cases)"
        joined.append(alike[0]._replace(label=label, cases=len(alike)))
    return joined
