"""Writes settings into YAML files and keeps all other lines byte for byte; TOML and Python are edited by hand.

In: a file and edits `path -> value`. Out: its text before and after. Read `files` first.
"""

from bridgepack.config.editing.edits import CannotEditError as CannotEditError
from bridgepack.config.editing.files import FileEdit as FileEdit
from bridgepack.config.editing.files import edit_file as edit_file
from bridgepack.config.editing.files import edited_text as edited_text
from bridgepack.config.editing.files import read_text as read_text
