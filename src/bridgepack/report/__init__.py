"""What people see: progress, summaries and pictures for the terminal.

In: results as values. Out: text; nothing is decided here.
Read first: `terminal`.
"""
