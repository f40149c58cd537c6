"""Chat templates that take memory without end are stopped: one error if they always do, a dropped row if one asks."""

import resource
from pathlib import Path

import pytest

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.served import sample
from bridgepack.data.tokenizers import limits
from bridgepack.errors import DataError, TokenizerError
from bridgepack.proof.mask_check import check_masks
from bridgepack.proof.served.served import check_served
from tests.support import small_builds as small
from tests.support.messages import mentions

_TWICE = "{%% set text = namespace(x='xxxxxxxx') %%}{%% for _ in range(99) %%}{%% set text.x = %s %%}{%% endfor %%}"
#: Templates' parts that ask for 64 MiB or more.
_BOMBS = {
    "joined": _TWICE % "text.x ~ text.x",
    "added": _TWICE % "text.x + text.x",
    "replaced": _TWICE % "text.x.replace('x', 'xx')",
    "list": _TWICE % "[text.x, text.x] | join",
    "filter-of-constants": "{{ ('x' | center(10 ** 10))[:3] }}",
    "method": "{{ 'x'.ljust(messages | length * 900000000)[:3] }}",
    "format": "{{ ('%0*d' | format(messages | length * 900000000, 1))[:3] }}",
    "json": "{{ (messages | tojson(indent=9000000000))[:3] }}",
    "batch": "{{ (messages | batch(10 ** 9, 'x') | list)[:3] }}",
}
#: A part that never ends, and one that takes memory where only transformers renders: our sandbox limits repetition.
_ENDLESS = "{% for _ in range(99999) %}{% for _ in range(99999) %}{% endfor %}{% endfor %}"
_ALL = {"endless": _ENDLESS, "memory": _BOMBS["joined"]}


@pytest.fixture(autouse=True)
def _little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_ROW_BYTES", 64 << 20)
    monkeypatch.setattr(limits, "MAX_ROW_S", 0.3)


def _recipe(folder: Path, tokenizer: Path, bomb: str, turns: list[int]) -> SFTRecipe:
    """Return a recipe of conversations with so many turns, whose template begins with the bomb."""
    rows = [{"messages": small.chat_row("Hi?", "Yes.")["messages"] * (num // 2)} for num in turns]
    data = small.write_json_lines(folder / "a.jsonl", rows)
    (folder / "bomb.jinja").write_text(bomb + (tokenizer / "chat_template.jinja").read_text())
    recipe = small.small_recipe(data, tokenizer, packing={"packed_sequence_size": 256})
    return recipe.override({"tokenizer.chat_template": str(folder / "bomb.jinja")})


@pytest.mark.parametrize("bomb", _BOMBS.values(), ids=_BOMBS)
def test_template_that_takes_memory_without_end_is_one_error(tmp_path: Path, chatml_tokenizer: Path, bomb: str) -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)

    with pytest.raises(TokenizerError, match=r"takes more than .* of memory.*set tokenizer.chat_template to another"):
        small.build(_recipe(tmp_path, chatml_tokenizer, bomb, [2]), tmp_path / "out")

    assert not (tmp_path / "out").exists()
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


@pytest.mark.parametrize(
    "bomb",
    [
        "{{ ('%999999999d' % 1)[:3] }}",
        "{{ ('x' | center(10 ** 9))[:3] }}",
        "{{ ([1] | batch(10 ** 8, 'x') | list)[:3] }}",
    ],
    ids=["format", "center", "batch"],
)
def test_a_template_takes_no_more_than_the_build_may(
    tmp_path: Path, chatml_tokenizer: Path, bomb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes a gigabyte, which is less than any row may take."""
    monkeypatch.setattr(limits, "MAX_ROW_BYTES", 1 << 32)
    with pytest.raises(TokenizerError, match=r"takes more than 512 MiB of memory"):
        small.build(_recipe(tmp_path, chatml_tokenizer, bomb, [2]), tmp_path / "out", memory_bytes=512 << 20)


def test_template_that_writes_out_of_proportion_is_one_error(tmp_path: Path, chatml_tokenizer: Path) -> None:
    bomb = "{% for _ in range(2000) %}{{ 'x' * 1000 }}{% endfor %}"

    with pytest.raises(TokenizerError, match=r"the chat template writes 2,000,\d\d\d characters from \d\d"):
        small.build(_recipe(tmp_path, chatml_tokenizer, bomb, [2]), tmp_path / "out")


def test_row_for_which_the_template_takes_too_much_memory_is_dropped(tmp_path: Path, chatml_tokenizer: Path) -> None:
    bomb = "{% if messages | length > 10 %}" + _BOMBS["joined"] + "{% endif %}"

    manifest = small.build(_recipe(tmp_path, chatml_tokenizer, bomb, [2, 12, 4]), tmp_path / "out").manifest

    assert small.dropped(tmp_path / "out") == [(2, "out_of_memory")]
    assert manifest.splits[0].statistics.num_sequences == 2


def test_many_rows_that_take_too_much_memory_stop_the_build(tmp_path: Path, chatml_tokenizer: Path) -> None:
    bomb = "{% if messages | length > 10 %}" + _BOMBS["method"] + "{% endif %}"

    with pytest.raises(DataError, match=r"11 rows .*time or memory .*of memory.*not the cause"):
        small.build(_recipe(tmp_path, chatml_tokenizer, bomb, [12] * 20), tmp_path / "out")

    assert not (tmp_path / "out").exists()


def test_limit_follows_a_process_that_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = limits.MemoryLimit()
    kept = bytearray(100 << 20)

    assert len(limit(bytes, 40 << 20)) == 40 << 20  # refused by the first measure of the process
    assert len(kept) == 100 << 20


@pytest.mark.parametrize("bomb", _ALL.values(), ids=_ALL)
def test_generation_prompt_without_an_end_is_one_error(tmp_path: Path, chatml_tokenizer: Path, bomb: str) -> None:
    recipe = _recipe(tmp_path, chatml_tokenizer, "{% if add_generation_prompt %}" + bomb + "{% endif %}", [2])

    for use in (small.build, lambda recipe, _: check_masks(recipe), lambda recipe, _: check_served(recipe)):
        with pytest.raises(TokenizerError, match=r"takes more than .* for a small conversation"):
            use(recipe, tmp_path / "out")

    assert not (tmp_path / "out").exists()


#: Where only the render that finds answers is: in that with marks around texts, and in that of the first turns.
_MARKED = "messages | length == 6 and 'Hi?' in messages[0].content and messages[0].content != 'Hi?'"
_FIRST = "messages | length in (2, 3, 5) and messages[0].content == 'Hi?'"


@pytest.mark.parametrize("bomb", _ALL.values(), ids=_ALL)
@pytest.mark.parametrize("settings", [{}, {"loss_mode": "last_turn"}, {"mask_generation_prompt": True}], ids=str)
@pytest.mark.parametrize("where", [_MARKED, _FIRST], ids=["marked", "first-turns"])
def test_row_whose_mask_takes_too_much_is_dropped(
    tmp_path: Path,
    chatml_tokenizer: Path,
    bomb: str,
    settings: dict[str, object],
    where: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A mask may need one more render of the conversation, or that of a part: nothing else limits these.

    Without settings the comparison with a server meets the bomb, too, in each of its renders.
    """
    if settings:
        monkeypatch.setattr(sample, "iter_sample", lambda *_, **__: ())
    recipe = _recipe(tmp_path, chatml_tokenizer, "{% if " + where + " %}" + bomb + "{% endif %}", [6, 4])
    template = tmp_path / "bomb.jinja"
    # the first answer of many has no end, so that no scan is certain
    end, no_end = "'<|im_end|>", "('' if loop.index0 == 1 and messages | length > 4 else '<|im_end|>') + '"
    assert end in template.read_text()
    template.write_text(template.read_text().replace(end, no_end))
    recipe = recipe.override({f"preprocessing.{name}": value for name, value in settings.items()})

    small.build(recipe, tmp_path / "out")

    assert small.dropped(tmp_path / "out") in ([(1, "time_out")], [(1, "out_of_memory")])


def test_masks_that_transformers_cannot_derive_in_time_are_not_judged(tmp_path: Path, chatml_tokenizer: Path) -> None:
    """Only the derivations change a message's words."""
    bomb = "{% if messages[-1].content == 'Qzeroq' and messages | length > 2 %}" + _ENDLESS + "{% endif %}"

    report = check_masks(_recipe(tmp_path, chatml_tokenizer, bomb, [4, 2]))

    assert (report.num_sequences, report.num_agreed, report.num_not_judged) == (2, 1, 1)
    (reason,) = {reason for item in report.derivations for reason in item.reasons}
    assert mentions(reason, "the chat template", "more than 0.3 seconds of CPU time")


@pytest.mark.parametrize("text", ["'x' * 9000000000", "'x' * (messages | length * 900000000)"], ids=["constant", "row"])
def test_repetition_that_transformers_allows_takes_no_memory(tmp_path: Path, chatml_tokenizer: Path, text: str) -> None:
    bomb = "{% if messages[-1].content == 'Qoneq' %}{{ (" + text + ")[:3] }}{% endif %}"

    with pytest.raises(TokenizerError, match=r"more than 64 MiB of memory"):
        check_masks(_recipe(tmp_path, chatml_tokenizer, bomb, [4]))
