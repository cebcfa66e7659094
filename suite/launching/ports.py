"""A port for ranks to meet at."""

import socket


def free_port() -> int:
    """A TCP port that is free on this machine now; the system does not give it out again at once."""
    with socket.socket() as listener:
        listener.bind(("", 0))
        number: int = listener.getsockname()[1]
        return number
