"""Programs forked from a process that has imported their framework, which takes seconds each time."""

import multiprocessing
import os
import runpy
import sys
import warnings

_preloaded = []


def preload(*modules):
    """From now on, `tests.support.processes.run_together` forks this Python's programs from one that has these."""
    _preloaded.extend(modules)


def possible(tokens):
    """Whether a command is one of this Python's programs, and something is preloaded."""
    return bool(_preloaded) and tokens[0] == sys.executable


class Forked:
    """As much of `subprocess.Popen` as a group of ranks needs, for PYTHON [-W error] PROGRAM ARGUMENT..."""

    def __init__(self, tokens, env):
        server = multiprocessing.get_context("forkserver")
        server.set_forkserver_preload(_preloaded)  # it is started by the first one
        self._process = server.Process(target=_become, args=(tokens[1:], env))
        self._process.start()

    def poll(self):
        return self._process.exitcode

    def kill(self):
        self._process.kill()

    def wait(self):
        self._process.join()


def _become(arguments, environ):
    """Run the program as if it had been started by itself."""
    multiprocessing.set_start_method(None, force=True)  # the program's own processes begin as ever
    os.environ.clear()
    os.environ.update(environ)
    strict = arguments[:2] == ["-W", "error"] or environ.get("PYTHONWARNINGS") == "error"
    sys.argv = arguments[2 * (arguments[0] == "-W") :]
    sys.path.insert(0, os.path.dirname(sys.argv[0]))
    with warnings.catch_warnings():
        if strict:
            warnings.simplefilter("error")
        runpy.run_path(sys.argv[0], run_name="__main__")
