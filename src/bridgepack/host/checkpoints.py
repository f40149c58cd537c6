"""What the host takes for a checkpoint to start from: data, nothing is imported.

Source: megatron/bridge/training/utils/checkpoint_utils.py of 0.6.2, `checkpoint_exists`, `is_hf_checkpoint_dir`;
checkpointing.py:2670, where a Hugging Face model is refused for `checkpoint.load`.
"""

import re
from collections.abc import Collection
from fnmatch import fnmatchcase
from typing import Literal

#: Files of which a folder with checkpoints, or one iteration's folder, has at least one.
MARKERS = (
    *("latest_train_state.pt", "latest_checkpointed_iteration.txt"),
    *("run_config.yaml", "train_state.pt", "metadata.json", ".metadata"),
)
#: A folder with a model of Hugging Face has the first, and weights under one of the other names.
HF_CONFIG = "config.json"
HF_WEIGHTS = (
    *("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json"),
    *("model-*-of-*.safetensors", "pytorch_model-*-of-*.bin"),
)
#: Files with the vocabulary of a tokenizer, or with the code that makes it; a tokenizer's folder has at least one.
VOCABULARY = re.compile(r"^tokenizer\.json$|^tekken\.json$|^vocab|\.(?:model|vocab|tiktoken|bpe|py)$")
#: The page of the site with all steps from a model of the hub to a served one.
IMPORT_PAGE = "https://bridgepack.readthedocs.io/from-weights/"
#: How a model of the hub becomes a checkpoint.
IMPORT = "AutoBridge.import_ckpt({!r}, FOLDER)"
#: The same as a script of one line.
#: Source: megatron/bridge/models/conversion/auto_bridge.py of 0.6.2, import_ckpt.
IMPORT_SCRIPT = "from {root} import AutoBridge; AutoBridge.import_ckpt({model}, {folder})"


def checkpoint_kind(names: Collection[str]) -> Literal["megatron", "hugging_face"] | None:
    """Return what the host sees in a folder with these names: checkpoints, a model of Hugging Face, or nothing."""
    if any(name in names for name in MARKERS):
        return "megatron"
    has_weights = any(fnmatchcase(name, pattern) for name in names for pattern in HF_WEIGHTS)
    return "hugging_face" if HF_CONFIG in names and has_weights else None
