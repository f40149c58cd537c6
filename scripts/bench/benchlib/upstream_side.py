"""Megatron-Bridge's preparation, as its own script calls it. usage: FOLDER DATA TOKENIZER ALGORITHM NUM_WORKERS.

Source: Megatron-Bridge r0.6.0, scripts/training/prepare_gpt_sft_packed_data.py with explicit paths. That script also
imports every recipe, which takes seconds more and is left out here.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchlib.phases import PhaseClock
from benchlib.settings import LOSS_MODE, PACKED_SEQUENCE_SIZE, PAD_SEQ_TO_MULT, SEED


def main() -> None:
    folder, (data, tokenizer, algorithm, num_workers) = Path(sys.argv[1]), sys.argv[2:]
    clock = PhaseClock()
    from bridgepack.bridge.import_on_cpu import install_import_hook

    install_import_hook()
    from megatron.bridge.data.builders.gpt_sft import build_gpt_sft_split
    from megatron.bridge.data.packing.offline import prepare_gpt_sft_packed_data
    from megatron.bridge.training.config import TokenizerConfig
    from megatron.bridge.training.tokenizers.tokenizer import build_tokenizer

    clock.end("imports")
    (folder / "packed").mkdir()
    prepare_gpt_sft_packed_data(
        input_path=Path(data),
        output_path=folder / "packed" / "training.idx.parquet",
        output_metadata_path=folder / "metadata.json",
        packed_sequence_size=PACKED_SEQUENCE_SIZE,
        tokenizer=build_tokenizer(TokenizerConfig(tokenizer_type="HuggingFaceTokenizer", tokenizer_model=tokenizer)),
        max_seq_length=PACKED_SEQUENCE_SIZE,
        seed=SEED,
        packing_algorithm=algorithm,
        dataset_kwargs={"chat": True, "use_hf_tokenizer_chat_template": True, "chat_loss_mode": LOSS_MODE},
        pad_seq_to_mult=PAD_SEQ_TO_MULT,
        num_tokenizer_workers=int(num_workers),
        dataset_builder=build_gpt_sft_split,
    )
    clock.end("build")
    clock.write(folder / "phases.json")


if __name__ == "__main__":
    main()
