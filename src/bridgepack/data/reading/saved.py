"""What `datasets.save_to_disk` writes beside the rows: the splits of a DatasetDict, the files of a data set."""

import json
from pathlib import Path
from typing import Any

from bridgepack.errors import DataError
from bridgepack.user_files import read_text, reason_of

DICT_FILE, STATE_FILE = "dataset_dict.json", "state.json"
#: Files without rows in a saved data set.
FILES_WITHOUT_ROWS = frozenset({"dataset_info.json", STATE_FILE, DICT_FILE})


def saved_files(folder: Path, field: str) -> list[Path]:
    """Return the Arrow files of a saved data set.

    Raises:
        DataError: the data set is damaged.
    """
    state = folder / STATE_FILE
    files = [folder / str(entry["filename"]) for entry in _saved_json(state, "_data_files", field)]
    missing = next((file for file in files if not file.is_file()), None)
    if missing is not None:
        raise DataError(f"{field}: {str(missing)!r}, which {str(state)!r} lists, is missing. Save the data again.")
    return files


def saved_splits(folder: Path, field: str) -> list[str]:
    """Return the names of the splits of a saved DatasetDict; raises DataError if it is damaged."""
    return [str(name) for name in _saved_json(folder / DICT_FILE, "splits", field)]


def split_folder(folder: Path, field: str, split_names: tuple[str, ...]) -> Path:
    """Return the folder of a saved DatasetDict's split, the first that it has of those wanted.

    Raises:
        DataError: it has none of them, or is damaged.
    """
    names = saved_splits(folder, field)
    name = next((name for name in split_names if name in names), None)
    if name is None:
        raise DataError(
            f"{field} is {str(folder)!r}, a saved DatasetDict with splits {', '.join(names) or 'none'}; none of them "
            f"is {' or '.join(split_names)}. Name the folder of a split, e.g. {str(folder / 'NAME')!r}."
        )
    return folder / name


def _saved_json(path: Path, key: str, field: str) -> list[Any]:
    try:
        return list(json.loads(read_text(path))[key])
    except OSError as error:
        raise DataError(f"{field}: {str(path)!r} cannot be read: {reason_of(error)}. Save the data again.") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(
            f"{field}: {str(path)!r} is not what datasets.save_to_disk writes ({error}). Save it again."
        ) from None
