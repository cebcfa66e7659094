"""One attempt to measure a case: processes started, watched, ended; an outcome by evidence."""

from suite.supervision.attempt import Attempt, Limits, run

__all__ = ["Attempt", "Limits", "run"]
