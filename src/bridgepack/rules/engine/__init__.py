"""What rules are, what they judge, and how they run; it knows no rule.

In: rules and a subject, an artifact or a run. Out: a report: findings, and which rules passed or were skipped, and why.
Read first: `rule`, then `subject` and `judge`.
"""
