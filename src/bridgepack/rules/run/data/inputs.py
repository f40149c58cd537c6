"""Rules on the raw data of a build."""

from bridgepack.rules.judging.files import Files
from bridgepack.rules.judging.rule import ERROR, EXECUTED, Found, place, rule, wrong
from bridgepack.rules.judging.subject import SPECS, Run

_SPLITS = {"data.train": "training", "data.validation": "validation"}


def _is_empty(path: str, files: Files) -> bool:
    size = files.num_bytes(path)
    is_lines = path.lower().endswith((".jsonl", ".ndjson"))
    return size == 0 or (size is not None and is_lines and files.num_lines(path, at_most=1) == 0)


@rule("BP854", ERROR, "bridgepack, data/build.py", noticed="bridgepack build", evidence=EXECUTED)
def input_without_rows(run: Run) -> Found:
    """The files of a split have no row, and no packs exist yet.

    Why: Crash in the build, the first stage of a launched run.
    Bad: data.train chats.jsonl, an empty file. Good: chats.jsonl with rows.
    Fix: Correct the path, or write rows into the files.
    """
    if run.is_stated(f"{SPECS}.packed_train_data_path") or not run.config.inputs:
        return
    files = run.require_files()
    for field, split in _SPLITS.items():
        paths_of_field = [path for name, path in run.config.inputs if name == field]
        paths = [path for name in paths_of_field for path in (files.matches(name) or (name,))]
        if paths and all(_is_empty(path, files) for path in paths):
            actual = f"{', '.join(paths[:3])}; the {split} split has no rows"
            yield wrong(place(field), actual, "files with at least one row")
