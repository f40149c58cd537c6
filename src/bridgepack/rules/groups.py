"""Groups of rules by the first digits of their codes."""

#: (beginning of the code, title), the longer beginnings first.
GROUPS: tuple[tuple[str, str], ...] = (
    ("BP89", "While training"),
    ("BP92", "CUDA graphs and FP8"),
    ("BP93", "Packing inside the batch"),
    ("BP94", "Packing inside the batch"),
    ("BP95", "Kinds of context parallelism"),
    ("BP96", "What happens around training"),
    ("BP97", "What happens around training"),
    ("BP98", "Installed versions"),
    ("BP99", "Suppressions"),
    ("BP0", "Switches of packing"),
    ("BP1", "Multiples and sizes"),
    ("BP2", "Paths and caches"),
    ("BP3", "Rows, shards and the manifest"),
    ("BP4", "The host's metadata file"),
    ("BP5", "Tokens, templates and masks"),
    ("BP6", "Batches, steps and epochs"),
    ("BP7", "Attention and rotary embeddings"),
    ("BP8", "Pipeline, expert and tensor parallelism"),
    ("BP9", "Families of models"),
)


def group_of(code: str) -> str:
    """Return the title of a rule's group."""
    return next(title for beginning, title in GROUPS if code.startswith(beginning))
