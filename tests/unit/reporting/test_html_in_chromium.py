"""The page in a real browser: no overflow on a wide and a narrow screen, nothing on the console, nothing live."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from bridgepack.api.reports import write_report
from bridgepack.checking.options import CheckOptions
from bridgepack.data.build import build_artifact
from tests.support.small_builds import chat_row, small_recipe, write_json_lines

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
HOSTILE = (
    "<script>parent.hit = 1</script><img src=x onerror='parent.hit = 1'><svg onload='parent.hit = 1'>",
    "]]></style></title><iframe srcdoc='<script>top.hit = 1</script>'></iframe>"
    "<a href='javascript:parent.hit = 1'>x</a>",
    "\u202e\u2066\0" + "w" * 3000,
)
#: Measures the page in a frame of each width, once it is loaded.
PROBE = """<!doctype html><title></title><body>
{frames}
<script>
onload = () => {{
  const found = [...document.querySelectorAll("iframe")].map(frame => {{
    const root = frame.contentDocument.documentElement;
    return {{
      overflow: root.scrollWidth - root.clientWidth, hit: window.hit || 0, h1: root.querySelectorAll("h1").length,
      live: root.querySelectorAll("script, img, iframe, [onload], [onerror], a[href^=javascript]").length,
      bars: [...root.querySelectorAll("rect.bar")].filter(bar => bar.getBoundingClientRect().width > 0).length,
    }};
  }});
  document.title = JSON.stringify(found);
}};
</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on PATH: install Debian's package chromium")
@pytest.mark.full
def test_page_fits_screens_and_runs_nothing(tmp_path: Path, chatml_tokenizer: Path) -> None:
    rows = [chat_row(f"{number} {text}", text * (1 + number % 3)) for number in range(12) for text in HOSTILE]
    train = write_json_lines(tmp_path / f"{HOSTILE[0].replace('/', '')}.jsonl", rows)
    recipe = small_recipe(train, chatml_tokenizer, packing={"packed_sequence_size": 16384})
    artifact = build_artifact(recipe, output=tmp_path / "packed").output
    write_report(artifact, CheckOptions(), output=tmp_path / "page.html", sign_off_file=tmp_path / "signed.html")
    shown = [(page, width) for page in ("page", "signed") for width in (1440, 390)]
    frames = "".join(f'<iframe src="{page}.html" width="{width}" height="900"></iframe>' for page, width in shown)
    (tmp_path / "probe.html").write_text(PROBE.format(frames=frames))

    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]
    options += ["--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=5000"]
    command = [str(CHROMIUM), *options, "--dump-dom", (tmp_path / "probe.html").as_uri()]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)

    measured = json.loads(ran.stdout.partition("<title>")[2].partition("</title>")[0])
    for (page, _), found in zip(shown, measured, strict=True):
        assert (found["overflow"], found["hit"], found["live"], found["h1"]) == (0, 0, 0, 1)
        assert found["bars"] > 10 or page == "signed"
    assert [line for line in ran.stderr.splitlines() if "CONSOLE" in line] == []
