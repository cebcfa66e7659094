"""How pydantic holds the contracts against their types. It is not imported here: a plugin is also read without it."""

import re
from dataclasses import dataclass
from typing import Annotated, Any

# A dataclass's `__pydantic_config__`: one that stands in another is looked into however it was made, and nothing is
# taken for another type.
DEEP: dict[str, Any] = {"arbitrary_types_allowed": True, "revalidate_instances": "always", "strict": True}


@dataclass(frozen=True)
class Between:
    """A number's bounds, both allowed, beside its type: Annotated[float, Between(0, 1)]."""

    least: float
    most: float | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> dict[str, Any]:
        """The type's schema with the bounds; pydantic asks for it by this name."""
        bounds = {"ge": self.least, **({} if self.most is None else {"le": self.most})}
        return {**handler(source), **bounds}


@dataclass(frozen=True)
class Spelled:
    """A text's pattern, beside its type.

    Python's: pydantic's own refuses whatever is no UTF-8, and a folder's name may be none.
    """

    pattern: str

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """The type's schema, then the pattern; pydantic asks for it by this name."""
        from pydantic import AfterValidator

        return handler.generate_schema(Annotated[source, AfterValidator(self._checked)])

    def _checked(self, text: str) -> str:
        if not re.fullmatch(self.pattern, text):
            raise ValueError(f"it should match {self.pattern}")
        return text


# Variables of a process's environment by name, as a shell and the kernel take them.
Environ = dict[Annotated[str, Spelled("[A-Za-z_][A-Za-z0-9_]*")], Annotated[str, Spelled(r"[^\x00]*")]]
