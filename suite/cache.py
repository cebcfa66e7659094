"""The cache: oracles, proofs and data sets, all of which can be made again."""

import os
from pathlib import Path

from suite.errors import RequestError
from suite.files import disk, expanded

VARIABLE = "STAGEBENCH_CACHE"


def cache_root() -> Path:
    """Return `$STAGEBENCH_CACHE`, else `$XDG_CACHE_HOME/stagebench`, else ~/.cache/stagebench; it need not exist.

    RequestError if no variable is set and the user has no home folder, as in some containers.
    """
    explicit = os.environ.get(VARIABLE)
    if explicit:
        return expanded(explicit).absolute()
    folder = expanded(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    if folder.parts[0] == "~":
        raise RequestError(f"this user has no home folder to keep a cache in; set {VARIABLE} to a folder for it")
    return folder.absolute() / "stagebench"


def cache_folder(name: str) -> Path:
    """Return a folder below the root, made if necessary; RequestError, with the variable to set, if it cannot be."""
    folder = cache_root() / name
    remedy = f"set {VARIABLE} to a folder that can be written"
    with disk(f"the cache folder {folder} cannot be made", remedy, RequestError):
        folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise RequestError(f"the cache folder {folder} cannot be written; {remedy}")
    return folder
