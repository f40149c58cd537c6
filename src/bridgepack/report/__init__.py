"""Renders results: progress, summaries and pictures for the terminal, and HTML pages.

The package is callable: `bridgepack.report("packed")` calls `bridgepack.api.report`.

In: results as values. Out: text. Nothing is computed or decided here.
Read first: `terminal`.
"""

import sys
from types import ModuleType
from typing import Any


class _CallableModule(ModuleType):
    """A package that can be called, so that `bridgepack.report` is both a function and a package."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Write the report of an artifact and return the result, as `bridgepack.api.report`."""
        from bridgepack.report.html.files import report  # it imports this package

        return report(*arguments, **options)


sys.modules[__name__].__class__ = _CallableModule
