"""Derives an artifact again and compares every number.

In: an artifact and its sources or stored tokens. Out: what was compared, what differs, and why.
Read first: `verify`.
"""
