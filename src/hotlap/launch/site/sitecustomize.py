"""Runs first in every Python process of a job: attaches the probe, then runs the sitecustomize that it hides."""

import importlib.util
import os
import sys
from importlib.machinery import PathFinder

_HERE = os.path.dirname(os.path.abspath(__file__))


def _load_hotlap() -> None:
    """The hotlap that started the job, and no other; nothing else of its environment is let in."""
    package = os.path.dirname(os.path.dirname(_HERE))
    spec = importlib.util.spec_from_file_location(
        "hotlap", os.path.join(package, "__init__.py"), submodule_search_locations=[package]
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules["hotlap"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


def _run_hidden_sitecustomize() -> None:
    elsewhere = [path for path in sys.path if os.path.abspath(path or ".") != _HERE]
    spec = PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def _wait_for_runs() -> None:
    """Returns in a forked process that is to run the script; in no other, whatever happens here."""
    try:
        import socket

        from hotlap.launch.warmed import wait_for_runs

        wait_for_runs(socket.socket(fileno=int(os.environ.pop("HOTLAP_WARM"))))
    except BaseException:
        os._exit(1)


if os.environ.get("HOTLAP_PROBE") and sys.version_info < (3, 11):
    print(
        f"hotlap: needs Python 3.11 or newer in the job's environment, this is {sys.version.split()[0]}",
        file=sys.stderr,
    )
elif os.environ.get("HOTLAP_PROBE"):
    try:
        _load_hotlap()
        if os.environ.get("HOTLAP_WARM"):
            _wait_for_runs()
        from hotlap.launch.bootstrap import attach_when_torch_comes

        attach_when_torch_comes()
    except Exception as error:  # the script must run, whatever happens here
        print(f"hotlap: could not attach: {type(error).__name__}: {error}", file=sys.stderr)
_run_hidden_sitecustomize()
