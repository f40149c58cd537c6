"""The site as it is built: every page is there, loads nothing from elsewhere, and is found by users' words."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from scripts.docs_pages.error_messages import MESSAGES
from scripts.docs_pages.old_addresses import MOVED
from scripts.docs_pages.pictures import PICTURES

from bridgepack.config.write import CLUSTER_SCHEMA_URL, SCHEMA_URL, cluster_schema, recipe_schema, schema_text
from bridgepack.rules.judging.rule import RULE_PAGES
from bridgepack.rules.registry import ALL_RULES
from tests.support.docs_blocks import PROJECT
from tests.support.page_widths import page_as_shown, wide_pages

#: What a user types -> the page that answers it. None of them is the page's own title.
QUESTIONS = {
    "convert checkpoint to hugging face": "from-weights/",
    "import weights from the hub": "from-weights/",
    "serve the trained model with vllm": "from-weights/",
    "choose packed_sequence_size": "pack-size/",
    "how long should a pack be": "pack-size/",
    "last turn": "last-turn/",
    "only train final answer": "last-turn/",
    "why was my row dropped": "dropped-rows/",
    "over_long rows": "dropped-rows/",
    "function calling dataset": "tool-calls/",
    "xlam": "tool-calls/",
    "train on chain of thought": "thoughts/",
    "mask reasoning from loss": "thoughts/",
    "dataset weights": "mixtures/",
    "blend several datasets": "mixtures/",
    "s3 bucket": "object-stores/",
    "continue training after crash": "resuming/",
    "requeue slurm job": "resuming/",
    "wandb": "trackers/",
    "tensorboard": "trackers/",
    "pip install": "install/",
    "loss is nan": "troubleshooting/",
    "training hangs": "troubleshooting/",
    "out of memory": "troubleshooting/",
    "what is cu_seqlens": "packing-from-zero/",
    "multi node slurm": "tutorials/slurm/",
    "sharegpt": "data/",
    "ignore a rule": "check/",
    "are my loss masks correct": "prove/",
    "github actions": "ci/",
}


class _Assets(HTMLParser):
    """Collects what a page makes the browser fetch by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if values.get("src"):
            self.urls.append(values["src"] or "")
        if tag == "link" and values.get("rel") not in {"canonical", "prev", "next"}:
            self.urls.append(values.get("href") or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the site, built of the written pages and of what comes from the code."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_site_has_every_page_that_comes_from_the_code(site: Path) -> None:
    for rule in ALL_RULES:
        assert (
            f"<title>{rule.code} {rule.name} - bridgepack</title>"
            in (site / f"rules/{rule.code}/index.html").read_text()
        )
    for name in ("recipe-reference", "cli", "manifest-reference", "rules", "tutorials/notebook", "quirks"):
        assert (site / name / "index.html").is_file()
    for name, draw in PICTURES.items():
        assert (site / name).read_text(encoding="utf-8") == draw()


def test_schemas_are_where_recipes_and_cluster_files_look_for_them(site: Path) -> None:
    home = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["urls"]["Documentation"]
    for url, schema in ((SCHEMA_URL, recipe_schema()), (CLUSTER_SCHEMA_URL, cluster_schema())):
        assert schema["$id"] == url
        assert (site / url.removeprefix(f"{home}/")).read_text(encoding="utf-8") == schema_text(schema)


def test_rules_link_to_their_pages(site: Path) -> None:
    home = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["urls"]["Documentation"]
    assert (site / RULE_PAGES.removeprefix(f"{home}/") / "BP004" / "index.html").is_file()


def test_site_loads_nothing_from_elsewhere(site: Path) -> None:
    parser = _Assets()
    for page in site.rglob("*.html"):
        parser.feed(page.read_text(encoding="utf-8"))
    sheets = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert [url for url in parser.urls if re.match(r"(?:https?:)?//", url)] == []
    assert re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", sheets) == []
    assert len(parser.urls) > 0


def test_a_page_is_among_the_first_answers_to_users_words(site: Path) -> None:
    """Asks the theme's own search, as the browser runs it."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node")
    asked = subprocess.run(
        [node, str(PROJECT / "tests/support/site_search.js"), str(site)],
        input=json.dumps(list(QUESTIONS)),
        capture_output=True,
        text=True,
        check=True,
    )
    answers = dict(zip(QUESTIONS, json.loads(asked.stdout), strict=True))
    titles = {page: _title(site / page / "index.html").lower() for page in QUESTIONS.values()}

    assert len(QUESTIONS) == 30
    assert [words for words, page in QUESTIONS.items() if words == titles[page]] == []
    assert {words: answers[words][:3] for words, page in QUESTIONS.items() if page not in answers[words][:3]} == {}


def _title(page: Path) -> str:
    found = re.search(r"<title>(.*?)(?: - bridgepack)?</title>", page.read_text(encoding="utf-8"))
    assert found is not None
    return found[1]


def _pages_of(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    for part in entry.values() if isinstance(entry, Mapping) else ():
        for item in part if isinstance(part, list) else [part]:
            yield from _pages_of(item)


def test_a_tab_has_at_most_eight_pages_and_no_two_pages_have_one_name(site: Path) -> None:
    text = re.sub(r"(?m)^hooks:\n(?:  .*\n)+", "", (PROJECT / "mkdocs.yml").read_text(encoding="utf-8"))
    tabs = YAML(typ="safe", pure=True).load(text)["nav"]
    names = [
        _title(site / re.sub(r"(^|/)index\.md$|\.md$", r"\1", page) / "index.html")
        for tab in tabs
        for page in _pages_of(tab)
    ]

    assert [tab for tab in tabs if len(list(_pages_of(tab))) > 8] == []
    assert sorted(names) == sorted(set(names))


def test_old_addresses_lead_to_places_that_exist(site: Path) -> None:
    for old, new in MOVED.items():
        page = (site / old / "index.html").read_text(encoding="utf-8")
        folder, _, anchor = new.partition("#")
        assert f'url=../{new}"' in page
        assert f'id="{anchor}"' in (site / folder / "index.html").read_text(encoding="utf-8")


def test_messages_of_the_index_are_those_of_the_code() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in (PROJECT / "src").rglob("*.py"))
    assert [text for text in MESSAGES if text not in code] == []


def _chromium() -> str:
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("needs Chromium")
    return program


@pytest.mark.full
def test_the_index_of_rules_shows_what_is_chosen(site: Path, tmp_path: Path) -> None:
    """By severity and by how a rule is fixed; only a browser runs the filter."""
    shown = page_as_shown(_chromium(), site, "rules/?severity=error&fix=--fix", tmp_path)
    num_chosen = sum(rule.severity == "error" and rule.is_fixable for rule in ALL_RULES)

    assert f">{num_chosen} of {len(ALL_RULES)} rules</p>" in shown
    assert 0 < num_chosen < len(ALL_RULES)


@pytest.mark.full
def test_no_page_is_wider_than_its_window(site: Path, tmp_path: Path) -> None:
    """All written pages and ten of rules, on a phone and two screens; only a browser lays a page out."""
    chromium = _chromium()
    pages = [str(page.parent.relative_to(site)) for page in sorted(site.rglob("index.html"))]
    rules = [page for page in pages if re.fullmatch(r"rules/BP\d{3}", page)]
    chosen = [page for page in pages if page not in rules and f"{page}/" not in MOVED] + rules[:: len(rules) // 10]
    answer = wide_pages(chromium, site, [f"{page}/" for page in chosen], (390, 1360, 1920), tmp_path)

    assert answer == {"num_measured": 3 * len(chosen), "wide": []}
    assert len(chosen) > 60
