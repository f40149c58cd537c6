"""What people see: progress, summaries and pictures for the terminal, and pages.

The package can be called: `bridgepack.report("packed")` is `bridgepack.api.report`.

In: results as values. Out: text; nothing is decided here.
Read first: `terminal`.
"""

import sys
from types import ModuleType
from typing import Any


class _CallableModule(ModuleType):
    """The package, so that `bridgepack.report` is the function and the home of the modules."""

    def __call__(self, artifact: Any, **options: Any) -> Any:
        """Return what was written of an artifact, as `bridgepack.api.report`."""
        from bridgepack.report.html.files import report  # it imports this package

        return report(artifact, **options)


sys.modules[__name__].__class__ = _CallableModule
