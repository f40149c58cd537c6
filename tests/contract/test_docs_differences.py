"""What docs/preprocessing.md says about Megatron-Bridge's own preparation, run with it and with bridgepack."""

import datetime
import json
import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pyarrow.parquet as pq
import pytest
from jinja2.exceptions import TemplateError
from tokenizers import Tokenizer

import bridgepack
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.bridge_metadata import BRIDGE_METADATA_FILE
from bridgepack.data.tokenizers.tokenizer import NEVER_TRAINED_TOKENS
from bridgepack.errors import DataError, RowError, TokenizerError
from bridgepack.host import V06
from tests.support.host_datasets import build_host_datasets, conversations_config, load_host_tokenizer
from tests.support.installed_host import host_release, host_version
from tests.support.read_rows import pair_layouts
from tests.support.small_builds import AS_HOST, write_json_lines
from tests.support.upstream_preprocessing import ChatPair
from tests.zoo.families import CODER
from tests.zoo.families import write_tokenizer as write_family
from tests.zoo.tokenizers import GEMMA4_TOOLS, GPT_OSS_FAMILY, GPT_OSS_MARKERS, write_tokenizer

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
GOOD = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]}
GOOD_PAIR = {"prompt": "hi", "completion": "yes"}
LONG_TEXT = "one " * 200
LONG_ANSWER = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": LONG_TEXT}]}


class Again(str):
    """A key that JSON writes like another."""

    __slots__ = ()
    __hash__ = object.__hash__
    __eq__ = object.__eq__


@dataclass(frozen=True, kw_only=True)
class Both:
    """Both sides' preparation with one tokenizer; each takes fields of its own preprocessing."""

    folder: Path
    tokenizer: Path
    kind: str = "chat"
    size: int = 128
    multiple: int = 1
    seed: int = 1234
    #: Where it is not the size of a pack.
    host_longest: int | None = None

    def host(self, rows: Rows, **preprocessing: Any) -> PackedRows:
        """Return the rows that Megatron-Bridge's dataset builder packs."""
        from megatron.bridge.data import sft_processing

        name = f"{self.kind.title().replace('_', '')}SFTPreprocessingConfig"
        root, preprocessing_config = self._folder_with(rows), getattr(sft_processing, name)(**preprocessing)
        specs = {"pad_seq_to_mult": self.multiple, "max_single_sequence_length": self.host_longest}
        options = {"size": self.size, "specs": specs, "seed": self.seed, "do_validation": False}
        config = conversations_config(root, preprocessing_config, **options)
        build_host_datasets(config, load_host_tokenizer(self.tokenizer))
        table = pq.read_table(next((root / "packed").rglob("*.idx.parquet"))).to_pylist()
        return [(row["input_ids"], row["loss_mask"], row["seq_start_id"]) for row in table]

    def own(
        self, rows: Rows, *, max_sequence_length: int | None = None, layout: Any = None, **preprocessing: Any
    ) -> Artifact:
        """Return the artifact that bridgepack builds; without a `layout` it is detected."""
        root = self._folder_with(rows)
        recipe = {
            "name": "docs",
            "bridge_version": host_version(),
            "data": {"train": str(root / "training.jsonl"), "layout": layout},
            "tokenizer": {"name_or_path": str(self.tokenizer)},
            "preprocessing": {
                "kind": self.kind,
                "labels_after_eos": "train",
                **(AS_HOST if self.kind == "chat" else {}),
                **preprocessing,
            },
            "packing": {
                "packed_sequence_size": self.size,
                "pad_seq_to_mult": self.multiple,
                "max_sequence_length": max_sequence_length,
                "algorithm": "first_fit_shuffle",
                "seed": self.seed,
            },
        }
        return Artifact(bridgepack.build(SFTRecipe.from_mapping(recipe), output=root / "own").output)

    def _folder_with(self, rows: Rows) -> Path:
        return write_json_lines(Path(mkdtemp(dir=self.folder)) / "training.jsonl", rows).parent


MakeBoth = Callable[..., Both]


@pytest.fixture
def both(conversations: Path, tmp_path: Path) -> MakeBoth:
    """Return a function: chat template and fields -> both sides."""

    def make(template: str = TEMPLATE, **fields: Any) -> Both:
        tokenizer = shutil.copytree(conversations / "tokenizer", Path(mkdtemp(dir=tmp_path)), dirs_exist_ok=True)
        (tokenizer / "chat_template.jinja").write_text(template)
        return Both(folder=tmp_path, tokenizer=tokenizer, **fields)

    return make


def rows_of(artifact: Artifact) -> PackedRows:
    rows = [batch.row(index) for batch in artifact.iter_batches("training") for index in range(batch.num_rows)]
    return [(row.input_ids.tolist(), row.loss_mask.tolist(), row.seq_start_id.tolist()) for row in rows]


def drops(artifact: Artifact) -> dict[str, int]:
    return dict(artifact.manifest.splits[0].drops)


def runtime_lengths(rows: PackedRows) -> list[int]:
    """Return the physical runtime length of every sequence, ascending."""
    return sorted(stop - start - 1 for ids, _, starts in rows for start, stop in pairwise([*starts, len(ids)]))


def _chat(*turns: tuple[str, str]) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": content} for role, content in turns]}


def _answered(**fields: Any) -> dict[str, Any]:
    """Return a row whose answer has further fields."""
    return {"messages": [GOOD["messages"][0], {**GOOD["messages"][1], **fields}]}


def _with(expression: str) -> str:
    """Return the template that writes something else as the content of a turn."""
    return TEMPLATE.replace("turn.content +", f"{expression} +")


def test_of_a_repeated_key_the_host_takes_the_last_value(both: MakeBoth) -> None:
    first, last = {"role": "assistant", "content": "no"}, {"role": "assistant", "content": "yes"}
    question = {"role": "user", "content": "hi"}
    twice = {"messages": [question, {**first, Again("content"): last["content"]}]}
    assert json.dumps(twice).count('"content"') == 3
    sides = both()
    assert sides.host([twice]) == sides.host([{"messages": [question, last]}])
    assert drops(sides.own([GOOD, twice])) == {"invalid_json": 1}


def test_of_an_older_call_the_host_trains_nothing(both: MakeBoth) -> None:
    calls = "{%- for call in m.tool_calls or [] -%}[{{ call.function | tojson }}]{%- endfor -%}"
    start, end = "{{- '<|im_start|>' + m.role + '\n' + (m.content or '') -}}", "{{- '<|im_end|>\n' -}}"
    sides = both("{%- for m in messages -%}" + start + calls + end + "{%- endfor -%}{#- <|im_start|>assistant -#}")
    question, answer = GOOD["messages"][:2]
    result, function = {"role": "tool", "content": "200"}, {"name": "depth", "arguments": {"lake": "Uri"}}
    silent = {"role": "assistant", "content": ""}

    def row(**call: Any) -> dict[str, Any]:
        return {"messages": [question, {**silent, **call}, result, answer]}

    called = row(tool_calls=[{"type": "function", "function": function}])
    assert sides.host([row(function_call=function)]) == sides.host([row()])
    assert rows_of(sides.own([row(function_call=function)])) == rows_of(sides.own([row()]))
    auto = {"tool_arguments": "auto", "null_content": "auto"}
    assert rows_of(sides.own([row(function_call=function)], **auto)) == rows_of(sides.own([called], **auto))


@pytest.mark.parametrize(
    ("kind", "multiple", "host_longest", "seed", "own", "shared"),
    [
        ("chat", 1, None, 1234, {"over_long": "drop"}, {}),
        ("chat", 1, 304, 0, {"over_long": "drop", "max_sequence_length": 304}, {}),
        ("chat", 1, None, 2**32 - 1, {"over_long": "drop"}, {"loss_mode": "last_turn"}),
        ("chat", 1, None, 7, {"over_long": "drop"}, {"loss_mode": "full"}),
        # Above multiple 1 the host cuts to the last whole multiple.
        ("chat", 8, None, 0, {"over_long": "truncate"}, {}),
        ("chat", 8, 507, 77, {"over_long": "truncate", "max_sequence_length": 507}, {}),
        # The host cuts pairs to stored tokens. Above multiple 1 it cuts to runtime tokens, and then to the last whole
        # multiple: of a limit that is none, the second cut takes EOS, which the one cut here spares.
        ("prompt_completion", 1, None, 1234, {"over_long": "truncate", "max_sequence_length": 511}, {}),
        ("prompt_completion", 1, 201, 1, {"over_long": "truncate", "max_sequence_length": 200}, {"separator": "\n"}),
        ("prompt_completion", 8, None, 1234, {"over_long": "truncate"}, {}),
        ("prompt_completion", 8, 200, 1, {"over_long": "truncate", "max_sequence_length": 200}, {"separator": "\n"}),
    ],
)
def test_same_settings_give_the_same_order(
    both: MakeBoth,
    conversations: Path,
    kind: str,
    multiple: int,
    host_longest: int | None,
    seed: int,
    own: dict[str, Any],
    shared: dict[str, Any],
) -> None:
    rows = [json.loads(line) for line in (conversations / "training.jsonl").read_text().splitlines()[:160]]
    if kind == "prompt_completion":
        pairs = [row["messages"][-2:] for row in rows]
        rows = [{"prompt": user["content"], "completion": assistant["content"]} for user, assistant in pairs]
    template = (conversations / "tokenizer/chat_template.jinja").read_text()
    sides = both(template, kind=kind, size=512, multiple=multiple, host_longest=host_longest, seed=seed)

    host, artifact = sides.host(rows, **shared), sides.own(rows, **own, **shared)

    assert rows_of(artifact) == host
    assert len(host) > 20
    assert set(drops(artifact)) == ({"over_long"} if own["over_long"] == "drop" else set())
    host_metadata = json.loads(next(sides.folder.rglob("*_metadata.jsonl")).read_text())
    assert json.loads((artifact.folder / BRIDGE_METADATA_FILE).read_text()) == host_metadata


def test_gsm8k(tmp_path: Path, reference_data: Path) -> None:
    lines = (reference_data / "data" / "gsm8k_train.jsonl").read_text().splitlines()
    rows = [_chat(("user", row["question"]), ("assistant", row["answer"])) for row in map(json.loads, lines[::16])]
    tokenizer = reference_data / "tokenizers" / "qwen3"
    sides = Both(folder=tmp_path, tokenizer=tokenizer, size=1024, multiple=8)

    assert rows_of(sides.own(rows)) == sides.host(rows)


@pytest.mark.parametrize(("multiple", "host_lengths"), [(1, []), (4, [128])])
def test_long_chats_are_dropped_or_cut_by_the_multiple(both: MakeBoth, multiple: int, host_lengths: list[int]) -> None:
    sides, rows = both(multiple=multiple), [GOOD, LONG_ANSWER]

    short, *longer = runtime_lengths(sides.host(rows))
    assert short < 128
    assert longer == host_lengths
    assert drops(sides.own(rows)) == {"over_long": 1}
    assert runtime_lengths(rows_of(sides.own(rows, over_long="truncate")))[1:] == [128]


@pytest.mark.parametrize(("multiple", "host_length"), [(1, 127), (4, 128)])
def test_long_completions_are_cut_and_end_with_eos(both: MakeBoth, multiple: int, host_length: int) -> None:
    sides, rows = both(kind="prompt_completion", multiple=multiple), [{"prompt": "hi", "completion": LONG_TEXT}]
    host, own = sides.host(rows), rows_of(sides.own(rows, over_long="truncate"))

    assert (runtime_lengths(host), runtime_lengths(own)) == ([host_length], [128])
    assert host[0][0][-1] == own[0][0][-1] == EOS_TOKEN_ID
    assert host[0][1][-2] == own[0][1][-2] == 1


@pytest.mark.parametrize("truncation_method", ["left", "right"])
def test_long_prompts_are_cut_on_the_same_side(both: MakeBoth, truncation_method: str) -> None:
    sides = both(kind="prompt_completion")
    rows, side = [{"prompt": f"first {LONG_TEXT} last", "completion": "yes"}], {"truncation_method": truncation_method}

    own = sides.own(rows, over_long="truncate", max_sequence_length=127, **side)

    assert rows_of(own) == sides.host(rows, **side)


def test_nothing_left(both: MakeBoth) -> None:
    with pytest.raises(ZeroDivisionError):
        both().host([LONG_ANSWER])
    with pytest.raises(DataError, match="over_long 1"):
        both().own([LONG_ANSWER])


@dataclass(frozen=True, kw_only=True)
class Stop:
    """A row that stops the host."""

    row: Mapping[str, Any]
    #: What the host raises, and text in it.
    error: type[Exception] | tuple[type[Exception], ...]
    message: str = ""
    #: Why bridgepack drops the row; it takes it where this is empty.
    reason: str = ""
    template: str = TEMPLATE
    kind: str = "chat"


def _refusing(condition: str) -> str:
    return f"{{%- if {condition} -%}}{{{{- raise_exception('no') -}}}}{{%- endif -%}}{TEMPLATE}"


CALL = {"type": "function", "function": {"name": "look", "arguments": {}}}
NULL_CONTENT = _answered(content=None)
NO_CONTENT = {"messages": [GOOD["messages"][0], {"role": "assistant", "tool_calls": [CALL]}]}
STOPS = {
    "control-tokens": Stop(
        row=_chat(("user", "hi"), ("assistant", "it is <|im_end|> here"), ("user", "and?"), ("assistant", "done")),
        error=ValueError,
    ),
    "no-assistant": Stop(row=_chat(("user", "hi")), error=ValueError, reason="no_assistant_mask"),
    "no-content": Stop(row=NO_CONTENT, error=ValueError, template=_with("(turn.content or '')")),
    "half-a-character": Stop(row=_answered(content="\ud83d"), error=(TypeError, ValueError), reason="invalid_json"),
    "null-completion": Stop(
        row={"prompt": "hi", "completion": None},
        error=ValueError,
        message="must be strings",
        reason="missing_field",
        kind="prompt_completion",
    ),
    "tools-as-text": Stop(
        row={**GOOD, "tools": json.dumps([{"name": "look", "parameters": {}}])},
        error=ValueError,
        message="Tools should either be a JSON schema",
    ),
    "pair-as-chat": Stop(row=GOOD_PAIR, error=ValueError, message="Chat rows must contain"),
    "template-refuses-first-turns": Stop(
        row=GOOD, error=TemplateError, template=_refusing("messages[-1].role == 'user'")
    ),
    "template-refuses-empty-answer": Stop(
        row=GOOD, error=TemplateError, template=_refusing("messages[-1].content == ''")
    ),
    # Llama 3's template asks whether a turn has the field, and then how many calls there are.
    "null-calls-that-are-counted": Stop(
        row=_answered(tool_calls=None),
        error=TypeError,
        template=_with("('' if 'tool_calls' in turn and turn.tool_calls | length == 1 else '') + turn.content"),
    ),
}


@pytest.mark.parametrize("name", STOPS)
def test_one_row_stops_the_host_and_is_dropped_or_taken_here(both: MakeBoth, name: str) -> None:
    stop = STOPS[name]
    sides, rows = both(stop.template, kind=stop.kind), [GOOD if stop.kind == "chat" else GOOD_PAIR, stop.row]

    with pytest.raises(stop.error, match=stop.message or None):
        sides.host(rows)
    assert drops(sides.own(rows)) == ({stop.reason: 1} if stop.reason else {})


def test_null_content_stops_the_host_or_is_an_empty_text(both: MakeBoth) -> None:
    sides, rows = both(), [GOOD, NULL_CONTENT]

    if host_release().empties_null_content:
        assert rows_of(sides.own(rows)) == sides.host(rows)
        with pytest.raises(ValueError, match="must contain role/content"):
            sides.host([GOOD, NO_CONTENT])
        assert drops(sides.own([*rows, NO_CONTENT])) == {"template_error": 1}
        return
    with pytest.raises(TypeError):
        sides.host(rows)
    assert drops(sides.own(rows)) == {"template_error": 1}
    assert drops(sides.own([GOOD, NO_CONTENT])) == {"template_error": 1}


def test_arguments_that_are_no_json_object_stop_a_host_that_parses_them(both: MakeBoth) -> None:
    call = {"type": "function", "function": {"name": "look", "arguments": "it"}}
    sides = both(_with("turn.content + (turn.tool_calls[0].function.arguments | string if turn.tool_calls else '')"))
    rows = [GOOD, _answered(tool_calls=[call])]

    if host_release().parses_call_arguments:
        with pytest.raises(ValueError, match="must be valid JSON"):
            sides.host(rows)
        assert drops(sides.own(rows)) == {"invalid_field": 1}
    else:
        assert rows_of(sides.own(rows)) == sides.host(rows)
    assert drops(sides.own(rows, tool_arguments="auto")) == {}


def test_completion_of_tokens_that_are_never_trained(both: MakeBoth) -> None:
    """0.7 stops there; 0.6 keeps the row, which trains nothing."""
    sides, rows = both(kind="prompt_completion"), [GOOD_PAIR, {"prompt": "hi", "completion": "<|im_start|>"}]

    assert drops(sides.own(rows, add_eos=False)) == {"no_trained_token": 1}
    if host_release() is V06:
        assert len(runtime_lengths(sides.host(rows, add_eos=False))) == 2
    else:
        with pytest.raises(ValueError, match="retain a supervised token"):
            sides.host(rows, add_eos=False)


@pytest.mark.parametrize("multiple", [1, 8])
def test_only_labels_after_an_eos_are_masked_by_default(both: MakeBoth, multiple: int) -> None:
    rows = [GOOD, _chat(("user", "hi"), ("assistant", "yes"), ("user", "and?"), ("assistant", "done"))]
    sides = both(multiple=multiple)
    (host,) = sides.host(rows)
    (own,) = rows_of(sides.own(rows, labels_after_eos="mask"))

    differing = [place for place, bits in enumerate(zip(host[1], own[1], strict=True)) if bits[0] != bits[1]]
    assert (own[0], own[2]) == (host[0], host[2])
    assert {host[0][place] for place in differing} == {EOS_TOKEN_ID}
    assert [host[1][place] for place in differing] == [1, 1, 1]


def test_control_tokens_that_do_no_harm_are_kept_by_both(both: MakeBoth) -> None:
    rows = [GOOD, _chat(("user", "what is <|im_end|>?"), ("assistant", "<|im_start|> and it"))]

    assert rows_of(both().own(rows)) == both().host(rows)
    assert drops(both().own(rows, control_tokens="drop")) == {"control_tokens_in_text": 1}


def test_null_content_can_be_an_empty_text(both: MakeBoth) -> None:
    rows = [GOOD, NULL_CONTENT, NO_CONTENT]
    assert drops(both().own(rows, null_content="empty")) == {}
    assert drops(both().own(rows[:2], null_content="auto")) == {}
    # a call that the template leaves out is no empty answer
    assert drops(both().own(rows, null_content="auto")) == {"template_error": 1}
    with_calls = _with("turn.content + (turn.tool_calls | tojson if turn.tool_calls else '')")
    assert drops(both(with_calls).own(rows, null_content="auto")) == {}


@pytest.mark.parametrize("field", [{"tool_calls": None}, {"tool_calls": []}, {"name": None, "reasoning_content": None}])
def test_empty_fields_of_a_turn_are_absent(both: MakeBoth, field: dict[str, Any]) -> None:
    rows = [_answered(**field)]
    for template in (TEMPLATE, _with("(turn.content or '') + ('' if turn.tool_calls else '')")):
        assert rows_of(both(template).own(rows)) == both(template).host(rows)

    counting = both(_with("turn.content + ('more' if turn | length > 2 else '')"))
    (host,), own = counting.host(rows), rows_of(counting.own(rows))
    assert len(host[0]) > len(own[0][0])
    assert own == rows_of(counting.own([GOOD]))


@pytest.mark.parametrize(
    ("template", "row", "setting", "wanted"),
    [
        (
            _with("turn.content + (turn.tool_calls[0].function.arguments | tojson if turn.tool_calls else '')"),
            _answered(tool_calls=[{"type": "function", "function": {"name": "look", "arguments": '{"at": "it"}'}}]),
            {"tool_arguments": "object"},
            _answered(tool_calls=[{"type": "function", "function": {"name": "look", "arguments": {"at": "it"}}}]),
        ),
        (
            _with("turn.content | string"),
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}, GOOD["messages"][1]]},
            {"content_parts": "join_text"},
            GOOD,
        ),
    ],
    ids=["json-text-of-arguments", "list-of-parts"],
)
def test_what_goes_to_the_template_as_it_is_can_be_read(
    both: MakeBoth, template: str, row: Any, setting: dict[str, str], wanted: Any
) -> None:
    """A template that writes arguments as JSON quotes JSON text again; one that takes text writes a list as Python."""
    sides = both(template)
    host, of_wanted = sides.host([row]), sides.host([wanted])

    is_mended = "tool_arguments" in setting and host_release().parses_call_arguments
    assert (host == of_wanted) == is_mended
    assert is_mended or len(host[0][0]) > len(of_wanted[0][0])
    assert rows_of(sides.own([row])) == host
    assert rows_of(sides.own([row], **setting)) == of_wanted
    assert rows_of(sides.own([row], **dict.fromkeys(setting, "auto"))) == of_wanted


@pytest.mark.parametrize(
    ("row", "setting"),
    [
        ({"messages": _answered(weight=0)["messages"] + GOOD["messages"]}, {"message_weights": "mask"}),
        ({"messages": _answered(train=False)["messages"] + GOOD["messages"]}, {"message_weights": "mask"}),
        ({"messages": _answered(training=False)["messages"] + GOOD["messages"]}, {"message_weights": "mask"}),
        (_chat(("user", "hi"), ("assistant", "<think>well</think>yes")), {"reasoning_loss": "mask"}),
    ],
    ids=["weight", "train", "training", "thoughts"],
)
def test_what_the_host_trains_can_be_masked(both: MakeBoth, row: Any, setting: dict[str, str]) -> None:
    host = both().host([row])
    assert rows_of(both().own([row])) == host

    ((ids, mask, _),) = rows_of(both().own([row], **setting))
    assert ids == host[0][0]
    assert 0 < sum(mask) < sum(host[0][1])


@pytest.mark.parametrize(("setting", "is_host_s"), [({}, True), ({"mask_generation_prompt": True}, False)])
def test_0_7_leaves_out_openings_of_thoughts(both: MakeBoth, setting: dict[str, bool], is_host_s: bool) -> None:
    """Of templates that read a switch, as Nemotron's; where the generation prompt is masked, on every release."""
    prompt = "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n<think></think>' -}}{%- endif -%}"
    sides = both(TEMPLATE + prompt + "{#- truncate_history_thinking -#}")
    host, own = sides.host([GOOD]), rows_of(sides.own([GOOD], **setting))
    ((ids, mask, _),) = own

    assert (own == host) is (is_host_s or host_release().trims_thought_openings)
    trained = [label for label, bit in zip(ids[1:], mask[:-1], strict=True) if bit]
    text = Tokenizer.from_file(str(sides.tokenizer / "tokenizer.json")).decode(trained, skip_special_tokens=False)
    is_trimmed = host_release().trims_thought_openings or not is_host_s
    assert text == "<think></think>" * (not is_trimmed) + "yes<|im_end|>\n"


def test_variables_of_a_row_are_read_where_the_layout_names_them(both: MakeBoth) -> None:
    """0.6 never reads them, 0.7 does without being told."""
    sides = both(_with("turn.content + (mood or '')"))
    row = {**GOOD, "chat_template_kwargs": {"mood": "so "}}

    unread, read = (rows_of(sides.own([row], layout=layout)) for layout in (CHATS, VARIED))
    assert unread == sides.host([GOOD])
    assert sides.host([row]) == (unread if host_release() is V06 else read)
    assert len(read[0][0]) > len(unread[0][0])


#: Layouts of chats whose rows have variables for the template: read or not.
CHATS = {"kind": "chat", "messages": [{"from_column": "messages"}]}
VARIED = {**CHATS, "chat_template_kwargs": "chat_template_kwargs"}


@pytest.mark.parametrize("name", ["chat_template", "padding", "return_dict", "tools"])
def test_variables_that_no_row_may_set(both: MakeBoth, name: str) -> None:
    row = {**GOOD, "chat_template_kwargs": {name: None}}

    assert drops(both().own([GOOD, row], layout=VARIED)) == {"invalid_field": 1}
    if host_release() is not V06:
        with pytest.raises(ValueError, match="cannot override pipeline-controlled"):
            both().host([row])


def test_template_writes_the_day_of_the_build(both: MakeBoth) -> None:
    sides = both(_with("turn.content + strftime_now('%Y')"))

    artifact = sides.own([GOOD])
    assert rows_of(artifact) == sides.host([GOOD])
    assert artifact.manifest.tokenizer["template_date"] == datetime.date.today().isoformat()


def test_calls_in_the_channels_of_gpt_oss(tmp_path: Path) -> None:
    sides = Both(folder=tmp_path, tokenizer=write_tokenizer(tmp_path / "tokenizer", GPT_OSS_FAMILY), size=512)
    call = {"role": "assistant", "content": "", "thinking": "so", "tool_calls": [CALL]}
    turns = [GOOD["messages"][0], call, {"role": "tool", "content": "seen"}, GOOD["messages"][1]]
    rows = [GOOD, {"messages": turns}]

    with pytest.raises(ValueError, match="not match any loss-contributing spans"):
        sides.host(rows)
    own, by_markers = sides.own(rows), sides.own(rows, assistant_markers=GPT_OSS_MARKERS)
    assert drops(own) == drops(by_markers) == {}
    assert rows_of(own) == rows_of(by_markers)
    # two answers in a row are one each: what the template writes between them is not the model's
    answered_twice = {"messages": [*GOOD["messages"], {"role": "assistant", "content": "indeed"}, *GOOD["messages"]]}
    plain_rows = [GOOD, answered_twice]
    assert rows_of(sides.own(plain_rows, assistant_markers=GPT_OSS_MARKERS)) == sides.host(plain_rows)


@pytest.mark.parametrize("goes_on", [False, True], ids=["last", "before-another-turn"])
def test_answer_right_behind_a_tool_s_result(tmp_path: Path, goes_on: bool) -> None:
    """0.6 stops there, 0.7 only where an answer with a start of its own follows."""
    from transformers import AutoTokenizer

    sides = Both(folder=tmp_path, tokenizer=write_tokenizer(tmp_path / "tokenizer", GEMMA4_TOOLS), size=512)
    call = {"role": "assistant", "content": "", "tool_calls": [CALL]}
    row = {"messages": [GOOD["messages"][0], call, {"role": "tool", "content": "seen"}, GOOD["messages"][1]]}
    if goes_on:
        row["messages"] += GOOD["messages"]

    own = sides.own([row])
    assert drops(own) == {}
    if host_release() is V06 or goes_on:
        with pytest.raises(ValueError, match="not match any loss-contributing spans"):
            sides.host([row])
    else:
        assert rows_of(own) == sides.host([row])
    ((ids, mask, _),) = rows_of(own)
    trained = AutoTokenizer.from_pretrained(sides.tokenizer).decode(
        [token for token, is_trained in zip(ids[1:], mask, strict=False) if is_trained]
    )
    assert "yes<turn|>" in trained
    assert "seen" not in trained


def test_a_result_that_the_template_writes_as_an_answer(tmp_path: Path) -> None:
    """The start of the empty answer is not found, as one token holds its line end and the answer's."""
    markers = {"assistant_start": "### Response:\n", "assistant_end": "<|EOT|>"}
    folder = write_family(tmp_path / "tokenizer", CODER)
    pair = ChatPair(folder, loss_mode="assistant", assistant_markers=markers)
    silent, result = {"role": "assistant", "content": ""}, {"role": "tool", "content": "seen"}
    question, answer = GOOD["messages"]
    row = {"messages": [question, silent, result, answer]}

    (own,), host = pair.ours([row]), pair.host(row)
    assert not isinstance(own, RowError)
    assert not isinstance(host, Exception)
    assert own[0] == host[0]
    texts = [
        pair.tokenizer.decode([token for token, is_trained in zip(ids, mask, strict=True) if is_trained])
        for ids, mask in (own, host)
    ]
    assert texts == ["<|EOT|>yes\n<|EOT|>", "seen\n<|EOT|>yes\n<|EOT|>"]


def test_a_result_inside_the_answer_to_it(tmp_path: Path) -> None:
    """As Gemma 4's template writes `tool_responses` of an answer."""
    body = (
        "{%- for call in m.tool_calls or [] -%}{{- '<|tool_call>' + call.function.name + '<tool_call|>' -}}"
        "{%- endfor -%}{%- for item in m.tool_responses or [] -%}"
        "{{- '<|tool_response>' + item.response + '<tool_response|>' -}}"
        "{%- endfor -%}{{- m.content + '<turn|>' -}}"
    )
    header = "{{- '<|turn>model\\n' if m.role == 'assistant' else '<|turn>' + m.role + '\\n' -}}"
    family = replace(GEMMA4_TOOLS, template=f"{{%- for m in messages -%}}{header}{body}{{%- endfor -%}}")
    pair = ChatPair(write_tokenizer(tmp_path / "tokenizer", family), loss_mode="assistant")
    question, answer = GOOD["messages"]
    inner = {"tool_calls": [CALL], "tool_responses": [{"name": "look", "response": "seen"}]}
    row = {"messages": [question, {**answer, **inner}]}

    (own,), host = pair.ours([row]), pair.host(row)
    assert not isinstance(own, RowError)
    assert not isinstance(host, Exception)
    assert own[0] == host[0]
    own_text, host_text = (
        pair.tokenizer.decode([token for token, is_trained in zip(ids, mask, strict=True) if is_trained])
        for ids, mask in (own, host)
    )
    call = f"<|tool_call>{CALL['function']['name']}<tool_call|><|tool_response>"
    assert own_text == f"{call}{answer['content']}<turn|>"
    assert host_text == f"{call}seen<tool_response|>{answer['content']}<turn|>"


def test_standard_columns_stand_in_for_named_ones(both: MakeBoth) -> None:
    rows = [GOOD_PAIR, {"question": "hi", "answer": "yes"}]
    columns = {"prompt_column": "question", "completion_column": "answer"}
    sides = both(kind="prompt_completion")

    own = sides.own(rows, layout=pair_layouts(**columns))

    assert rows_of(own) == sides.host(rows, **columns)
    assert drops(own) == {}


def test_turn_of_an_unknown_role_vanishes_in_the_host(both: MakeBoth) -> None:
    rows = [_chat(("user", "hi"), ("critic", "bad question"), ("assistant", "yes")), GOOD]

    ((ids, _, starts),) = both().host(rows)
    assert ids[: starts[1]] == ids[starts[1] :]
    assert drops(both().own(rows)) == {"unknown_role": 1}


def test_sharegpt_calls_vanish_in_the_host_and_are_kept_here(both: MakeBoth, conversations: Path) -> None:
    from transformers import AutoTokenizer

    turns = [("human", "hi"), ("function_call", '{"name": "look", "arguments": {}}'), ("observation", "seen")]
    row = {"conversations": [{"from": name, "value": value} for name, value in [*turns, ("gpt", "yes")]]}
    template = (conversations / "tokenizer/chat_template.jinja").read_text().replace("raise_exception(", "(")
    sides = both(template.replace("'This chat template has no role named ' + message.role | string", "''"))

    decode = AutoTokenizer.from_pretrained(sides.tokenizer).decode
    host, own = decode(sides.host([row])[0][0]), decode(rows_of(sides.own([row]))[0][0])

    assert "seen" not in host
    assert "seen" in own
    assert "look" in own


def test_missing_completion_is_trained_as_a_bare_eos_by_the_host(both: MakeBoth) -> None:
    sides, rows = both(kind="prompt_completion"), [{"prompt": "hi"}, {"prompt": "hi", "completion": ""}]

    ids, mask, starts = sides.host(rows)[0]
    assert ids[: starts[1]] == ids[starts[1] :]
    assert [token for token, is_trained in zip(ids[1:], mask, strict=False) if is_trained] == [EOS_TOKEN_ID] * 2
    own = sides.own(rows, layout=pair_layouts())
    assert drops(own) == {"missing_field": 1}
    assert rows_of(own) == [(ids[starts[1] :], mask[starts[1] :], [0])]


def test_sequence_without_a_trained_token_is_kept_by_the_host(both: MakeBoth) -> None:
    sides, rows = both(multiple=4), [GOOD, _chat(("user", LONG_TEXT), ("assistant", "yes"))]

    assert len(runtime_lengths(sides.host(rows))) == 2
    assert drops(sides.own(rows, over_long="truncate")) == {"truncated_no_trained_token": 1}


def test_turn_start_is_never_trained_unless_asked(both: MakeBoth) -> None:
    own = rows_of(both().own([GOOD], loss_mode="full"))
    trained = rows_of(both().own([GOOD], loss_mode="full", masks_control_tokens=False))

    assert own == both().host([GOOD], loss_mode="full")
    assert sum(trained[0][1]) == sum(own[0][1]) + 1


def test_never_trained_tokens_are_the_host_s() -> None:
    from megatron.bridge.data.token_utils import PAD_TOKENS

    assert NEVER_TRAINED_TOKENS == PAD_TOKENS
    assert len(PAD_TOKENS) == 24


def test_unknown_templates_are_refused_by_both(both: MakeBoth) -> None:
    sides = both(TEMPLATE.replace("<|im_start|>", "<|startoftext|>").replace("<|im_end|>", "<|endoftext|>"))
    markers = {"assistant_start": "<|startoftext|>assistant\n", "assistant_end": "<|endoftext|>"}

    with pytest.raises(ValueError, match="infer assistant boundary markers"):
        sides.host([GOOD])
    with pytest.raises(TokenizerError, match="assistant_markers"):
        sides.own([GOOD])
    assert drops(sides.own([GOOD], assistant_markers=markers)) == {}


def test_host_logs_what_it_drops_and_cuts(both: MakeBoth, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="megatron.bridge.data.packing"):
        for multiple in (1, 4):
            both(multiple=multiple).host([GOOD, LONG_ANSWER])

    for text, level in (("Skipped 1 sequences", "WARNING"), ("truncating for packing", "INFO")):
        assert {record.levelname for record in caplog.records if text in record.message} == {level}
