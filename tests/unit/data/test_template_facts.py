"""What is known of a chat template before a row is read: one object, which a preview shows."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import bridgepack
from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.data.sequences.loading import load_stage
from bridgepack.data.templates.facts import TemplateFacts
from bridgepack.data.tokenizers.load import load_tokenizer
from bridgepack.reporting.results.previews import preview_blocks
from bridgepack.reporting.screen import screen
from tests.support.messages import mentions
from tests.support.small_builds import chat_row, small_recipe, write_json_lines
from tests.zoo.families import Family, write_tokenizer
from tests.zoo.served import SERVED_FAMILIES

BY_NAME = {family.name: family for family in SERVED_FAMILIES}
HEADER = "<|im_start|>assistant\n"
CHATML = {
    "headers": [HEADER],
    "ends": ["<|im_end|>\n", "<|im_end|>"],
    "openers": ["<|im_start|>"],
    "has_blocks": False,
    "has_plain_calls": True,
    "chat_end": "",
    "generation_prompt": HEADER,
    "thought_fields": {},
    "variables": ["enable_thinking"],
}


def _with_template(family: Family, *changes: tuple[str, str]) -> Family:
    template = family.template
    for text, other_text in changes:
        assert text in template
        template = template.replace(text, other_text)
    return replace(family, template=template)


SMOLLM_3 = BY_NAME["SmolLM3"]
PROMPT = "{%- if add_generation_prompt -%}"
BEHIND = f"{{%- if not add_generation_prompt -%}}{{{{- '<|endoftext|>' -}}}}{{%- endif -%}}{PROMPT}"


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        (SMOLLM_3, CHATML),
        (
            _with_template(SMOLLM_3, (PROMPT, BEHIND)),
            {**CHATML, "chat_end": "<|endoftext|>", "generation_prompt": None},
        ),
        (
            _with_template(SMOLLM_3, (PROMPT, "{%- if add_generation_prompt and messages[-1].role == 'user' -%}")),
            {**CHATML, "generation_prompt": None},
        ),
        (
            BY_NAME["Qwen3.5"],
            {
                **CHATML,
                "generation_prompt": f"{HEADER}<think>\n",
                "thought_fields": {"reasoning": "reasoning_content", "thinking": "reasoning_content"},
                "variables": ["enable_thinking", "preserve_thinking"],
            },
        ),
    ],
    ids=["plain", "a text behind the chat", "a prompt by roles", "a thought begun"],
)
def test_facts_of_a_template(tmp_path: Path, family: Family, expected: dict[str, Any]) -> None:
    recipe = small_recipe("rows.jsonl", write_tokenizer(tmp_path / "tokenizer", family))
    tokenizer = load_tokenizer(recipe.override({"tokenizer.template_date": "2025-06-30"}).tokenizer)
    assert TemplateFacts.of(tokenizer, ChatPreprocessing()).as_json() == expected


@pytest.mark.parametrize(
    ("template", "lines"),
    [
        (
            "{%- for m in messages -%}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' -}}"
            "{%- endfor -%}"
            "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}",
            [
                r"header              '<|im_start|>assistant\n'",
                r"end                 '<|im_end|>\n' or '<|im_end|>'",
                r"generation prompt   '<|im_start|>assistant\n'",
            ],
        ),
        (
            "{%- for m in messages -%}{{- m.role + ': ' -}}{%- if m.role == 'assistant' -%}{%- generation -%}"
            "{{- m.content -}}{%- endgeneration -%}{%- else -%}{{- m.content -}}{%- endif -%}{{- ';' -}}{%- endfor -%}",
            ["generation blocks hold", "generation prompt   none"],
        ),
    ],
    ids=["markers", "blocks"],
)
def test_a_preview_shows_them(tmp_path: Path, template: str, lines: list[str]) -> None:
    tokenizer = write_tokenizer(tmp_path / "tokenizer", replace(BY_NAME["Qwen2.5"], template=template))
    path = write_json_lines(tmp_path / "rows.jsonl", [chat_row("Question?", "Answer.")])
    sections: dict[str, Any] = {"preprocessing": {"kind": "chat"}, "packing": {"packed_sequence_size": 256}}

    text = screen(preview_blocks(bridgepack.preview(small_recipe(path, tokenizer, **sections))))

    shown = text.partition("what is known of the chat template:\n")[2].splitlines()
    assert all(mentions(line, part) for line, part in zip(shown, lines, strict=False))
    assert len(shown) >= len(lines)


@pytest.mark.parametrize(
    "setting",
    [
        {"preprocessing.loss_mode": "full"},
        {"preprocessing.loss_mode": "last_turn"},
        {
            "preprocessing.assistant_markers": {
                "assistant_start": "<|im_start|>assistant\n",
                "assistant_end": "<|im_end|>",
            }
        },
        {
            "preprocessing.content_parts": "keep",
            "preprocessing.tool_arguments": "keep",
            "preprocessing.null_content": "keep",
        },
        {"preprocessing.mask_generation_prompt": True},
        {"tokenizer.chat_template_kwargs": {"enable_thinking": False}},
        {"packing.mode": "in_batch"},
    ],
    ids=str,
)
def test_a_stage_with_another_setting_has_the_facts_that_it_would_learn(
    tmp_path: Path, setting: dict[str, Any]
) -> None:
    recipe = small_recipe("rows.jsonl", write_tokenizer(tmp_path / "tokenizer", BY_NAME["Qwen3.5"]))
    stage = load_stage(recipe.model_dump_json())
    changed = recipe.override(setting)

    made = stage.with_recipe(changed)

    assert made.facts == TemplateFacts.of_recipe(changed, load_tokenizer(changed.tokenizer))
