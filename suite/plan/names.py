"""Are a block's names known? A word that nobody knows is a slip; one that only some adapters know is a sweep."""

from collections.abc import Mapping

from suite.contracts.adapter import Adapter
from suite.contracts.launcher import Launcher
from suite.plan.problems import Problems
from suite.plan.written import Written
from suite.suggest import known
from workloads.catalogue import Workload

AUTO = "auto"  # no launcher's name: the strategy's own choice


class Names:
    """Checks the names of blocks against what is registered."""

    def __init__(
        self,
        problems: Problems,
        adapters: Mapping[str, Adapter],
        launchers: Mapping[str, Launcher],
        workloads: Mapping[str, Workload],
    ) -> None:
        self.problems, self.adapters = problems, adapters
        self.capabilities = {name: adapter.capabilities for name, adapter in adapters.items()}
        self.registered: dict[str, list[str]] = {
            "adapter": list(adapters),
            "workload": list(workloads),
            "launcher": [AUTO, *launchers],
            "format": ["files", "best", *(each.name for able in self.capabilities.values() for each in able.formats)],
            "precision": sorted({name for able in self.capabilities.values() for name in able.precisions}),
            "tuning": sorted({name for able in self.capabilities.values() for name in able.tunings}),
        }

    def check(self, written: Written) -> bool:
        """Add this block's problems; True when its choices can be looked at one by one."""
        earlier, self.problems.found = self.problems.found, set()  # one in [defaults] is told again by each block
        for key, names in self.registered.items():
            self._each(written, key, names)
        used = [name for name in written.block.adapter if name in self.adapters]
        strategies = sorted({s.name for name in used for s in self.capabilities[name].strategies})
        if used:
            self._each(written, "strategy", strategies)
            self._knobs(written, used)
        elif "strategy" not in written.broken and not written.block.strategy:
            self.problems.add(written.head, "this block names no strategy")
        clean = not self.problems.found
        self.problems.found |= earlier
        return clean and not written.broken & {"adapter", "workload", "strategy"}

    def _each(self, written: Written, key: str, names: list[str]) -> None:
        values = getattr(written.block, key)
        if not values and key not in written.broken:
            self.problems.add(written.head, f"this block names no {key}; known: {', '.join(names)}")
        for index, value in enumerate(values):
            if value not in names:
                told = self._elsewhere(value, names) if key == "strategy" else known(value, names)
                self.problems.add(written.path(key, index), f"unknown {key} {value!r}; {told}")

    def _elsewhere(self, strategy: str, names: list[str]) -> str:
        """A strategy of other adapters is no misspelling: say whose it is."""
        owners = [name for name, able in self.capabilities.items() if able.strategy(strategy)]
        if not owners:
            return known(strategy, names)
        return f"{', '.join(owners)} has it, this block's adapters have {', '.join(names)}"

    def _knobs(self, written: Written, used: list[str]) -> None:
        knobs = {name: knob for adapter in used for name, knob in self.capabilities[adapter].knobs.items()}
        for name, values in written.block.knobs.items():
            if name not in knobs:
                self.problems.add(
                    written.path("knobs", name),
                    f"unknown knob {name!r} for {', '.join(used)}; {known(name, sorted(knobs))}",
                )
                continue
            owners = [self.capabilities[adapter].knobs.get(name) for adapter in used]
            for index, value in enumerate(values):
                refused = [knob.problem(value) for knob in owners if knob is not None]
                if all(refused):
                    self.problems.add(written.path("knobs", name, index), f"knob {name} {refused[0]}")
