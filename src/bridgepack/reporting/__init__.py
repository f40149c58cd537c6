"""Renders results: progress, summaries and pictures for the terminal, and HTML pages.

In: results as values. Out: text. Nothing is computed or decided here.
Read first: `terminal`.
"""
