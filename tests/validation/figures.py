"""What a check found, for the page "How far to trust it": its last line of output is these figures as JSON.

Oldest Python: 3.6.
"""

import json
import sys


def figure(what, value, unit="", interval=None, at_least=None, at_most=None, why=None):
    """One figure, with the ends of its 95 % interval and its bound where it has them; `why` it is None, if it is."""
    low, high = interval or (None, None)
    found = {"low": low, "high": high, "at_least": at_least, "at_most": at_most, "why": why if value is None else None}
    named = {"what": what, "value": value, "unit": unit}
    return dict(named, **{name: each for name, each in found.items() if each is not None})


def as_fast(what, found):
    """Figures of a ratio of speeds whose interval reaches 1.00, and nowhere falls below 0.97."""
    yield figure(what, found["ratio"], "", (found["low"], found["high"]))
    yield figure(what + ", lower end", found["low"], at_least=0.97)
    yield figure(what + ", upper end", found["high"], at_least=1.0)


def kept(found):
    """Whether a figure keeps its bound; None where it has none."""
    value, least, most = found["value"], found.get("at_least"), found.get("at_most")
    if least is None and most is None:
        return None
    return value is not None and (least is None or value >= least) and (most is None or value <= most)


def settled(found):
    """Whether its whole interval lies on the value's side of its bound; None where it has no interval, or no bound."""
    if "low" not in found or kept(found) is None:
        return None
    low, high = found["low"], found["high"]
    least, most = found.get("at_least", float("-inf")), found.get("at_most", float("inf"))
    return least <= low and high <= most if kept(found) else high < least or low > most


def told(found):
    """Print them; the check's exit code: 1 where one does not keep its bound."""
    sys.stdout.write(json.dumps({"figures": found}) + "\n")
    sys.stdout.flush()
    return int(any(kept(each) is False for each in found))
