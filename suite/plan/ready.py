"""The plans that come with stagebench, as package data."""

from importlib import resources
from pathlib import Path

from suite.errors import RequestError
from suite.suggest import known


def ready_made() -> dict[str, Path]:
    """The plans that come with stagebench, by name."""
    folder = Path(str(resources.files("suite"))) / "plans"
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def find(name_or_path: str | Path) -> Path:
    """A ready-made plan of that name, else the file; RequestError when there is neither."""
    plans = ready_made()
    if str(name_or_path) in plans:
        return plans[str(name_or_path)]
    file = Path(name_or_path)
    if not file.is_file():
        raise RequestError(
            f"there is no plan {str(name_or_path)!r}: neither a file nor a ready-made plan; "
            f"{known(name_or_path, plans)}"
        )
    return file
