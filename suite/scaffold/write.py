"""Templates rendered to a new folder, whole or not at all."""

import keyword
import re
import tempfile
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from suite import __version__
from suite.contracts.versions import CONTRACT
from suite.errors import RequestError
from suite.files import disk
from suite.plugins import adapters
from suite.scaffold import contract

SUFFIX = ".jinja"
PATTERN = re.compile(r"[a-z][a-z0-9_]*")


def write(name: str, parent: Path) -> Path:
    """Write the package `stagebench-NAME` below `parent` and return its folder.

    RequestError for a bad name, a folder that exists or cannot be written.
    """
    check(name)
    folder = parent / f"stagebench-{name}"
    if folder.exists():
        raise RequestError(f"{folder} exists already; remove it, or name another place with -o")
    with disk(f"{folder} cannot be written", "name another place with -o", RequestError):
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=parent, prefix=f".{folder.name}-") as scratch:
            whole = Path(scratch) / "whole"
            for path, text in rendered(name).items():
                (whole / path).parent.mkdir(parents=True, exist_ok=True)
                (whole / path).write_text(text)
            whole.rename(folder)
    return folder


def rendered(name: str) -> dict[str, str]:
    """Return the text of every file of the package, by path."""
    environment = Environment(
        loader=PackageLoader("suite.scaffold"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # Python and TOML, not HTML
    )
    package = f"stagebench_{name}"
    values = {
        "name": name,
        "package": package,
        "klass": "".join(part.capitalize() for part in name.split("_")),
        "version": __version__,
        "contract": CONTRACT,
        "stubs": contract.methods(),
        "optional": contract.optional(),
        "kinds": contract.layer_kinds(),
    }
    return {
        path.replace("package/", f"{package}/", 1).removesuffix(SUFFIX): environment.get_template(path).render(values)
        for path in environment.list_templates()
        if path.endswith(SUFFIX)
    }


def check(name: str) -> None:
    """Raise RequestError for a name that cannot be a folder, a package, a plan's value and a tox environment."""
    remedy = "choose lower-case letters, digits and underscores, such as 'lumen'"
    if not PATTERN.fullmatch(name):
        raise RequestError(f"an adapter cannot be called {name!r}: its name is a Python identifier too; {remedy}")
    if keyword.iskeyword(name):
        raise RequestError(f"an adapter cannot be called {name!r}: that is a keyword of Python; {remedy}")
    if name in adapters():
        raise RequestError(
            f"there is an adapter {name!r} already (`stagebench list adapters`); choose another name, "
            "or uninstall the package that brings it"
        )
