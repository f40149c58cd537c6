"""Renders results: progress, text for the terminal, HTML pages, parts of notebooks, and formats of CI systems.

In: results as values. Out: text; callers write it. `results` makes the blocks of each kind of result once; `screen`
and `html.pages` draw blocks. Nothing is computed or decided here.
Read first: `blocks`, then `results.checks`.
"""
