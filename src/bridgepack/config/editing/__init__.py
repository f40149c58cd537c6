"""Writes settings into YAML and TOML recipe files and keeps all other lines byte for byte; Python is edited by hand.

In: a file and edits `path -> value`. Out: its text before and after. Read `files` first.
"""

from bridgepack.config.editing.edits import CannotEditError, Edit
from bridgepack.config.editing.files import FileEdit, edit_file, edited_text, read_text

__all__ = ["CannotEditError", "Edit", "FileEdit", "edit_file", "edited_text", "read_text"]
