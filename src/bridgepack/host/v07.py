"""Megatron-Bridge 0.7: what differs from 0.6. Source: main at 067f987df of 2026-08-22, with the core that it pins."""

from dataclasses import replace
from pathlib import Path

from bridgepack.host.v06 import V06

V07 = replace(
    V06,
    name="0.7",
    versions=">=0.7,<0.8",
    bridge="0.7.0",
    core="0.20.0",
    core_works=">=0.20.dev0",
    core_released=">=0.20.dev0,<0.21.dev0",
    withdrawn=(),
    bases=Path(__file__).with_name("bases_v06.json"),
    trains_after_eos=True,  # data/packing/gpt_sft.py (collate_fn)
    gives_padding_mask=True,  # the same
    empties_null_content=True,  # data/conversation_processing.py (normalize_chat_conversation)
    parses_call_arguments=True,  # the same
)
