"""What is read from a run folder is validated once, here; what does not fit is one sentence with its remedy."""

import json
import math
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from suite.errors import StoreError

Part = TypeVar("Part", bound=BaseModel)


class Stored(BaseModel):
    """A part of a file in a run folder; it can be made of whatever has attributes of the same names."""

    model_config = ConfigDict(extra="forbid", frozen=True, from_attributes=True, revalidate_instances="never")

    def but(self, **changes: Any) -> Self:
        """The same with some values changed, validated."""
        return type(self).model_validate({**dict(self), **changes})


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


# A loss, or a distance: None (null in the file) when it was infinite or no number.
Finite = Annotated[float | None, BeforeValidator(_finite)]


def content_of(path: Path, remedy: str) -> dict[str, Any]:
    """A file's JSON object; StoreError when it cannot be read or is none."""
    try:
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} is not readable JSON ({error}); {remedy}") from error
    if not isinstance(found, dict):
        raise StoreError(f"{path} holds no JSON object; {remedy}")
    return found


def parsed(kind: type[Part], content: dict[str, Any], path: Path, remedy: str) -> Part:
    """The content as that type; StoreError names the file, the first field that does not fit, and the remedy."""
    try:
        # As JSON again: lists are tuples there, and nothing is turned from a word into a number.
        return kind.model_validate_json(json.dumps(content), strict=True)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
        first = problems[0]
        place = ".".join(map(str, first["loc"])) or "the whole"
        others = f", and {len(problems) - 1} more like it" if len(problems) > 1 else ""
        raise StoreError(f"{path}: {place}: {first['msg']}{others}; {remedy}") from error
