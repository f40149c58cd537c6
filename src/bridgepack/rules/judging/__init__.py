"""What a rule is, its subjects, and how rules judge them; independent of the rules themselves.

In: rules, and an artifact or a run. Out: a report with findings, and the rules that ran or were skipped, with reasons.
Read first: `rule`, then `subject` and `judge`.
"""
