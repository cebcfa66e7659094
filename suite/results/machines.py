"""The machine behind a run: a run that is resumed on another one mixes figures that cannot be compared."""

from collections import Counter

from stagebench.suite.results.records import Host
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.worker.messages import Machine


def described(machine: Machine, cores: int | None) -> str:
    """Return the hardware that determines speed: processor, cores, quota, GPU models without serial numbers."""
    parts = [machine.cpu or "unknown processor"]
    if cores:
        parts.append(f"{cores} cores")
    if machine.cpu_quota is not None:
        parts.append(f"the time of {machine.cpu_quota:g} of them")
    gpus = Counter(gpu.partition(" (")[0].rpartition(": ")[2] for gpu in machine.gpus)
    parts += [f"{count} {name}" for name, count in sorted(gpus.items())]
    return ", ".join(parts)


def adjusted(machine: Machine, device: str) -> str:
    """Return software settings that change speed: the clock's governor, the driver of GPUs that compute."""
    driver = f"GPU driver {machine.gpu_driver}" if machine.gpu_driver and device != "cpu" else ""
    return ", ".join(filter(None, [f"governor {machine.governor}" if machine.governor else "", driver]))


def limited(machine: Machine, device: str) -> str:
    """Return settings of GPUs that compute: limits of their clock and power, and error correction of memory."""
    if device == "cpu":
        return ""
    distinct = set()
    for gpu in machine.gpu_settings:
        words = [
            f"GPU clock at most {gpu.most_sm_clock_hz / 1e6:.0f} MHz" if gpu.most_sm_clock_hz else "",
            f"power limit {gpu.power_limit_watts:g} W" if gpu.power_limit_watts else "",
            "" if gpu.ecc is None else f"ECC {'on' if gpu.ecc else 'off'}",
        ]
        distinct.add(", ".join(filter(None, words)))
    return "; ".join(sorted(distinct - {""}))


def moved(folder: RunFolder, here: Host) -> str | None:
    """Return a warning if the run's earlier records come from a different machine or machine settings."""
    hosts = folder.hosts().values() if folder.begun else ()
    known = {described(host.machine, host.cores_installed) for host in hosts}
    this = described(here.machine, here.cores_installed)
    if known and this not in known:
        return (
            f"{folder.path} was begun on {' and '.join(sorted(known))}, and this is {this}; rows that are measured on "
            "another machine than the others will be marked, and not compared: go on there, or name a new folder with "
            "-o"
        )
    for setting in (adjusted, limited):
        known, this = {setting(host.machine, "cuda") for host in hosts} - {""}, setting(here.machine, "cuda")
        if known and this and this not in known:
            return (
                f"{folder.path} was begun with {' and '.join(sorted(known))}, and this machine now has {this}; rows "
                "with processes of both will be marked, and not compared: change it back, or name a new folder with -o"
            )
    return None
