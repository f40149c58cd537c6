"""MkDocs hook: adds the pages, schemas and pictures that come from the code, as if they were files of docs/."""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from bridgepack import __version__
from bridgepack.cli import bridgepack
from docs_pages.old_addresses import leading_pages
from docs_pages.site_files import site_files


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Return the configuration with the version that the site describes, which every page shows at its end."""
    releases = f"{config.repo_url}/releases"
    config.copyright = (
        f'bridgepack {__version__}, for Megatron-Bridge 0.6 and 0.7. <a href="{releases}">Each release</a> '
        "has the site of its version."
    )
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Return the files of docs/ and the generated ones.

    Raises:
        ValueError: docs/ has a file of that name.
    """
    for name, text in site_files(bridgepack).items():
        if files.get_file_from_path(name):
            raise ValueError(f"docs/{name} is made for the site. Remove the file.")
        files.append(File.generated(config, name, content=text))
    return files


def on_post_build(config: MkDocsConfig) -> None:
    """Write the pages that lead from old addresses to new ones."""
    for name, text in leading_pages().items():
        path = Path(config.site_dir) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
