"""The kernel's own count of out-of-memory kills: the only proof that a SIGKILL was one."""

from pathlib import Path

ROOT = Path("/")


def oom_kills(root: Path = ROOT) -> int:
    """Kills so far in this process's control group (version 2 or 1), else on the whole machine; 0 if nobody counts."""
    for source in (*_group_files(root), root / "proc/vmstat"):
        count = _counted(source)
        if count is not None:
            return count
    return 0


def _group_files(root: Path) -> list[Path]:
    """Where this process's memory events are counted."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    files = []
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0":
            files.append(root / "sys/fs/cgroup" / path.lstrip("/") / "memory.events")
        elif "memory" in controllers.split(","):
            files.append(root / "sys/fs/cgroup/memory" / path.lstrip("/") / "memory.oom_control")
    return files


def _counted(source: Path) -> int | None:
    try:
        pairs = (line.split() for line in source.read_text().splitlines())
        return next((int(pair[1]) for pair in pairs if len(pair) == 2 and pair[0] == "oom_kill"), None)
    except OSError:
        return None
