"""Read by tox at its start: uv and pip find wheels in the same folders."""

import os

# Folders stand between spaces for pip, between commas for uv.
os.environ.setdefault("UV_FIND_LINKS", ",".join(os.environ.get("PIP_FIND_LINKS", "").split()))
