"""Plain documents: their tokens, masks and pieces, and what is told of their texts."""

import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.plan import iter_plan_columns
from bridgepack.data.tokenizers.load import load_tokenizer
from bridgepack.errors import ConfigError, RowError, TokenizerError
from bridgepack.records import Manifest
from tests.support import small_builds as small
from tests.support.messages import mentions
from tests.support.read_rows import ReadingEncoder, encoder_of

TEXT = {"kind": "text"}
PROSE = "The wind rose in the night. Nobody slept."
RENDERED = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n"


def _encoder(tokenizer: Path, **settings: Any) -> ReadingEncoder:
    recipe = small.small_recipe("a.jsonl", tokenizer, preprocessing={**TEXT, **settings})
    return ReadingEncoder(encoder_of(recipe, load_tokenizer(recipe.tokenizer)), recipe.preprocessing)


def _losses(tokenizer: Path, text: str, **settings: Any) -> list[tuple[str, str]]:
    return [(str(loss.kind), loss.detail) for loss in _encoder(tokenizer, **settings).prepare({"text": text}).losses]


def _packed(folder: Path, split: str = "training") -> list[tuple[list[int], list[int]]]:
    """Return (ids, label-aligned mask) of every sequence, in the order of the packs; the packs have no padding."""
    found = []
    for batch in Artifact(folder).iter_batches(split):
        for row in map(batch.row, range(batch.num_rows)):
            bounds = [*row.seq_start_id.tolist(), len(row.input_ids)]
            found += [
                (row.input_ids[start:stop].tolist(), row.loss_mask[start:stop].tolist())
                for start, stop in pairwise(bounds)
            ]
    return found


def _built(tmp_path: Path, rows: list[Any], tokenizer: Path, **sections: Any) -> Manifest:
    source = small.write_json_lines(tmp_path / "documents.jsonl", rows)
    settings = {"preprocessing": TEXT, "packing": {"packed_sequence_size": 64}, **sections}
    return small.build(small.small_recipe(source, tokenizer, **settings), tmp_path / "out").manifest


def test_a_document_is_its_tokens_and_eos_and_all_of_it_is_trained(tmp_path: Path, chatml_tokenizer: Path) -> None:
    tokenizer = load_tokenizer(small.small_recipe("a", chatml_tokenizer).tokenizer)
    ids = tokenizer.encode(PROSE)

    manifest = _built(tmp_path, [{"text": PROSE}], chatml_tokenizer)

    assert tokenizer.eos_token_id == 2
    assert _packed(tmp_path / "out") == [([*ids, 2], [1] * len(ids) + [0])]
    numbers = manifest.splits[0].statistics
    assert (numbers.num_tokens, numbers.num_trained_tokens) == (len(ids), len(ids))


@pytest.mark.parametrize(("add_bos", "add_eos"), [(False, False), (True, False), (True, True)])
def test_special_tokens_are_those_of_the_recipe(chatml_tokenizer: Path, add_bos: bool, add_eos: bool) -> None:
    encoder = _encoder(chatml_tokenizer, add_bos=add_bos, add_eos=add_eos)
    tokenizer = load_tokenizer(small.small_recipe("a", chatml_tokenizer).tokenizer)
    bos = tokenizer.special_token_id("bos")
    texts = [PROSE, "Two words."]

    flat = encoder.encode([encoder.prepare({"text": text}).value for text in texts])

    expected = [[*([bos] if add_bos else []), *tokenizer.encode(text), *([2] if add_eos else [])] for text in texts]
    assert bos == 0
    assert [part.tolist() for part in np.split(flat.input_ids, flat.offsets[1:-1])] == expected
    assert flat.loss_mask.tolist() == [1] * len(flat.input_ids)


def test_a_document_that_is_split_keeps_every_prediction_once(tmp_path: Path, chatml_tokenizer: Path) -> None:
    tokenizer = load_tokenizer(small.small_recipe("a", chatml_tokenizer).tokenizer)
    text = PROSE * 9
    whole = [*tokenizer.encode(text), 2]

    packing = {"packed_sequence_size": 32, "algorithm": "sequential"}
    manifest = _built(
        tmp_path, [{"text": text}], chatml_tokenizer, preprocessing={**TEXT, "over_long": "split"}, packing=packing
    )

    (columns,) = iter_plan_columns(Artifact(tmp_path / "out"), "training", ("first_token", "runtime_length"))
    pieces = dict(zip(columns[0].tolist(), _packed(tmp_path / "out"), strict=True))
    predicted = [
        (first + place, ids[place], ids[place + 1])
        for first, (ids, mask) in sorted(pieces.items())
        for place in range(len(ids) - 1)
        if mask[place]
    ]
    assert len(pieces) > 2
    assert predicted == [(place, whole[place], whole[place + 1]) for place in range(len(whole) - 1)]
    numbers = manifest.splits[0].statistics
    assert (numbers.num_split, numbers.num_pieces, numbers.num_trained_tokens) == (1, len(pieces), len(whole) - 1)


def test_a_document_without_a_text_is_dropped_by_name(tmp_path: Path, chatml_tokenizer: Path) -> None:
    rows = [{"text": PROSE}, {"text": ""}, {"text": None}, {"text": " \n"}, {"text": 5}, {"body": PROSE}]
    data = {"train": str(tmp_path / "documents.jsonl"), "layout": {"kind": "text"}}

    manifest = _built(tmp_path, rows, chatml_tokenizer, data=data)

    assert small.dropped(tmp_path / "out") == [
        *((row, "missing_field") for row in (2, 3, 4)),
        (5, "invalid_field"),
        (6, "missing_field"),
    ]
    details = {drop.row: drop.detail for drop in manifest.splits[0].drop_examples}
    assert mentions(details[6], "text is missing; ", ": body; ", "add {kind: text, text: '{body}'} to data.layout")
    small.assert_balanced(manifest)


def test_columns_beside_the_text_are_told(tmp_path: Path, chatml_tokenizer: Path) -> None:
    row = {"text": PROSE, "id": 7, "url": "https://a.org/b", "summary": "Nobody could sleep in that wind."}

    manifest = _built(tmp_path, [row], chatml_tokenizer)

    assert {(one.name, one.holds) for one in manifest.splits[0].unread} == {
        *(("id", "identifier"), ("url", "identifier"), ("summary", "text"))
    }
    assert manifest.splits[0].lost_content == {"unread": 1}


def test_a_layout_makes_a_document_of_several_columns(tmp_path: Path, chatml_tokenizer: Path) -> None:
    tokenizer = load_tokenizer(small.small_recipe("a", chatml_tokenizer).tokenizer)
    rows = [{"title": "Wind", "body": PROSE}, {"title": "", "body": PROSE}]
    layout = {"kind": "text", "text": ["# {title}", "{body}"]}
    source = small.write_json_lines(tmp_path / "a.jsonl", rows)

    small.build(
        small.small_recipe(
            "",
            chatml_tokenizer,
            data={"train": str(source), "layout": layout},
            preprocessing=TEXT,
            packing={"packed_sequence_size": 128, "algorithm": "sequential"},
        ),
        tmp_path / "out",
    )

    texts = sorted(tokenizer.decode(ids) for ids, _ in _packed(tmp_path / "out"))
    assert texts == [f"# Wind\n\n{PROSE}<|im_end|>", f"{PROSE}<|im_end|>"]


@pytest.mark.parametrize(
    ("text", "settings", "expected"),
    [
        (PROSE, {}, []),
        (f"{PROSE}<|im_end|>", {}, [("doubled_token", "the text ends with '<|im_end|>', which add_eos adds again")]),
        (f"{PROSE}<|im_end|>", {"add_eos": False}, []),
        (f"{PROSE}<|im_end|>\n{PROSE}", {}, [("injected_turn", "the text contains '<|im_end|>', and goes on")]),
        (
            RENDERED,
            {"add_eos": False},
            [("rendered_chat", "the text has turns of a chat, '<|im_start|>'; all of them")],
        ),
        ("<s>[INST] Hi [/INST] Hello</s>", {}, [("rendered_chat", "the text has turns of a chat, '[INST]'; all of")]),
        ("USER: Hi\nASSISTANT: Hello", {}, [("rendered_chat", "the text has turns of a chat, 'USER:'; all of them")]),
        *(
            (text, {}, [("rendered_chat", f"the text has turns of a chat, {marker!r}; all of them")])
            for text, marker in (
                ("### Human: Hi there.### Assistant: Hello.### Human: Bye", "### Human:"),
                ("Below is a task.\n\n### Instruction:\nAdd.\n\n### Response:\n3", "### Instruction:"),
                ("A chat with an assistant. USER: Hi ASSISTANT: Hello</s>USER: Bye ASSISTANT: Bye</s>", "USER:"),
                ("\n\nHuman: Hi\n\nAssistant: Hello", "Human:"),
                ("User: Hi Assistant: Hello", "User:"),
                ("<human>: Hi\n<bot>: Hello", "<human>:"),
                ("<|prompter|>Hi<|endoftext|><|assistant|>Hello<|endoftext|>", "<|prompter|>"),
                ("<|prompt|>Hi</s><|answer|>Hello</s>", "<|prompt|>"),
                ("[|Human|] Hi [|AI|] Hello", "[|Human|]"),
            )
        ),
        ("### Input\n3\n### Output\n4", {}, []),
        ("The user: a person. His Assistant: a program.", {}, []),
        ("### Response: 200\n### Instruction: none", {}, []),
        *(
            ("".join([part] * 100_000), {"add_eos": False}, [])
            for part in ("User: a\n", "### Prompt: a\n", "\n\n.", "x USER")
        ),
        ("In Mistral's format [INST] begins a turn.", {}, []),
    ],
)
def test_what_a_text_holds_is_told(
    chatml_tokenizer: Path, text: str, settings: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    found = _losses(chatml_tokenizer, text, **settings)

    assert [kind for kind, _ in found] == [kind for kind, _ in expected]
    assert all(detail.startswith(wanted) for (_, detail), (_, wanted) in zip(found, expected, strict=True))


def test_turns_are_told_by_what_the_chat_template_writes_between_them(chatml_tokenizer: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(chatml_tokenizer, tmp_path / "own")
    template = "{% for m in messages %}{{ '@@' + m.role + '@@ ' + m.content + '\n' }}{% endfor %}"
    (folder / "chat_template.jinja").write_text(template)

    ((kind, detail),) = _losses(folder, "@@user@@ Hi\n@@assistant@@ Hello\n")
    assert kind == "rendered_chat"
    assert mentions(detail, "turns of a chat, '@@assistant@@'; ", "all ", "trained")


def test_a_tokenizer_without_the_token_is_refused(chatml_tokenizer: Path, tmp_path: Path) -> None:

    folder = shutil.copytree(chatml_tokenizer, tmp_path / "own")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "bos_token": None}))

    with pytest.raises(TokenizerError, match=r"preprocessing\.add_bos is true; the tokenizer .* has no BOS token"):
        _encoder(folder, add_bos=True)


def test_a_document_needs_a_text() -> None:
    with pytest.raises(ConfigError, match=r"data\.layout\.text is 'text'; .* name a column"):
        small.small_recipe("", "x", data={"train": "a.jsonl", "layout": {"kind": "text", "text": "text"}})


def test_half_a_character_is_refused(chatml_tokenizer: Path) -> None:
    with pytest.raises(RowError, match="half of a character"):
        _encoder(chatml_tokenizer).prepare({"text": "a \ud83d"})


@pytest.mark.parametrize("name", ["qwen3", "deepseek_v3"])
def test_real_texts_are_what_transformers_encodes(tmp_path: Path, reference_data: Path, name: str) -> None:
    """The answers of GSM8K and pages of prose as documents, with tokenizers that models are served with."""
    from transformers import AutoTokenizer

    folder = reference_data / "tokenizers" / name
    lines = (reference_data / "data" / "gsm8k_train.jsonl").read_text(encoding="utf-8").splitlines()[:200]
    texts = [json.loads(line)["answer"] for line in lines]
    pages = [path.read_text(encoding="utf-8") for path in sorted(reference_data.glob("*.md"))]
    texts += [page for page in pages if "<|im_end|>" not in page]  # EOS, after which no label is trained
    reference = AutoTokenizer.from_pretrained(folder)
    source = small.write_json_lines(tmp_path / "a.jsonl", [{"text": text} for text in texts])
    packing = {"packed_sequence_size": 1 << 16, "algorithm": "sequential"}
    recipe = small.small_recipe(source, folder, preprocessing=TEXT, packing=packing)
    recipe = recipe.override({"tokenizer.loader": "tokenizer_json"})

    small.build(recipe, tmp_path / "out")

    backend = load_tokenizer(recipe.tokenizer)
    expected = [[*backend.encode(text), reference.eos_token_id] for text in texts]
    if name == "qwen3":  # transformers loads DeepSeek's as a class that loses spaces
        assert expected == [[*reference.encode(text, add_special_tokens=False), 151645] for text in texts]
    packed = _packed(tmp_path / "out")
    assert sorted(ids for ids, _ in packed) == sorted(expected)
    assert all(mask == [1] * (len(ids) - 1) + [0] for ids, mask in packed)
    assert len(texts) > 200
