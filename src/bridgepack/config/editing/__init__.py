"""Changes of a recipe file, its other lines kept byte for byte: YAML and TOML; for Python, what to change by hand.

In come a file and edits, `path -> value`; out comes its text before and after. Read `files` first.
"""

from bridgepack.config.editing.edits import REMOVE, CannotEditError, Edit, Kind
from bridgepack.config.editing.files import FileEdit, edit_file, edited_text, read_text

__all__ = ["REMOVE", "CannotEditError", "Edit", "FileEdit", "Kind", "edit_file", "edited_text", "read_text"]
