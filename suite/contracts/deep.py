"""How pydantic holds the contracts against their types. It is not imported here: a plugin is also read without it."""

from dataclasses import dataclass
from typing import Any

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
