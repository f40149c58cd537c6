"""The page of an artifact: its numbers, its structure, and text that tries to become markup."""

import itertools
import re
import shutil
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import bridgepack.reporting.html
from bridgepack.api.reports import overview_html
from bridgepack.bridge.targets import recipe_target
from bridgepack.checking.options import CheckOptions
from bridgepack.checking.overview import Overview, overview_of
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.checking import ArtifactOnDisk
from bridgepack.data.artifact.lengths import lengths_of_plan, lengths_of_rows
from bridgepack.data.build import build_artifact
from bridgepack.records import HostVerdict
from bridgepack.records.checks import Finding
from bridgepack.reporting.cards import cards_of
from bridgepack.reporting.charts import length_chart, pack_bars, value_chart
from bridgepack.rules.judging.rule import RULE_PAGES
from tests.support.messages import mentions
from tests.support.small_builds import chat_row, small_recipe, tokenized_recipe, tokenized_row, write_json_lines

HOSTILE = (
    "<script>parent.hit=1</script>",
    "<img src=x onerror=parent.hit=1>",
    "[a](javascript:parent.hit=1) <a href='javascript:parent.hit=1'>b</a>",
    "]]> --> </style></title></textarea></svg><svg onload=parent.hit=1>",
    "\"'><body onload=parent.hit=1>",
    "{{ 7 * 7 }} {% raw %} {# #} &lt;b&gt; &#60;",
)
UNPRINTABLE = "a\u202eb\u2066c\0d\x1b[31me\u0085f"
VOID = {"meta", "link", "br", "hr", "img", "input"}


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory, chatml_tokenizer: Path) -> Path:
    """Return an artifact whose rows, files, sources, and reasons for drops are hostile."""
    folder = tmp_path_factory.mktemp("hostile")
    rows = [chat_row(f"{number} {text}", f"{text} {text}") for number, text in enumerate((*HOSTILE, UNPRINTABLE) * 6)]
    bad = [{"messages": [{"role": HOSTILE[1], "content": "x"}]}, {HOSTILE[0]: 1}]
    named = write_json_lines(folder / "a<img src=x onerror=parent.hit=1>.jsonl", [*rows, *bad])
    plain = write_json_lines(folder / "b.jsonl", [chat_row(f"What is {n}?", "It is " + "so " * n) for n in range(40)])
    sources = [{"path": str(named), "name": HOSTILE[0]}, {"path": str(plain), "name": "b"}]
    held_out = write_json_lines(folder / "held-out.jsonl", rows[:7])
    recipe = small_recipe(
        [],
        chatml_tokenizer,
        data={"train": sources, "validation": str(held_out), "on_bad_row": "drop"},
        packing={"packed_sequence_size": 512, "pad_seq_to_mult": 4},
    )
    return build_artifact(recipe, output=folder / "packed <b>").output


@pytest.fixture(scope="module")
def page(artifact: Path) -> Overview:
    return overview_of(artifact, CheckOptions())


class Outline(HTMLParser):
    """What a page consists of; a tag that is closed in the wrong place raises."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self._open += [] if tag in VOID else [tag]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def values(self, name: str) -> list[str]:
        return [value for _, found, value in self.attributes if found == name]


def test_no_text_of_a_row_becomes_live(page: Overview) -> None:
    html = overview_html(page)
    outline = Outline(html)

    assert not {"script", "img", "iframe", "object", "embed", "link", "base", "form", "b"} & set(outline.tags)
    assert [name for _, name, _ in outline.attributes if name.startswith("on") or name == "src"] == []
    assert [link for link in outline.values("href") if not link.startswith(("#", RULE_PAGES))] == []
    assert [text for text in HOSTILE if text not in outline.text] == []
    assert [c for c in html if not c.isprintable() and c != "\n"] == []
    assert "default-src 'none'" in html
    assert len(html.encode()) < 2_000_000


def test_structure_serves_a_screen_reader(page: Overview) -> None:
    html = overview_html(page)
    outline = Outline(html)
    levels = [int(level) for level in re.findall(r"<h(\d)", html)]
    ids = outline.values("id")

    assert outline.values("lang") == ["en"]
    assert [outline.tags[tag] for tag in ("title", "h1", "main", "header", "footer", "nav")][1:] == [1] * 5
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert len(ids) == len(set(ids))
    assert {part for value in outline.values("aria-labelledby") for part in value.split()} <= set(ids)
    assert {link[1:] for link in outline.values("href") if link.startswith("#")} <= set(ids)
    assert outline.tags["th"] == len(outline.values("scope")) > 100
    assert html.count('role="img"') == html.count("</desc>") == 5


def _luminance(colour: str) -> float:
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


def test_colours_have_contrast_in_both_themes() -> None:
    style = (Path(bridgepack.reporting.html.__file__).parent / "templates" / "style.css").read_text()
    light, dark = (
        dict(re.findall(r"--([\w-]+): (#\w{6})", block)) for block in re.findall(r":root \{(.*?)\}", style, re.S)[:2]
    )
    pairs = [(ink, back) for ink in ("ink", "quiet", "link", "bad", "warn") for back in ("page", "panel")]
    pairs += [("trained-ink", "trained"), *((f"{name}", f"{name}-back") for name in ("good", "bad", "warn"))]
    pairs += [("ink", f"{name}-back") for name in ("good", "bad", "warn")]
    for theme in (light, dark):
        for pair in pairs:
            low, high = sorted(_luminance(theme[name]) for name in pair)
            assert (high + 0.05) / (low + 0.05) >= 4.5, pair


def test_ledger_sources_and_overlap_are_told_and_trained_text_is_marked(page: Overview) -> None:
    html = overview_html(page)
    text = " ".join(Outline(html).text.split())

    assert "unknown_role" in text
    assert "missing_field" in text
    assert mentions(text, "7 of 7 distinct sequences of validation", "in training")
    assert "bridgepack build recipe.yaml --output 'packed <b>'" in text
    assert len(re.findall(r"<mark>⟦It is ", html)) > 0
    assert "<mark>⟦What is" not in html


def test_lengths_of_the_plan_are_those_of_the_rows(artifact: Path) -> None:
    opened = Artifact(artifact)
    num_packs = opened.manifest.splits[0].statistics.num_packs
    found = lengths_of_plan(opened, "training", num_packs)
    rows = lengths_of_rows(ArtifactOnDisk(artifact), "training", num_packs)

    for name in ("lengths", "counts", "pack_tokens", "pack_sequences", "pack_costs"):
        assert getattr(found, name).tolist() == getattr(rows, name).tolist(), name
    assert {pack: drawn.tolist() for pack, drawn in found.samples.items()} == {
        pack: drawn.tolist() for pack, drawn in rows.samples.items()
    }
    every = np.repeat(found.lengths, found.counts)
    assert len(every) == opened.manifest.splits[0].statistics.num_sequences
    for fraction in (0.01, 0.5, 0.95, 0.99, 1.0):
        assert found.quantile(fraction) == np.quantile(every, fraction, method="inverted_cdf")
    assert sum(bar.count for bar in length_chart(found, 512).bars) == len(every)
    assert sum(bar.count for bar in value_chart(found.pack_costs).bars) == num_packs
    for bar in pack_bars(found, 512):
        assert sum(width for _, width in bar.boxes) == pytest.approx(100 * bar.num_tokens / 512, abs=0.5)


@pytest.mark.parametrize("values", [[7, 7, 7], [0, 1000], [3], [0.5, 0.5], [0.0, 2.5, 9.0]])
def test_every_value_is_in_a_bar(values: list[float]) -> None:
    chart = value_chart(np.array(values))

    assert sum(bar.count for bar in chart.bars) == len(values)
    assert all(bar.x >= 0 and bar.x + bar.width <= 100.1 for bar in chart.bars)
    assert [mark.value for mark in chart.marks] == [min(values), float(np.median(values)), max(values)]


def test_page_tells_how_long_ranks_wait_and_what_balance_would_give(tmp_path: Path, chatml_tokenizer: Path) -> None:
    rows = [tokenized_row(*range(5, 5 + length)) for length in (15, 15, *[4] * 30)]
    train = write_json_lines(tmp_path / "rows.jsonl", rows)
    two = {"parallelism__num_gpus": 2, "batch__global_batch_size": 2, "packing__balance__token_cost": 1}
    recipe = tokenized_recipe(train, chatml_tokenizer, **two, model={"name": "Qwen/Qwen3-0.6B"})
    output = build_artifact(recipe, output=tmp_path / "packed").output

    page = overview_of(output, CheckOptions())

    assert not isinstance(page.waiting, str), page.waiting
    assert f"{page.waiting.across_batches.mean:.3f}" in overview_html(page)
    assert "balanced across_batches" in overview_html(page)
    assert not isinstance(page.plan, str), page.plan
    text, sizes = Outline(overview_html(page)).text, page.plan.of_sizes
    assert "on 2 x h100-80gb. Lengths: all 32 training sequences of packed." in text
    assert "h100-80gb is assumed" in text
    assert {4096, 131072} < set(sizes)
    assert all(f"{one.tokens_per_s:,.0f}" in text for one in sizes.values() if one)


def test_page_says_what_the_host_itself_says(page: Overview) -> None:
    assert "Megatron-Bridge itself" not in overview_html(page)
    absent = HostVerdict(state="absent", reason="megatron-bridge is not installed here")
    told = overview_html(replace(page, report=replace(page.report, host=absent)))
    assert "not validated by Megatron-Bridge itself: megatron-bridge is not installed here" in told


def test_verdict_does_not_deny_the_advice_below_it(page: Overview) -> None:
    texts = dict.fromkeys(("where", "found", "allowed", "why", "fix"), "-")
    advice = Finding(code="BP608", name="batch-of-many-sequences", severity="advice", **texts)
    report = replace(page.report, findings=(advice,))
    assert "<strong>No errors or warnings</strong>" in overview_html(replace(page, report=report))
    assert "<strong>No findings</strong>" in overview_html(replace(page, report=replace(report, findings=())))


def test_findings_that_say_the_same_share_a_card_and_advice_is_folded(page: Overview) -> None:
    texts = dict.fromkeys(("found", "allowed", "why", "fix"), "-")
    same = [Finding(code="BP513", name="many", severity="warning", where=f"place {n}", **texts) for n in range(3)]
    other = Finding(code="BP513", name="many", severity="warning", where="x", **{**texts, "fix": "another"})
    advice = Finding(code="BP608", name="batch-of-many-sequences", severity="advice", where="-", **texts)
    told = replace(page, report=replace(page.report, findings=(*same, other, advice)))
    html = overview_html(told)

    urgent = cards_of(finding for finding in told.report.findings if finding.severity != "advice")
    assert [len(card.similar) for card in urgent] == [2, 0]
    assert html.count('<article class="finding warning">') == 2
    assert all(f"place {n}" in html for n in range(3))
    assert html.index("<details><summary>Advice: 1 way to make it") < html.index("batch-of-many-sequences")


def test_tiles_count_dropped_rows_and_steps_and_the_trained_text_comes_first(page: Overview) -> None:
    html = overview_html(page)
    assert "<dt>Rows dropped</dt><dd>2<small>" in html
    assert not isinstance(page.run, str)
    assert "<dt>Steps</dt><dd>none<small>fewer packs (17) than one step needs (128)</small>" in html
    assert html.index('class="verdict') < html.index("What is trained") < html.index('id="findings"')


def test_page_says_why_it_is_not_known_how_long_ranks_wait(tmp_path: Path, chatml_tokenizer: Path) -> None:
    rows = write_json_lines(tmp_path / "rows.jsonl", [tokenized_row(*range(5, 21)) for _ in range(4)])
    recipe = tokenized_recipe(rows, chatml_tokenizer)
    output = build_artifact(recipe, output=tmp_path / "packed").output

    page = overview_of(output, CheckOptions())

    assert isinstance(page.waiting, str)
    assert f"Not known: {page.waiting}"[:40] in overview_html(page)
    assert mentions(overview_html(page), "pack sizes are not ", ": parallelism.num_gpus is not set")
    for source in ({"parallelism.num_gpus": 2}, {"parallelism.num_gpus": 2, "model": {"name": "org/x-8b"}}):
        target = recipe_target(recipe.override(source), artifact=output)
        told = overview_of(output, CheckOptions(artifact=output), target)
        assert mentions(overview_html(told), "pack sizes are not ", ": model.name is")


def test_changed_artifact_gets_a_page_that_says_so(artifact: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(artifact, tmp_path / "copy")
    shard = next(copy.glob("training/*.parquet"))
    shard.write_bytes(shard.read_bytes()[:-40])
    changed = overview_of(copy, CheckOptions())
    text = Outline(overview_html(changed)).text

    assert changed.report.has_errors
    assert "Not ready" in text
    assert "files differ from the" in text
    assert "unknown_role" in text  # the ledger is in the manifest


@pytest.mark.parametrize("given", [{"packed_sequence_size": 512}, {}])
def test_packs_of_another_tool_say_what_is_not_known(artifact: Path, tmp_path: Path, given: dict[str, int]) -> None:
    folder = tmp_path / "packs \u202e<i>"
    folder.mkdir()
    shutil.copy(next(artifact.glob("training/*.parquet")), folder / "part.parquet")
    foreign = overview_of(folder, CheckOptions(given=given))
    text = " ".join(Outline(overview_html(foreign)).text.split())

    assert text.count("Not known") >= 4
    assert "tokenizer of these packs" in text
    assert "packs \ufffd<i>" in text
    assert foreign.splits[0].lengths is not None
    assert ("pack size with --given" in text) == (not given)
