"""Finds in an engine's log the rank that died, by the patterns that its launcher declares."""

import re
import signal
from pathlib import Path

from suite.contracts.launcher import FailurePatterns
from suite.processes.logs import last_lines

# Signals that end a rank of themselves; SIGABRT and SIGTERM are also how a library answers another rank's end.
NO_ANSWER = (signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
SIGNALS = {signal.strsignal(number): int(number) for number in signal.valid_signals()}


def missed(log: Path, patterns: FailurePatterns) -> tuple[str | None, int | None] | None:
    """(host, by which rank) of a rank that another one missed first, as far as the engine's log shows; else None."""
    text = "\n".join(last_lines(log, 100))
    found = [match for pattern in patterns.losses if (match := pattern.search(text))]
    said = {name: words for match in found for name, words in match.groupdict().items() if words}
    return (said.get("host"), int(said["by"]) if "by" in said else None) if said else None


def named_deaths(log: Path, patterns: FailurePatterns, pids: dict[int, int]) -> list[tuple[int, int]]:
    """(rank, exit code or -signal) of each dead rank that an engine's log names, the likely first one first.

    `pids` maps process numbers to ranks, as the ranks reported when they started.
    """
    text = "\n".join(last_lines(log, 100))
    unsure = bool(patterns.masks_signals) and patterns.masks_signals in text
    found = (each for pattern in patterns.deaths for each in pattern.finditer(text))
    named = [death for each in found if (death := _death(each, pids, unsure))]
    if patterns.any_order:
        named.sort(key=lambda death: -death[1] not in NO_ANSWER)
    return named


def _death(found: re.Match[str], pids: dict[int, int], unsure: bool) -> tuple[int, int] | None:
    """What one line says; None where it names no rank of ours, or no signal that is one."""
    groups = {name: text.strip() for name, text in found.groupdict().items() if text}
    rank = int(groups["rank"]) if "rank" in groups else pids.get(int(groups["pid"]))
    number = SIGNALS.get(groups["strsignal"]) if "strsignal" in groups else int(groups.get("signal", 0))
    if rank is None or number is None:
        return None
    code = int(groups.get("code", 0))
    return rank, -number or (-code if unsure and code in NO_ANSWER else code)
