"""The energy that a host's processors and their memory have used so far, by RAPL.

The counters are of whole processors, with all of their users. Since Linux 5.10 only root may read them.
"""

import glob
import os
from typing import Dict, NamedTuple, Optional

POWERCAP = "/sys/class/powercap"
DOMAINS = ("package", "dram")  # of RAPL; the others are parts of these, or contain them


class Counter(NamedTuple):
    """The energy counter of one RAPL domain, in microjoules."""

    used: int
    range: int  # the counter begins again at 0 beyond it


def processors(folder: str = POWERCAP) -> Dict[str, Counter]:
    """Return RAPL's counters by their folder; none if the host has none, or only root may read them."""
    found = {}
    for zone in sorted(glob.glob(os.path.join(folder, "intel-rapl:*"))):  # AMD's bear that name too
        try:
            if _text(zone, "name").startswith(DOMAINS):
                found[zone] = Counter(int(_text(zone, "energy_uj")), int(_text(zone, "max_energy_range_uj")))
        except (OSError, ValueError):
            continue
    return found


def joules(before: Dict[str, Counter], after: Dict[str, Counter]) -> Optional[float]:
    """Return the joules that all domains have used between two readings; None without counters.

    Each counter may have begun again once.
    """
    if not before or before.keys() != after.keys():
        return None
    grown = (now.used - before[zone].used for zone, now in after.items())
    ranges = (now.range for now in after.values())
    return sum(used if used >= 0 else used + size + 1 for used, size in zip(grown, ranges)) / 1e6


def _text(zone: str, name: str) -> str:
    with open(os.path.join(zone, name)) as stream:
        return stream.read().strip()
