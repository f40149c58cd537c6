"""An artifact's dataset card: what a hub shows of it, in YAML and Markdown."""

from pathlib import Path
from typing import Any

from bridgepack.config.editing.yaml_text import block_lines
from bridgepack.errors import ArtifactError
from bridgepack.records import INPUT_IDS, LOSS_MASK, SEQ_START_ID, TRAIN, Manifest, SplitRecord
from bridgepack.reporting.html.render import render_template

#: Bytes per number of each column; `datasets` adds four per list for its offset.
_ITEM_BYTES = {INPUT_IDS: 4, LOSS_MASK: 1, SEQ_START_ID: 4}
_OFFSET_BYTES = 4


def dataset_card(folder: Path, manifest: Manifest | None) -> str:
    """Return a card: `configs` and `dataset_info` in YAML, then a description of the artifact and its use.

    Raises:
        ArtifactError: the packs have no manifest, which the card needs.
    """
    if manifest is None:
        raise ArtifactError(f"{str(folder)!r} has no manifest, which a dataset card needs. Remove --card.")
    metadata = [line for name, value in _metadata(manifest).items() for line in block_lines(name, value, "  ")]
    return render_template("card.md.jinja", metadata="\n".join(metadata), name=folder.resolve().name, manifest=manifest)


def _metadata(manifest: Manifest) -> dict[str, Any]:
    splits = [_split(split) for split in manifest.splits]
    pairs = zip(manifest.splits, splits, strict=True)
    files = [{"split": entry["name"], "path": f"{split.name}/*.parquet"} for split, entry in pairs]
    return {
        "tags": ["sft", "packed", "megatron-bridge", "bridgepack"],
        "configs": [{"config_name": "default", "data_files": files}],
        "dataset_info": {
            "features": [
                {"name": INPUT_IDS, "list": "int32"},
                {"name": LOSS_MASK, "list": "int8"},
                {"name": SEQ_START_ID, "list": "int32"},
            ],
            "splits": splits,
            "download_size": sum(shard.num_bytes for split in manifest.splits for shard in split.shards),
            "dataset_size": sum(split["num_bytes"] for split in splits),
        },
    }


def _split(split: SplitRecord) -> dict[str, Any]:
    numbers = split.statistics
    num_stored_tokens = numbers.num_tokens + numbers.num_alignment_tokens + numbers.num_sequences
    num_bytes = num_stored_tokens * (_ITEM_BYTES[INPUT_IDS] + _ITEM_BYTES[LOSS_MASK])
    num_bytes += (
        numbers.num_sequences * _ITEM_BYTES[SEQ_START_ID] + len(_ITEM_BYTES) * _OFFSET_BYTES * numbers.num_packs
    )
    name = "train" if split.name == TRAIN else split.name
    return {"name": name, "num_bytes": num_bytes, "num_examples": numbers.num_packs}
