"""Renders results: progress, summaries and pictures for the terminal, and HTML pages.

The package is callable: `bridgepack.report("packed")` calls `bridgepack.api.report`.

In: results as values. Out: text. Nothing is computed or decided here.
Read first: `terminal`.
"""

from bridgepack import make_callable

make_callable(__name__, "bridgepack.report.html.files")
