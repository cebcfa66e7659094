"""The command line.

Command functions import what they need themselves: a person asking for `--help`, or
pressing Tab, should not wait for NumPy, pydantic and rich.
"""

import sys

LONGEST = 4000  # characters of a line on the terminal, whatever a name or a path is


def main() -> int:
    """Run the command line and return its exit code; an expected error is one message without a traceback."""
    from suite.cli.app import build
    from suite.errors import StagebenchError

    try:
        build()(prog_name="stagebench")
    except StagebenchError as error:
        tell(str(error))
        return error.exit_code
    except KeyboardInterrupt:  # outside a command; inside, typer makes it exit code 130
        tell("interrupted")
        return 130
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    return 0


def tell(message: str) -> None:
    """An error, on stderr; red where a person looks."""
    lines = (line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…" for line in message.splitlines())
    message, colour = "\n".join(lines), sys.stderr.isatty()
    red, plain = ("\033[31m", "\033[0m") if colour else ("", "")
    sys.stderr.write(f"{red}stagebench: {message}{plain}\n")
