"""What the site shows and docs/ does not hold: references, rules, schemas, tables of cells, the notebook, pictures."""

from pathlib import Path

import click

from bridgepack.config.write import cluster_schema, recipe_schema, schema_text
from bridgepack.rules.registry import ALL_RULES

from .error_messages import error_messages_page
from .manifest import manifest_page
from .notebooks import notebook_page
from .pictures import PICTURES
from .quirks import quirks_page
from .reference import cluster_page, commands_page, recipe_page
from .rules import rule_pages
from .served import served_page
from .upgrades import upgrade_pages

DOCS = Path(__file__).parents[2] / "docs"
#: Pictures that README shows; they are in git, and `scripts/generate_docs` writes them.
README_PICTURES = frozenset({"images/row-to-pack.svg"})


def site_files(command: click.Group) -> dict[str, str]:
    """Return file name below docs/ -> text.

    Args:
        command: the command line.
    """
    return {
        "recipe-reference.md": recipe_page(),
        "cluster-reference.md": cluster_page(),
        "recipe.schema.json": schema_text(recipe_schema()),
        "cluster.schema.json": schema_text(cluster_schema()),
        "cli.md": commands_page(command),
        "error-messages.md": error_messages_page(ALL_RULES),
        "manifest-reference.md": manifest_page(),
        "tutorials/notebook.md": notebook_page(DOCS / "tutorials/notebook.ipynb"),
        "quirks.md": quirks_page(),
        "served-families.md": served_page(),
        **rule_pages(ALL_RULES),
        **upgrade_pages(),
        **{name: draw() for name, draw in PICTURES.items() if name not in README_PICTURES},
    }
