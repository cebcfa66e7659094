"""One attempt to measure a case: processes started, watched, ended; an outcome by evidence."""

from suite.supervision.attempt import Attempt, Limits, Measuring, in_one_go, run, running

__all__ = ["Attempt", "Limits", "Measuring", "in_one_go", "run", "running"]
