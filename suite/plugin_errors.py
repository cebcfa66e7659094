"""Errors in plugins: each message names the plugin, the place in its code, and what is expected there.

Attributes and signatures are checked once, where a plugin registers. The answers of methods are checked (`ask`) where
they decide what runs; the conformance suite checks the others. Exceptions that escape elsewhere are traced to their
plugin by `stagebench.suite.plugins.culprit`.
"""

import contextlib
import functools
import inspect
import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, get_type_hints

from stagebench.suite.contracts.adapter import Adapter
from stagebench.suite.contracts.hooks import CONTRACT, MOVED, changes_since
from stagebench.suite.contracts.launcher import Launcher
from stagebench.suite.errors import OF_A_DISK, RequestError, StagebenchError
from stagebench.suite.text import cut, shown

if TYPE_CHECKING:
    from pydantic import TypeAdapter

CHECKERS = (__file__, contextlib.__file__)  # files in which an error is noticed, not made
PACKAGE = "stagebench"  # the package whose errors are shown with their traceback


@contextlib.contextmanager
def blamed(whose: str, fails: str = "does not load", refused: bool = False) -> Iterator[None]:
    """Turn any exception raised inside into a RequestError that names the plugin and the place.

    `refused`: errors of the disk and of memory pass unchanged, since they are not the plugin's.
    """
    try:
        yield
    except (StagebenchError, KeyboardInterrupt):
        raise
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in MOVED:
            raise _error(whose, fails, error) from error
        raise RequestError(
            f"{whose} was written for an older contract: {error.name} is below `stagebench` now. "
            f"Change\n{changes_since(1)}\nand set `contract = {CONTRACT}` in its adapter"
        ) from error
    except BaseException as error:  # sys.exit at import would end every command without a word
        if refused and (isinstance(error, MemoryError) or getattr(error, "errno", None) in OF_A_DISK):
            raise
        raise _error(whose, fails, error) from error


def _error(whose: str, fails: str, error: BaseException) -> RequestError:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = "" if frame.filename in CHECKERS else f" ({frame.filename}, line {frame.lineno})"
    return RequestError(f"{whose} {fails}: {type(error).__name__}: {error}{where}; fix or uninstall it")


def check_declared(plugin: object, contract: type) -> None:
    """Raise TypeError for an attribute that is missing or of another type than the contract's."""
    for name, kind in get_type_hints(contract, include_extras=True).items():
        checked(kind, getattr(plugin, name), f"its {name}", strict=True)


def check_methods(plugin: object, contract: type) -> None:
    """Raise TypeError for a method that cannot be called as the contract's is."""
    for name, promise in vars(contract).items():
        if not inspect.isfunction(promise) or getattr(type(plugin), name) is promise:
            continue
        arguments = [None] * (len(inspect.signature(promise).parameters) - 1)
        method = getattr(plugin, name)
        try:
            inspect.signature(method).bind(*arguments)
        except TypeError as error:
            expected = f"{name}{inspect.signature(promise)}"
            raise TypeError(f"its method {name}: {error}; define {expected}{place(method)}") from None


def ask(plugin: Adapter | Launcher, name: str, *arguments: Any) -> Any:
    """Call a plugin's method and check the type of its answer; RequestError blames the plugin for either."""
    contract = Launcher if isinstance(plugin, Launcher) else Adapter
    method, whose = getattr(plugin, name), f"the {contract.__name__.lower()} {plugin.name!r}"
    ours = str(getattr(method, "__module__", "")).partition(".")[0] == PACKAGE
    with contextlib.nullcontext() if ours else blamed(whose, f"fails at {name}", refused=True):
        answer = method(*arguments)
    with blamed(whose, f"fails at {name}"):
        return checked(_promised(contract, name), answer, "what it returned", place(method))


def place(method: Any) -> str:
    """Return the place of a method's code, in brackets; "" for one that is not written in Python."""
    code = getattr(inspect.unwrap(getattr(method, "__func__", method)), "__code__", None)
    return f" ({code.co_filename}, line {code.co_firstlineno})" if code else ""


def checked(kind: Any, value: Any, what: str, at: str = "", strict: bool = False) -> Any:
    """Return a value of an annotation's type; TypeError names the part of another type.

    `strict`: no value is converted, for values that stay as they are.
    """
    from pydantic import ValidationError

    try:
        if strict and hasattr(kind, "_fields") and not isinstance(value, kind):
            raise TypeError(f"{what} is {shown(value)}; write {kind.__name__}(...){at}")
        return _type(kind).validate_python(value, strict=strict or None)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        inside = f": in {shown(value)}, {cut('.'.join(map(str, first['loc'])))}" if first["loc"] else ""
        expected = first["msg"].replace("Input should", "it should").removeprefix("Value error, ")
        raise TypeError(f"{what}{inside} is {shown(first['input'])}; {expected}{at}") from error


@functools.cache
def _promised(contract: type, method: str) -> Any:
    return get_type_hints(getattr(contract, method), include_extras=True)["return"]


@functools.cache
def _type(kind: Any) -> "TypeAdapter[Any]":
    from pydantic import TypeAdapter  # here: every command loads plugins, and `--help` checks none

    return TypeAdapter(kind)
