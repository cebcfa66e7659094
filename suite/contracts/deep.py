"""How pydantic holds the contracts' dataclasses against their types, where one stands in another."""

from typing import Any

# A class's `__pydantic_config__`. An instance is looked into however it was made, nothing is taken for another type.
DEEP: dict[str, Any] = {"arbitrary_types_allowed": True, "revalidate_instances": "always", "strict": True}
