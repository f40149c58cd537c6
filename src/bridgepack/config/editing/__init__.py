"""Settings written into a recipe file, its other lines kept byte for byte: YAML and TOML; Python is changed by hand.

In come a file and edits, `path -> value`; out comes its text before and after. Read `files` first.
"""

from bridgepack.config.editing.edits import CannotEditError, Edit
from bridgepack.config.editing.files import FileEdit, edit_file, edited_text, read_text

__all__ = ["CannotEditError", "Edit", "FileEdit", "edit_file", "edited_text", "read_text"]
