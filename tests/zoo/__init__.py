"""The zoo: families of chat templates with tokenizers for them, written here; tests and scripts take them from it.

`families` are the eight of the table of quirks, with their `templates`; `endless`, `thinking`, `prompted`, `served` and
`exchanges` differ in how an answer begins and ends; `judged` are those whose masks are judged; `tokenizers` cut texts
at control tokens in the ways of real ones.
"""
