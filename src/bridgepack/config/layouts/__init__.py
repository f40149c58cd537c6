"""The layouts of public data sets, and which of them rows have.

In: rows. Out: a `Detection` with a concrete `Layout`, or an error with what fits; hints for single rows; `holds`.
Read first: `entry`, then `public`; `detect` looks at rows.
"""
