"""The errors that end a command, each with the exit code it means.

Each message names the value, the place and the remedy. Anything else that escapes is a
defect of ours and shows its traceback.
"""

import errno

OF_A_DISK = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ESTALE)  # what it refuses, whoever asks


class StagebenchError(Exception):
    """Base of the errors that a person reads without a traceback."""

    exit_code = 1


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
    """Ctrl-C or SIGTERM stopped it; running the same command again resumes."""

    exit_code = 130
