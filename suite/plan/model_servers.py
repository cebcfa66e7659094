"""A model server in a plan: what may be asked of it, and the settings with which it serves a case."""

import contextlib
import ipaddress
import re
from collections.abc import Iterator, Mapping
from typing import Any

from stagebench.suite.contracts.case import Case
from stagebench.suite.contracts.model_server import INPROCESS, ModelServer
from stagebench.suite.plan.model import Choice
from stagebench.suite.text import known, shown
from stagebench.suite.worker.case_parts import Serving
from stagebench.suite.worker.pass_kinds import SERVER
from stagebench.suite.worker.protocols import GRPC

# Without TLS: a host, a port, and by HTTP a path that others are appended to, by gRPC a model's name.
HOST = r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:]+\])"
ADDRESS = re.compile(f"http://{HOST}(:(?P<port>[0-9]{{1,5}}))?(/[^?#\\s]*)?", re.ASCII)
GRPC_ADDRESS = re.compile(f"grpc://{HOST}:(?P<port>[0-9]{{1,5}})/[^/?#\\s]+", re.ASCII)
Servers = Mapping[str, ModelServer]


def server_problems(choice: Choice, servers: Servers) -> Iterator[tuple[str, str]]:
    """Yield (key, problem) of an address and options that the choice's model server cannot have.

    In process they are nothing, where the block also names a server that has them.
    """
    server = servers.get(choice["model_server"])
    if choice.block.model_server == [INPROCESS]:
        for key in filter(choice.__getitem__, ("address", "options")):
            yield key, f"{key} is a model server's, and this block names none; write model_server = ..."
    if server is not None and SERVER in choice.block.passes:
        yield from (("address", problem) for problem in _of_address(server, choice["address"], servers))
        for name, value in choice["options"].items():
            yield from (("options", problem) for problem in _of_option(server, name, value, choice["max_delay_ms"]))


def _of_address(server: ModelServer, address: str, servers: Servers) -> Iterator[str]:
    form, pattern = "http://HOST:PORT/PATH", ADDRESS
    if server.protocol == GRPC:
        form, pattern = "grpc://HOST:PORT/MODEL", GRPC_ADDRESS
    read = pattern.fullmatch(address)
    if server.program and address:
        others = [each.name for each in servers.values() if not each.program and server.protocol == each.protocol]
        yield (
            f"the model server {server.name} is started here and has no address; for one that runs elsewhere write "
            f"model_server = {' or '.join(map(repr, others))}"
        )
    elif not server.program and not address:
        yield f"the model server {server.name} runs elsewhere; write address = '{form}'"
    elif address and not (read and 0 < int(read["port"] or 80) < 1 << 16 and _is_host(read[1])):
        yield f"address = {shown(address)}: should read {form}; TLS, users and queries are not sent"


def _is_host(host: str) -> bool:
    """Return whether a host is a name, or in brackets an address of IPv6."""
    if host.startswith("["):
        with contextlib.suppress(ValueError):
            return bool(ipaddress.IPv6Address(host[1:-1]))
    return not host.startswith("[")


def _of_option(server: ModelServer, name: str, value: Any, delay_ms: float) -> Iterator[str]:
    option = server.options.get(name)
    if option is None:
        hint = known(name, server.options) if server.options else "it has none; leave it out"
        yield f"the model server {server.name} has no option {shown(name)}; {hint}"
    elif problem := option.problem(value):
        yield f"{server.name}'s option {name} {problem}"
    elif name == server.delay_option[0] and delay_ms not in (0.0, _delay_ms(server, value)):
        yield f"{name} = {value} is {server.name}'s max_delay_ms, which is {delay_ms:g} here; write one of them"


def _delay_ms(server: ModelServer, value: float) -> float:
    return round(value * server.delay_option[1], 6)


def serving_of(case: Case, servers: Servers) -> Serving:
    """Return the settings of the load `server`; the default ones of what has no use for them, which must not differ."""
    rule, usual = case.serving, Serving()
    if SERVER not in case.passes:
        return usual
    if rule.model_server == INPROCESS:
        return rule._replace(workers=usual.workers, address=usual.address, options=usual.options)
    server = servers.get(rule.model_server)
    if server is None:
        return rule
    rule = rule._replace(options=dict(sorted(rule.options.items())), address=rule.address.rstrip("/"))
    if not server.program:
        return rule._replace(max_delay_ms=usual.max_delay_ms)
    if not (server.batches and server.delays):
        return rule._replace(max_delay_ms=usual.max_delay_ms)
    options, name = dict(rule.options), server.delay_option[0]
    if name not in options:
        return rule
    return rule._replace(max_delay_ms=_delay_ms(server, options.pop(name)), options=options)


def serves(case: Case) -> bool:
    """Return whether a model server takes queries of the case."""
    return SERVER in case.passes and case.serving.model_server != INPROCESS


def one_a_host(case: Case, servers: Servers) -> str | None:
    """Return why model servers cannot run on the hosts of a case; None if they can."""
    ranks, address, name = case.placement.ranks, case.serving.address, case.serving.model_server
    if not serves(case) or ranks == 1:
        return None
    if name in servers and servers[name].protocol == GRPC:
        return f"HAProxy hands on HTTP/1.1, and the model server {name} is asked over gRPC; use nodes = 1"
    if address:
        return f"one rank asks the model server at {address}, not {ranks}; use nodes = 1 and ranks = 1"
    if case.placement.ranks_per_node > 1:
        return f"a host has one model server, not {case.placement.ranks_per_node}; use ranks = 1, and more workers"
    return None


def unkept(case: Case, servers: Servers) -> str | None:
    """Return why a model server does not batch as the case wants, or cannot keep its options; None if it does."""
    server = servers.get(case.serving.model_server)
    if server is None or not serves(case):
        return None
    if server.batches or case.batch == 1:
        problem = server.refusal(case.batch, case.serving.options)
        return problem and f"the model server {server.name} cannot keep its options: {problem}"
    return f"the model server {server.name} answers one query at a time, not {case.batch} together; use batch = 1"
