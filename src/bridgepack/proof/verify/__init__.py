"""An artifact derived anew and compared number for number.

In: an artifact and its sources or stored tokens. Out: what was compared, what differs, and why.
Read first: `verify`.
"""
