"""What a streamed answer costs the browser: the page's Markdown beside one that parses the whole text at each update.

`python panel/bench/measure.py`: builds the bench page, runs both in Chromium in turns, prints the main thread's time of each
and their ratio; exits 1 above the limit. Needs Node, Chromium and playwright.
"""

from __future__ import annotations

import functools
import http.server
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

HERE = Path(__file__).parent
ROUNDS = 3
LIMIT = 0.25
LONGEST_MS = 300_000


def main() -> int:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        print("There is no Chromium to measure in.", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            ["npx", "vite", "build", str(HERE), "--outDir", folder, "--emptyOutDir", "--logLevel", "error"],
            cwd=HERE.parent,
            check=True,
        )
        seconds = _measured(chromium, _serve(folder))
    page, whole = (statistics.median(seconds[name]) for name in ("page", "whole"))
    print(json.dumps({"page_seconds": page, "whole_seconds": whole, "ratio": round(page / whole, 3), "limit": LIMIT}))
    return 0 if page <= LIMIT * whole else 1


def _serve(folder: str) -> str:
    handler = functools.partial(_Quiet, directory=folder)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}"


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def _measured(chromium: str, address: str) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {"page": [], "whole": []}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for _ in range(ROUNDS):
            for name, times in seconds.items():
                times.append(_main_thread_seconds(browser, f"{address}/?as={name}"))
        browser.close()
    return seconds


def _main_thread_seconds(browser: Browser, address: str) -> float:
    page = browser.new_page()
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    page.goto(address)
    page.wait_for_function("document.title === 'done'", timeout=LONGEST_MS)
    metrics = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    page.close()
    return float(metrics["TaskDuration"])


if __name__ == "__main__":
    sys.exit(main())
