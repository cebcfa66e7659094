"""The command line.

Command functions import heavy modules themselves, so that `--help` does not wait for NumPy, pydantic and rich.
"""

import errno
import re
import signal
import sys

INTERRUPTED = 130  # exit code
AGAIN = "what was written before is kept: fix the disk and run the command again, or name another place"
# Names, paths and values of this length are shortened in messages; the remedy at a line's end stays.
LONG_WORD = re.compile(r"(\S{200})\S{100,}")
LONG_LINE = re.compile(r"^(.{500}).{700,}(.{300})$", re.MULTILINE)


def program() -> int:
    """Run `main` as the last thing of a process; a further Ctrl-C is ignored."""
    try:
        return main()
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def main() -> int:
    """Run the command line and return its exit code; an expected error is one message without a traceback.

    SIGTERM, by which sites end jobs, interrupts as Ctrl-C does.
    """
    received: list[int] = []

    def interrupt(number: int, frame: object) -> None:
        received.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        code = _run()
    except KeyboardInterrupt:
        tell("interrupted")
        code = INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)
    return 128 + received[0] if received else code


def _run() -> int:
    from stagebench.suite import plugins
    from stagebench.suite.cli.app import build
    from stagebench.suite.errors import StagebenchError

    try:
        build()(prog_name="stagebench")
    except StagebenchError as error:
        tell(str(error))
        return error.exit_code
    except OSError as error:
        return disk_error(error)
    except MemoryError as error:
        tell(f"there is too little memory: {str(error) or 'none is left'}; end other programs, or ask for less")
        return 1
    except Exception as error:
        whose = plugins.culprit(error)
        if whose is None:
            raise
        tell(f"{whose} fails: {type(error).__name__}: {error}; fix or uninstall it")
        return 2
    except SystemExit as ending:
        if ending.code == INTERRUPTED:  # typer turned a Ctrl-C into it
            raise KeyboardInterrupt from None
        return ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    return 0


def disk_error(error: OSError) -> int:
    """Print an error of the file system and return the exit code; raises any other error, a defect of ours."""
    from stagebench.suite.errors import OF_A_DISK

    where = f" ({error.filename})" if error.filename else ""
    if isinstance(error, PermissionError):
        tell(f"{error.filename or error}: permission denied; make it readable and writable for you, or name another")
        return 2
    if error.errno == errno.ENAMETOOLONG:
        tell(f"no file can have so long a name: {error.filename}; choose a shorter one")
        return 2
    if error.errno in OF_A_DISK:
        tell(f"a disk failed: {error.strerror}{where}; {AGAIN}")
        return 1
    raise error


def tell(message: str) -> None:
    """Print an error on stderr; red on a terminal."""
    from stagebench.suite.text import without_codes, wrapped

    message = "stagebench: " + LONG_LINE.sub(r"\1 … \2", LONG_WORD.sub(r"\1…", without_codes(message)))
    sys.stderr.write(f"\033[31m{wrapped(message)}\033[0m\n" if sys.stderr.isatty() else f"{message}\n")
