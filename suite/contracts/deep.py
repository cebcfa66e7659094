"""Annotations by which pydantic checks the contracts; it is not imported here, since plugins are also read without."""

import re
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

# A dataclass's `__pydantic_config__`: instances inside others are validated again, and no value is converted.
DEEP: dict[str, Any] = {"arbitrary_types_allowed": True, "revalidate_instances": "always", "strict": True}


@dataclass(frozen=True)
class Between:
    """A number's bounds, both inclusive, in its annotation: Annotated[float, Between(0, 1)]."""

    least: float
    most: float | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> dict[str, Any]:
        """Return the type's schema with the bounds; pydantic calls this method."""
        bounds = {"ge": self.least, **({} if self.most is None else {"le": self.most})}
        return {**handler(source), **bounds}


@dataclass(frozen=True)
class Spelled:
    """A text's pattern, in its annotation; the whole text has to match.

    Python's `re` checks it: pydantic's own engine rejects text that is not UTF-8, which folder names may contain.
    """

    pattern: str

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Return the type's schema with the pattern's check after it; pydantic calls this method."""
        from pydantic import AfterValidator

        return handler.generate_schema(Annotated[source, AfterValidator(self._checked)])

    def _checked(self, text: str) -> str:
        if not re.fullmatch(self.pattern, text):
            raise ValueError(f"it should match {self.pattern}")
        return text


# A process's environment variables by name; the patterns are the limits of shells and of the kernel.
Environ = dict[Annotated[str, Spelled("[A-Za-z_][A-Za-z0-9_]*")], Annotated[str, Spelled(r"[^\x00]*")]]


class AsFields:
    """The mark of a NamedTuple within a case: it is written as an object of its fields, not as a list."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> dict[str, Any]:
        """Return the NamedTuple's schema with its way to be written; pydantic calls this method."""
        return {**handler(source), "serialization": {"type": "function-plain", "function": source._asdict}}


T = TypeVar("T")
Part = Annotated[T, AsFields()]
