"""Whether a record is of this run, this plan and this place, and as it was written."""

from pathlib import Path
from typing import Any, NamedTuple

from suite.results.formats import identified
from suite.results.records import AnyRecord
from suite.results.stored import intact


class Identity(NamedTuple):
    """What the records of a run folder must agree with."""

    run: str  # its id; "": the run is older than format 3, and its records have no digest
    plan: str  # the digest of plan.toml; "" where there is none
    cases: dict[str, Any]  # by id

    def misfit(self, record: AnyRecord, path: Path, text: bytes) -> str | None:
        """Why a record is not this place's; None when it is. `text` is the file's."""
        if path.name != f"{record.case_id}-r{record.repeat}.json":
            return f"it holds repeat {record.repeat} of the case {record.case_id}, and its name is another one's"
        if self.cases.get(record.case_id, record.case) != record.case:
            return "its case has other values than cases.json gives it"
        # Whatever run.json says: it may have been changed, too.
        if not (self.run or record.digest or identified(record.method, text)):
            return None
        if not intact(text, record.digest):
            return "it was changed after it was written: its digest is another one"
        if record.run != self.run:
            return f"it belongs to another run ({record.run})"
        if record.plan == self.plan:
            return None
        return "it belongs to another plan" if self.plan else "it belongs to a plan, and there is no plan.toml"
