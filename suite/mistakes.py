"""A plugin's own mistakes, told as such: whose it is, where, and what it should have been.

Every command needs all plugins, and their methods are asked all over the suite: a wrong answer would fail far from
where it came from, and without a word of whose it was.
"""

import contextlib
import functools
import inspect
import traceback
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from suite.contracts.versions import CONTRACT, MOVED, changes_since
from suite.errors import OF_A_DISK, RequestError, StagebenchError
from suite.suggest import cut, shown

if TYPE_CHECKING:
    from pydantic import TypeAdapter

OURS = (__file__, contextlib.__file__)  # where a mistake is noticed, and not made
OWN = ("adapters", "cluster", "reports", "suite", "workloads")  # packages whose mistakes are our own
Made = TypeVar("Made")


def hold(plugin: type, contract: type) -> None:
    """Hold what a plugin's methods return against the contract's annotations, from now on.

    A call raises RequestError, with plugin, method and place, where the method fails or returns something else.
    What the disk or the memory refuses is no mistake of the plugin's, and passes.
    """
    for name, promise in vars(contract).items():
        method = inspect.getattr_static(plugin, name)
        if inspect.isfunction(promise) and method is not promise and not hasattr(method, "promised"):
            setattr(plugin, name, _held(method, name, contract.__name__.lower(), promise))


def _held(method: Any, name: str, kind: str, promise: Callable[..., Any]) -> Callable[..., Any]:
    """`method` may be a function, or what stands for one in a class: a static method, a cached one."""
    ours = str(getattr(method, "__module__", "")).partition(".")[0] in OWN

    def answer(self: Any, *about: Any, **named: Any) -> Any:
        bound = method.__get__(self, type(self)) if hasattr(method, "__get__") else method
        whose, fails = f"the {kind} {self.name!r}", f"fails at {name}"
        with contextlib.nullcontext() if ours else blamed(whose, fails, refused=True):
            said = bound(*about, **named)
        with blamed(whose, fails):
            return checked(_promised(promise), said, "what it returned", place(method))

    functools.update_wrapper(answer, method)
    answer.promised = promise  # type: ignore[attr-defined]
    return answer


def held_graph(kind: type[Made], question: Callable[[], Made], whose: str) -> Callable[[], Made]:
    """A network's question, held in the same way."""

    def answer() -> Made:
        name = getattr(question, "__name__", "graph")
        with blamed(whose, f"fails at {name}", refused=True):
            said = question()
            if not isinstance(said, kind):
                raise TypeError(f"what it returned is {shown(said)}; return {kind.__module__}.{kind.__name__}")
            return said

    return answer


def place(method: Any) -> str:
    """Where a method is written, in brackets; "" where nobody knows."""
    code = getattr(inspect.unwrap(getattr(method, "__func__", method)), "__code__", None)
    return f" ({code.co_filename}, line {code.co_firstlineno})" if code else ""


def checked(kind: Any, said: Any, what: str, at: str = "", strict: bool = False) -> Any:
    """A value, once it is of an annotation's type; TypeError names the part of it that is not.

    `strict`: nothing is taken for another type, for those whose value stays as it is.
    """
    from pydantic import ValidationError

    try:
        if strict and hasattr(kind, "_fields") and not isinstance(said, kind):
            raise TypeError(f"{what} is {shown(said)}; write {kind.__name__}(...){at}")
        return _type(kind).validate_python(said, strict=strict or None)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        inside = f": in {shown(said)}, {cut('.'.join(map(str, first['loc'])))}" if first["loc"] else ""
        wanted = first["msg"].replace("Input should", "it should").removeprefix("Value error, ")
        raise TypeError(f"{what}{inside} is {shown(first['input'])}; {wanted}{at}") from error


def check_declared(plugin: object, contract: type) -> None:
    """TypeError for the first of a contract's attributes that a plugin has not, or has of another type."""
    for name, kind in get_type_hints(contract, include_extras=True).items():
        checked(kind, getattr(plugin, name), f"its {name}", strict=True)


@functools.cache
def _promised(method: Callable[..., Any]) -> Any:
    return get_type_hints(method, include_extras=True)["return"]


@functools.cache
def _type(kind: Any) -> "TypeAdapter[Any]":
    from pydantic import TypeAdapter  # every command loads plugins, and not every one asks them

    return TypeAdapter(kind)


@contextlib.contextmanager
def blamed(whose: str, fails: str = "does not load", refused: bool = False) -> Iterator[None]:
    """Report what is raised inside as a plugin's mistake, a RequestError with its place.

    `refused`: what the disk or the memory refuses is raised as it is.
    """
    try:
        yield
    except (StagebenchError, KeyboardInterrupt):
        raise
    except ModuleNotFoundError as error:
        if error.name not in MOVED:
            raise _mistake(whose, fails, error) from error
        raise RequestError(
            f"{whose} was written for an older contract: {error.name} is {MOVED[error.name]} now. "
            f"Change\n{changes_since(1)}\nand set `contract = {CONTRACT}` in its adapter"
        ) from error
    except BaseException as error:  # sys.exit at import would end every command without a word
        if refused and (isinstance(error, MemoryError) or getattr(error, "errno", None) in OF_A_DISK):
            raise
        raise _mistake(whose, fails, error) from error


def _mistake(whose: str, fails: str, error: BaseException) -> RequestError:
    at = traceback.extract_tb(error.__traceback__)[-1]
    where = "" if at.filename in OURS else f" ({at.filename}, line {at.lineno})"
    return RequestError(f"{whose} {fails}: {type(error).__name__}: {error}{where}; mend or uninstall it")
