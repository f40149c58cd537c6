"""Shows progress in notebooks without being asked, as a notebook has no other sign that a long build is alive."""

import sys
from collections.abc import Callable
from functools import wraps

from bridgepack.reporting.progress import NotebookProgress


def is_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    shell = get_ipython() if callable(get_ipython) else None
    return shell is not None and "IPKernelApp" in shell.config


def shows_progress[**P, R](function: Callable[P, R]) -> Callable[P, R]:
    """Return the function with bars as its default `progress` in a notebook; elsewhere it stays silent."""

    @wraps(function)
    def function_with_bars(*args: P.args, **kwargs: P.kwargs) -> R:
        if kwargs.get("progress") is not None or not is_notebook():
            return function(*args, **kwargs)
        with NotebookProgress() as bars:
            kwargs["progress"] = bars
            return function(*args, **kwargs)

    return function_with_bars
