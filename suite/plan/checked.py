"""Values against a model: what is wrong is a problem with its line, what is right is kept."""

from typing import Any

from pydantic import BaseModel, ValidationError

from suite.plan.locator import Path as KeyPath
from suite.plan.model import Heading
from suite.plan.problems import Problems
from suite.suggest import known


def checked(
    problems: Problems, model: type[BaseModel], values: dict[str, Any], base: KeyPath | None
) -> tuple[BaseModel, frozenset[str]]:
    """The model, less the keys it refused (also returned); their problems are told when `base` is given."""
    try:
        return model.model_validate(values), frozenset()
    except ValidationError as error:
        refused = error.errors(include_url=False)
    if base is not None:
        for problem in refused:
            problems.add((*base, *problem["loc"]), _told(problem, model))
    broken = frozenset(str(problem["loc"][0]) for problem in refused)
    kept = {key: value for key, value in values.items() if key not in broken}
    return (model.model_construct(**kept) if model is Heading else model.model_validate(kept)), broken


def _told(problem: Any, model: type[BaseModel]) -> str:
    key, value, message = str(problem["loc"][0]), problem["input"], str(problem["msg"])
    if problem["type"] == "extra_forbidden":
        return f"unknown key {key!r}; {known(key, model.model_fields)}"
    if problem["type"] == "missing":
        return f"the key {key!r} is missing"
    if problem["type"] == "literal_error":
        allowed = str(problem["ctx"]["expected"]).replace("'", "").replace(" or ", ", ").split(", ")
        return f"{key} = {value!r}: {known(value, allowed)}"
    if problem["type"] == "string_pattern_mismatch":
        return f"{key} = {value!r}: should be letters, digits, '.', '_' and '-', and begin with a letter or a digit"
    if key == "ranks" and problem["type"] == "less_than_equal":
        most = problem["ctx"]["le"]
        return f"ranks = {value!r}: more than {most} ranks on a node is a slip; ranks are counted per node, see nodes"
    words = message.removeprefix("Input ").removeprefix("List ")
    return f"{key} = {value!r}: {words}"
