"""How a process that belongs to one command starts: garbage collected rarely, libraries imported fast, workers early.

A notebook needs none of this, and must not be changed by it.
"""

from bridgepack.data.workers.memory import collect_rarely as collect_rarely


def import_transformers() -> None:
    """Import transformers' tokenizers without frameworks: a plain import of transformers takes seconds more."""
    from bridgepack.data.tokenizers import frameworks

    frameworks.import_transformers()


def start_workers(*recipe: object) -> None:
    """Start the server of the workers that tokenise, which imports in the background.

    `recipe` are the recipe as the user named it, and overrides as `path=value`: its tokenizer is loaded, too.
    """
    from bridgepack.data.workers.process import TOKENISING, preload

    preload(TOKENISING, *recipe)
