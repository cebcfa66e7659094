"""Plans of a few short steps, as text."""

import json

SAMPLING = {"quick": True, "warmup_steps": 2, "warmup_limit": 0.1, "steps": 5, "seconds": 0.0, "processes": 1}
DEFAULTS = {"workload": "mnist_small", "data": "synthetic", "passes": ["native"]}


def brief(*cases, sampling=None, **defaults):
    """A plan of these blocks of cases; keywords are common to all."""
    tables = [("[sampling]", {**SAMPLING, **(sampling or {})}), ("[defaults]", {**DEFAULTS, **defaults})]
    lines = ['name = "brief"']
    for name, values in (*tables, *(("[[cases]]", case) for case in cases)):
        lines += [name, *(f"{key} = {toml(value)}" for key, value in values.items())]
    return "\n".join(lines) + "\n"


def toml(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(each)}" for key, each in value.items()) + " }"
    return json.dumps(value)
