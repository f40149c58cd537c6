"""MkDocs hook: adds the pages, schemas and pictures that come from the code, as if they were files of docs/."""

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from bridgepack.cli import bridgepack
from docs_pages.site_files import site_files


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
