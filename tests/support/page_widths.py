"""Pages of a built site in headless Chromium: whether they are wider than the window, and what their scripts show."""

import functools
import json
import subprocess
import threading
from collections.abc import Sequence
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_LIMIT_S = 240
_OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu")
#: Opens each page at each width in a frame, and sends what is wider: [width, page, width of the page].
_HARNESS = """<!doctype html><title>widths</title><iframe id="frame" style="border:0;height:900px"></iframe><script>
(async () => {
  const frame = document.getElementById("frame"), wide = [];
  let num_measured = 0;
  for (const width of WIDTHS) {
    frame.style.width = width + "px";
    for (const page of PAGES) {
      await new Promise((done) => { frame.onload = done; frame.src = "/" + page; });
      const root = frame.contentDocument.documentElement;
      if (root.scrollWidth > width) wide.push([width, page, root.scrollWidth]);
      num_measured += 1;
    }
  }
  await fetch("/widths", { method: "POST", body: JSON.stringify({ num_measured, wide }) });
})();
</script>"""


def wide_pages(chromium: str, site: Path, pages: Sequence[str], widths: Sequence[int], folder: Path) -> dict[str, Any]:
    """Return how many pages were measured, and (width, page, its own width) of those that are wider.

    Args:
        chromium: the program.
        site: folder of the site.
        pages: addresses from the site's root.
        widths: of the window, in pixels.
        folder: for the browser's profile.
    """
    answer: dict[str, Any] = {}
    has_answered = threading.Event()
    harness = _HARNESS.replace("WIDTHS", json.dumps(list(widths))).replace("PAGES", json.dumps(list(pages)))

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/widths":
                super().do_GET()
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(harness.encode())

        def do_POST(self) -> None:
            answer.update(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()
            has_answered.set()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    options = [*_OPTIONS, f"--user-data-dir={folder}", "--remote-debugging-port=0"]
    address = f"http://127.0.0.1:{server.server_port}/widths"
    browser = subprocess.Popen([chromium, *options, address], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert has_answered.wait(_LIMIT_S), "the browser did not answer"
    finally:
        browser.terminate()
        browser.wait(30)
        server.shutdown()
        server.server_close()
    return answer


def page_as_shown(chromium: str, site: Path, page: str, folder: Path) -> str:
    """Return the HTML of a page after its scripts have run; arguments as for `wide_pages`."""

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    options = [*_OPTIONS, f"--user-data-dir={folder}", "--virtual-time-budget=10000", "--dump-dom"]
    try:
        address = f"http://127.0.0.1:{server.server_port}/{page}"
        return subprocess.run(
            [chromium, *options, address], capture_output=True, text=True, check=True, timeout=_LIMIT_S
        ).stdout
    finally:
        server.shutdown()
        server.server_close()
