"""Options that several commands share."""

from suite.errors import RequestError


def interpreters_from(options: list[str]) -> dict[str, str]:
    """`--python NAME=PATH` options as a mapping; RequestError for one that is malformed, unknown or does not work."""
    from suite.environments import find
    from suite.plugins import adapters  # here: plugins are loaded when a command needs them

    settings = {}
    for option in options:
        name, equals, path = option.partition("=")
        if not equals or not path:
            raise RequestError(f"--python {option!r} should read NAME=PATH, such as pytorch=.venv/bin/python")
        if name not in adapters():
            raise RequestError(f"--python {option!r} names no adapter; known: {', '.join(adapters())}")
        settings[name] = path
        find(adapters()[name], settings)
    return settings
