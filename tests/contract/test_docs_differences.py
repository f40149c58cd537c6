"""What docs/preprocessing.md says about Megatron-Bridge's own preparation, run with it and with bridgepack."""

import datetime
import json
import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import bridgepack
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.bridge_metadata import BRIDGE_METADATA_FILE
from bridgepack.errors import DataError, TokenizerError
from bridgepack.examples import iter_texts, train_chatml_tokenizer, write_docstring_conversations
from tests.support.host_datasets import build_host_datasets, load_host_tokenizer
from tests.support.tokenizers import GPT_OSS_FAMILY, GPT_OSS_MARKERS, write_tokenizer

pytestmark = [pytest.mark.bridge, pytest.mark.usefixtures("bridge")]

Rows = Sequence[Mapping[str, Any]]
PackedRows = list[tuple[list[int], list[int], list[int]]]
EOS_TOKEN_ID = 2
#: Like Qwen3's: an empty thought before the last turn alone, unknown roles left out, null content impossible.
TEMPLATE = (
    "{%- for turn in messages -%}"
    "{%- if turn.role in ['system', 'user', 'assistant', 'tool'] -%}"
    "{{- '<|im_start|>' + turn.role + '\\n' -}}"
    "{%- if loop.last and turn.role == 'assistant' -%}{{- '<think></think>' -}}{%- endif -%}"
    "{{- turn.content + '<|im_end|>\\n' -}}"
    "{%- endif -%}"
    "{%- endfor -%}"
    "{#- <|im_start|>assistant -#}"
)
UNKNOWN_FAMILY = TEMPLATE.replace("<|im_start|>", "<|startoftext|>").replace("<|im_end|>", "<|endoftext|>")
GOOD = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]}
LONG_TEXT = "one " * 200


@pytest.fixture(scope="module")
def conversations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("conversations")
    write_docstring_conversations(folder / "training.jsonl", limit=300)
    train_chatml_tokenizer(folder / "tokenizer", iter_texts(folder / "training.jsonl"), vocab_size=600)
    return folder


@pytest.fixture(scope="module")
def with_template(conversations: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function: chat template -> folder of the tokenizer with it."""

    def make(template: str) -> Path:
        folder = tmp_path_factory.mktemp("tokenizer") / "tokenizer"
        shutil.copytree(conversations / "tokenizer", folder)
        (folder / "chat_template.jinja").write_text(template)
        return folder

    return make


@pytest.fixture(scope="module")
def tokenizer(with_template: Callable[[str], Path]) -> Path:
    return with_template(TEMPLATE)


def host_rows(
    folder: Path, rows: Rows, tokenizer: Path, *, size: int = 128, multiple: int = 1, preprocessing: Any = None
) -> PackedRows:
    """Return the rows that Megatron-Bridge's dataset builder packs from training.jsonl."""
    from megatron.bridge.data.builders import ChatSFTPreprocessingConfig, GPTSFTDatasetConfig
    from megatron.bridge.data.packing import PackedSequenceSpecs

    _write(folder / "training.jsonl", rows)
    config = GPTSFTDatasetConfig(
        dataset_root=str(folder),
        seq_length=size,
        preprocessing=preprocessing or ChatSFTPreprocessingConfig(),
        enable_offline_packing=True,
        offline_packing_specs=PackedSequenceSpecs(packed_sequence_size=size, pad_seq_to_mult=multiple),
        do_validation=False,
        do_test=False,
        num_workers=0,
    )
    build_host_datasets(config, load_host_tokenizer(tokenizer))
    table = pq.read_table(next((folder / "packed").rglob("*.idx.parquet"))).to_pylist()
    return [(row["input_ids"], row["loss_mask"], row["seq_start_id"]) for row in table]


def own_artifact(
    folder: Path,
    rows: Rows,
    tokenizer: Path,
    *,
    size: int = 128,
    multiple: int = 1,
    preprocessing: Mapping[str, Any] | None = None,
    max_sequence_length: int | None = None,
) -> Artifact:
    _write(folder / "own.jsonl", rows)
    recipe = SFTRecipe.from_mapping(
        {
            "name": "docs",
            "data": {"train": str(folder / "own.jsonl")},
            "tokenizer": {"name_or_path": str(tokenizer)},
            "preprocessing": {"kind": "chat", **(preprocessing or {})},
            "packing": {
                "packed_sequence_size": size,
                "pad_seq_to_mult": multiple,
                "max_sequence_length": max_sequence_length,
                "algorithm": "first_fit_shuffle",
            },
        }
    )
    return Artifact(bridgepack.build(recipe, output=folder / "own").output)


def own_rows(artifact: Artifact) -> PackedRows:
    rows = [batch.row(index) for batch in artifact.iter_batches("training") for index in range(batch.num_rows)]
    return [(row.input_ids.tolist(), row.loss_mask.tolist(), row.seq_start_id.tolist()) for row in rows]


def drops(artifact: Artifact) -> dict[str, int]:
    return dict(artifact.manifest.splits[0].drops)


def runtime_lengths(rows: PackedRows) -> list[int]:
    """Return the physical runtime length of every sequence, ascending."""
    lengths = []
    for ids, _, starts in rows:
        bounds = [*starts, len(ids)]
        lengths += [stop - start - 1 for start, stop in pairwise(bounds)]
    return sorted(lengths)


def _write(path: Path, rows: Rows) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _host_prompt_completion(**changes: Any) -> Any:
    from megatron.bridge.data.sft_processing import PromptCompletionSFTPreprocessingConfig

    return PromptCompletionSFTPreprocessingConfig(**changes)


def _chat(*turns: tuple[str, str]) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": content} for role, content in turns]}


@pytest.mark.parametrize("multiple", [1, 8])
@pytest.mark.parametrize("kind", ["chat", "prompt_completion"])
def test_same_settings_give_the_same_order(tmp_path: Path, conversations: Path, kind: str, multiple: int) -> None:
    rows = [json.loads(line) for line in (conversations / "training.jsonl").open(encoding="utf-8")]
    preprocessing = None
    over_long = "drop" if multiple == 1 else "truncate"
    max_sequence_length = None
    if kind == "prompt_completion":
        pairs = [row["messages"][-2:] for row in rows]
        rows = [{"prompt": user["content"], "completion": assistant["content"]} for user, assistant in pairs]
        preprocessing, over_long = _host_prompt_completion(), "truncate"
        max_sequence_length = 511 if multiple == 1 else None
    tokenizer = conversations / "tokenizer"

    host = host_rows(tmp_path, rows, tokenizer, size=512, multiple=multiple, preprocessing=preprocessing)
    artifact = own_artifact(
        tmp_path,
        rows,
        tokenizer,
        size=512,
        multiple=multiple,
        preprocessing={"kind": kind, "over_long": over_long},
        max_sequence_length=max_sequence_length,
    )

    assert own_rows(artifact) == host
    assert len(host) > 50
    host_metadata = json.loads(next(tmp_path.rglob("*_metadata.jsonl")).read_text())
    assert json.loads((artifact.folder / BRIDGE_METADATA_FILE).read_text()) == host_metadata


def test_long_chats_are_dropped_or_cut_by_the_multiple(tmp_path: Path, tokenizer: Path) -> None:
    rows = [GOOD, _chat(("user", "hi"), ("assistant", LONG_TEXT))]

    short, *longer = runtime_lengths(host_rows(tmp_path / "1", rows, tokenizer))
    assert short < 128
    assert longer == []
    assert runtime_lengths(host_rows(tmp_path / "4", rows, tokenizer, multiple=4))[1:] == [128]
    for multiple in (1, 4):
        kept = own_artifact(tmp_path / f"drop-{multiple}", rows, tokenizer, multiple=multiple)
        assert drops(kept) == {"over_long": 1}
        cut = own_artifact(
            tmp_path / f"cut-{multiple}", rows, tokenizer, multiple=multiple, preprocessing={"over_long": "truncate"}
        )
        assert runtime_lengths(own_rows(cut))[1:] == [128]


def test_long_completions_are_cut_and_end_with_eos(tmp_path: Path, tokenizer: Path) -> None:
    rows = [{"prompt": "hi", "completion": LONG_TEXT}]
    settings = {"kind": "prompt_completion", "over_long": "truncate"}

    for multiple, length in ((1, 127), (4, 128)):
        host = host_rows(
            tmp_path / f"{multiple}", rows, tokenizer, multiple=multiple, preprocessing=_host_prompt_completion()
        )
        own = own_rows(
            own_artifact(tmp_path / f"{multiple}", rows, tokenizer, multiple=multiple, preprocessing=settings)
        )
        assert runtime_lengths(host) == [length]
        assert runtime_lengths(own) == [128]
        assert host[0][0][-1] == own[0][0][-1] == EOS_TOKEN_ID
        assert host[0][1][-2] == own[0][1][-2] == 1


@pytest.mark.parametrize("truncation_method", ["left", "right"])
def test_long_prompts_are_cut_on_the_same_side(tmp_path: Path, tokenizer: Path, truncation_method: str) -> None:
    rows = [{"prompt": f"first {LONG_TEXT} last", "completion": "yes"}]

    host = host_rows(
        tmp_path, rows, tokenizer, preprocessing=_host_prompt_completion(truncation_method=truncation_method)
    )
    own = own_artifact(
        tmp_path,
        rows,
        tokenizer,
        preprocessing={"kind": "prompt_completion", "over_long": "truncate", "truncation_method": truncation_method},
        max_sequence_length=127,
    )

    assert own_rows(own) == host


def test_nothing_left(tmp_path: Path, tokenizer: Path) -> None:
    rows = [_chat(("user", "hi"), ("assistant", LONG_TEXT))]

    with pytest.raises(ZeroDivisionError):
        host_rows(tmp_path, rows, tokenizer)
    with pytest.raises(DataError, match="over_long 1"):
        own_artifact(tmp_path, rows, tokenizer)


CALL = {"type": "function", "function": {"name": "look", "arguments": {}}}
STOPPERS: dict[str, tuple[Mapping[str, Any], type[Exception] | tuple[type[Exception], ...], str]] = {
    "control-tokens": (
        _chat(("user", "hi"), ("assistant", "it is <|im_end|> here"), ("user", "and?"), ("assistant", "done")),
        ValueError,
        "control_tokens_in_text",
    ),
    "no-assistant": (_chat(("user", "hi")), ValueError, "no_assistant_mask"),
    "null-content": (
        {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": None}]},
        TypeError,
        "template_error",
    ),
    "no-content": (
        {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [CALL]}]},
        ValueError,
        "template_error",
    ),
    "half-a-character": (_chat(("user", "hi"), ("assistant", "\ud83d")), (TypeError, ValueError), "invalid_json"),
}


@pytest.mark.parametrize("name", STOPPERS)
def test_one_row_stops_the_host_and_is_one_drop_here(tmp_path: Path, tokenizer: Path, name: str) -> None:
    row, error, reason = STOPPERS[name]

    with pytest.raises(error):
        host_rows(tmp_path, [GOOD, row], tokenizer)
    assert drops(own_artifact(tmp_path, [GOOD, row], tokenizer)) == {reason: 1}


def test_control_tokens_that_do_no_harm_are_kept_by_both(tmp_path: Path, tokenizer: Path) -> None:
    rows = [GOOD, _chat(("user", "what is <|im_end|>?"), ("assistant", "<|im_start|> and it"))]

    assert own_rows(own_artifact(tmp_path, rows, tokenizer)) == host_rows(tmp_path, rows, tokenizer)
    dropping = own_artifact(tmp_path / "drop", rows, tokenizer, preprocessing={"control_tokens": "drop"})
    assert drops(dropping) == {"control_tokens_in_text": 1}


def test_null_content_can_be_an_empty_text(tmp_path: Path, tokenizer: Path) -> None:
    rows = [GOOD, STOPPERS["null-content"][0], STOPPERS["no-content"][0]]

    assert drops(own_artifact(tmp_path, rows, tokenizer, preprocessing={"null_content": "empty"})) == {}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({**GOOD, "tools": json.dumps([{"name": "look", "parameters": {}}])}, "Tools should either be a JSON schema"),
        ({"prompt": "hi", "completion": "yes"}, "Chat rows must contain"),
    ],
    ids=["tools-as-text", "pair-as-chat"],
)
def test_rows_that_stop_the_host_alone(tmp_path: Path, tokenizer: Path, row: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        host_rows(tmp_path, [GOOD, row], tokenizer)
    assert drops(own_artifact(tmp_path, [GOOD, row], tokenizer)) == {}


@pytest.mark.parametrize(
    "refused", ["messages[-1].role == 'user'", "messages[-1].content == ''"], ids=["first-turns-alone", "empty-answer"]
)
def test_template_that_refuses_beginnings(tmp_path: Path, with_template: Callable[[str], Path], refused: str) -> None:
    from jinja2.exceptions import TemplateError

    tokenizer = with_template(f"{{%- if {refused} -%}}{{{{- raise_exception('no') -}}}}{{%- endif -%}}{TEMPLATE}")

    with pytest.raises(TemplateError):
        host_rows(tmp_path, [GOOD], tokenizer)
    assert drops(own_artifact(tmp_path, [GOOD], tokenizer)) == {}


def _answered(**fields: Any) -> dict[str, Any]:
    """Return a row whose answer has further fields."""
    return {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes", **fields}]}


@pytest.mark.parametrize("field", [{"tool_calls": None}, {"tool_calls": []}, {"name": None, "reasoning_content": None}])
def test_empty_fields_of_a_turn_are_absent(
    tmp_path: Path, tokenizer: Path, with_template: Callable[[str], Path], field: dict[str, Any]
) -> None:
    rows = [_answered(**field)]
    asking = with_template(
        TEMPLATE.replace("turn.content +", "(turn.content or '') + ('' if turn.tool_calls else '') +")
    )
    defined = with_template(
        TEMPLATE.replace("turn.content +", "turn.content + ('more' if turn | length > 2 else '') +")
    )

    for accepting in (tokenizer, asking):
        own = own_rows(own_artifact(tmp_path / accepting.parent.name, rows, accepting))
        assert own == host_rows(tmp_path / accepting.parent.name, rows, accepting)
    (host,), (own,) = host_rows(tmp_path / "d", rows, defined), own_rows(own_artifact(tmp_path / "d", rows, defined))
    assert len(host[0]) > len(own[0])
    assert [own] == own_rows(own_artifact(tmp_path / "absent", [GOOD], defined))


def test_null_calls_stop_the_host_that_counts_them(tmp_path: Path, with_template: Callable[[str], Path]) -> None:
    """Llama 3's template asks whether a turn has the field, and then how many calls there are."""
    counting = "{{- '' if 'tool_calls' in turn and turn.tool_calls | length == 1 else '' -}}"
    tokenizer = with_template(TEMPLATE.replace("{{- turn.content", counting + "{{- turn.content"))

    with pytest.raises(TypeError):
        host_rows(tmp_path, [_answered(tool_calls=None)], tokenizer)
    assert drops(own_artifact(tmp_path, [_answered(tool_calls=None)], tokenizer)) == {}


def test_json_text_of_arguments_goes_to_the_template(tmp_path: Path, with_template: Callable[[str], Path]) -> None:
    """A template that writes arguments as JSON writes JSON text a second time, in quotes."""
    writing = "{%- for c in turn.tool_calls or [] -%}{{- c.function.arguments | tojson -}}{%- endfor -%}"
    tokenizer = with_template(TEMPLATE.replace("{{- turn.content", writing + "{{- turn.content"))
    row, whole = (
        _answered(tool_calls=[{"type": "function", "function": {"name": "look", "arguments": value}}])
        for value in ('{"at": "it"}', {"at": "it"})
    )

    host, wanted = host_rows(tmp_path, [row], tokenizer), host_rows(tmp_path / "object", [whole], tokenizer)
    assert host != wanted
    assert own_rows(own_artifact(tmp_path, [row], tokenizer)) == host
    setting = {"tool_arguments": "object"}
    assert own_rows(own_artifact(tmp_path / "own", [row], tokenizer, preprocessing=setting)) == wanted


def test_parts_go_to_the_template(tmp_path: Path, with_template: Callable[[str], Path]) -> None:
    """A template that takes content for text writes the list as Python writes it."""
    tokenizer = with_template(TEMPLATE.replace("turn.content +", "turn.content | string +"))
    row = {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}, GOOD["messages"][1]]}

    host, wanted = host_rows(tmp_path, [row], tokenizer), host_rows(tmp_path / "text", [GOOD], tokenizer)
    assert len(host[0][0]) > len(wanted[0][0])
    assert own_rows(own_artifact(tmp_path, [row], tokenizer)) == host
    joined = own_artifact(tmp_path / "own", [row], tokenizer, preprocessing={"content_parts": "join_text"})
    assert own_rows(joined) == wanted


@pytest.mark.parametrize("field", [{"weight": 0}, {"train": False}, {"training": False}])
def test_turns_that_say_not_to_be_trained_are_trained(tmp_path: Path, tokenizer: Path, field: dict[str, Any]) -> None:
    row = {"messages": [*_answered(**field)["messages"], *GOOD["messages"]]}

    host = host_rows(tmp_path, [row], tokenizer)
    assert own_rows(own_artifact(tmp_path, [row], tokenizer)) == host
    masking = own_artifact(tmp_path / "mask", [row], tokenizer, preprocessing={"message_weights": "mask"})
    (own,) = own_rows(masking)
    assert own[0] == host[0][0]
    assert 0 < sum(own[1]) < sum(host[0][1])


def test_thoughts_are_trained(tmp_path: Path, tokenizer: Path) -> None:
    rows = [_chat(("user", "hi"), ("assistant", "<think>well</think>yes"))]

    host = host_rows(tmp_path, rows, tokenizer)
    assert own_rows(own_artifact(tmp_path, rows, tokenizer)) == host
    masked = own_artifact(tmp_path / "mask", rows, tokenizer, preprocessing={"reasoning_loss": "mask"})
    ((ids, mask, _),) = own_rows(masked)
    assert ids == host[0][0]
    assert 0 < sum(mask) < sum(host[0][1])


def test_variables_of_a_row_are_not_read(tmp_path: Path, with_template: Callable[[str], Path]) -> None:
    tokenizer = with_template(TEMPLATE.replace("turn.content +", "turn.content + (mood or '') +"))
    row = {**GOOD, "chat_template_kwargs": {"mood": "so "}}

    host = host_rows(tmp_path, [row], tokenizer)
    assert host == host_rows(tmp_path / "none", [GOOD], tokenizer)
    assert own_rows(own_artifact(tmp_path, [row], tokenizer)) == host
    setting = {"chat_template_kwargs_column": "chat_template_kwargs"}
    (read,) = own_rows(own_artifact(tmp_path / "read", [row], tokenizer, preprocessing=setting))
    assert len(read[0]) > len(host[0][0])


def test_template_writes_the_day_of_the_build(tmp_path: Path, with_template: Callable[[str], Path]) -> None:
    tokenizer = with_template(TEMPLATE.replace("turn.content +", "turn.content + strftime_now('%Y') +"))

    artifact = own_artifact(tmp_path, [GOOD], tokenizer)
    assert own_rows(artifact) == host_rows(tmp_path, [GOOD], tokenizer)
    assert artifact.manifest.tokenizer["template_date"] == datetime.date.today().isoformat()


def test_calls_in_the_channels_of_gpt_oss(tmp_path: Path) -> None:
    tokenizer = write_tokenizer(tmp_path / "tokenizer", GPT_OSS_FAMILY)
    call = {"role": "assistant", "content": "", "thinking": "so", "tool_calls": [CALL]}
    turns = [GOOD["messages"][0], call, {"role": "tool", "content": "seen"}, GOOD["messages"][1]]
    rows = [GOOD, {"messages": turns}]

    with pytest.raises(ValueError, match="did not match any loss-contributing spans"):
        host_rows(tmp_path, rows, tokenizer, size=512)
    assert drops(own_artifact(tmp_path, rows, tokenizer, size=512)) == {"no_assistant_mask": 1}
    markers = {"assistant_markers": GPT_OSS_MARKERS}
    joined = own_artifact(tmp_path / "joined", rows, tokenizer, size=512, preprocessing=markers)
    assert drops(joined) == {}
    alone = own_artifact(tmp_path / "alone", rows[:1], tokenizer, size=512, preprocessing=markers)
    assert own_rows(alone) == host_rows(tmp_path / "alone", rows[:1], tokenizer, size=512)


def test_standard_columns_stand_in_for_named_ones(tmp_path: Path, tokenizer: Path) -> None:
    rows = [{"prompt": "hi", "completion": "yes"}, {"question": "hi", "answer": "yes"}]
    columns = {"prompt_column": "question", "completion_column": "answer"}

    host = host_rows(tmp_path, rows, tokenizer, preprocessing=_host_prompt_completion(**columns))
    own = own_artifact(tmp_path, rows, tokenizer, preprocessing={"kind": "prompt_completion", **columns})

    assert own_rows(own) == host
    assert drops(own) == {}


def test_null_completion_stops_the_host(tmp_path: Path, tokenizer: Path) -> None:
    rows = [{"prompt": "hi", "completion": "yes"}, {"prompt": "hi", "completion": None}]

    with pytest.raises(ValueError, match="must be strings"):
        host_rows(tmp_path, rows, tokenizer, preprocessing=_host_prompt_completion())
    own = own_artifact(tmp_path, rows, tokenizer, preprocessing={"kind": "prompt_completion"})
    assert drops(own) == {"missing_field": 1}


def test_turn_of_an_unknown_role_vanishes_in_the_host(tmp_path: Path, tokenizer: Path) -> None:
    rows = [_chat(("user", "hi"), ("critic", "bad question"), ("assistant", "yes")), GOOD]

    (first, _, starts), *rest = host_rows(tmp_path, rows, tokenizer)
    assert rest == []
    assert first[: starts[1]] == first[starts[1] :]
    assert drops(own_artifact(tmp_path, rows, tokenizer)) == {"unknown_role": 1}


def test_sharegpt_calls_vanish_in_the_host_and_are_kept_here(tmp_path: Path, conversations: Path) -> None:
    turns = [("human", "hi"), ("function_call", '{"name": "look", "arguments": {}}'), ("observation", "seen")]
    row = {"conversations": [{"from": name, "value": value} for name, value in [*turns, ("gpt", "yes")]]}
    skipping = tmp_path / "tokenizer"
    shutil.copytree(conversations / "tokenizer", skipping)
    template = (skipping / "chat_template.jinja").read_text().replace("raise_exception(", "(")
    template = template.replace("'This chat template has no role named ' + message.role | string", "''")
    (skipping / "chat_template.jinja").write_text(template)

    host_ids = host_rows(tmp_path, [row], skipping)[0][0]
    own_ids = own_rows(own_artifact(tmp_path, [row], skipping))[0][0]

    from transformers import AutoTokenizer

    decode = AutoTokenizer.from_pretrained(skipping).decode
    assert "seen" not in decode(host_ids)
    assert "seen" in decode(own_ids)
    assert "look" in decode(own_ids)


def test_missing_completion_is_trained_as_a_bare_eos_by_the_host(tmp_path: Path, tokenizer: Path) -> None:
    rows = [{"prompt": "hi"}, {"prompt": "hi", "completion": ""}]

    ids, mask, starts = host_rows(tmp_path, rows, tokenizer, preprocessing=_host_prompt_completion())[0]
    assert ids[: starts[1]] == ids[starts[1] :]
    assert [token for token, is_trained in zip(ids[1:], mask, strict=False) if is_trained] == [EOS_TOKEN_ID] * 2
    own = own_artifact(tmp_path, rows, tokenizer, preprocessing={"kind": "prompt_completion"})
    assert drops(own) == {"missing_field": 1}
    assert own_rows(own) == [(ids[starts[1] :], mask[starts[1] :], [0])]


def test_sequence_without_a_trained_token_is_kept_by_the_host(tmp_path: Path, tokenizer: Path) -> None:
    rows = [GOOD, _chat(("user", LONG_TEXT), ("assistant", "yes"))]

    host = host_rows(tmp_path, rows, tokenizer, multiple=4)
    assert len(runtime_lengths(host)) == 2
    own = own_artifact(tmp_path, rows, tokenizer, multiple=4, preprocessing={"over_long": "truncate"})
    assert drops(own) == {"truncated_no_trained_token": 1}


def test_turn_start_is_never_trained_unless_asked(tmp_path: Path, tokenizer: Path) -> None:
    from megatron.bridge.data.builders import ChatSFTPreprocessingConfig

    rows = [GOOD]
    full = {"loss_mode": "full"}

    host = host_rows(tmp_path, rows, tokenizer, preprocessing=ChatSFTPreprocessingConfig(loss_mode="full"))
    own = own_rows(own_artifact(tmp_path, rows, tokenizer, preprocessing=full))
    trained = own_rows(
        own_artifact(tmp_path / "all", rows, tokenizer, preprocessing={**full, "masks_control_tokens": False})
    )

    assert own == host
    assert sum(trained[0][1]) == sum(own[0][1]) + 1


def test_never_trained_tokens_are_the_host_s() -> None:
    from megatron.bridge.data.token_utils import PAD_TOKENS

    from bridgepack.data.tokenizers.tokenizer import NEVER_TRAINED_TOKENS

    assert NEVER_TRAINED_TOKENS == PAD_TOKENS
    assert len(PAD_TOKENS) == 24


def test_unknown_templates_are_refused_by_both(tmp_path: Path, with_template: Callable[[str], Path]) -> None:
    unknown = with_template(UNKNOWN_FAMILY)
    markers = {"assistant_start": "<|startoftext|>assistant\n", "assistant_end": "<|endoftext|>"}

    with pytest.raises(ValueError, match="could not infer assistant boundary markers"):
        host_rows(tmp_path, [GOOD], unknown)
    with pytest.raises(TokenizerError, match="assistant_markers"):
        own_artifact(tmp_path / "refused", [GOOD], unknown)
    assert drops(own_artifact(tmp_path, [GOOD], unknown, preprocessing={"assistant_markers": markers})) == {}


def test_host_logs_what_it_drops_and_cuts(tmp_path: Path, tokenizer: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [GOOD, _chat(("user", "hi"), ("assistant", LONG_TEXT))]

    with caplog.at_level(logging.INFO, logger="megatron.bridge.data.packing"):
        host_rows(tmp_path / "1", rows, tokenizer)
        host_rows(tmp_path / "4", rows, tokenizer, multiple=4)

    levels = {record.levelname for record in caplog.records if "Skipped 1 sequences" in record.message}
    assert levels == {"WARNING"}
    assert {record.levelname for record in caplog.records if "truncating for packing" in record.message} == {"INFO"}
