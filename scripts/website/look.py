"""Looks at the built site in a browser: no page is wider than its window, none has errors.

    pip install playwright && make docs && python scripts/website/look.py [--shots FOLDER]

Needs Chromium (`--browser PATH`; Debian has it as a package). Serves `site/` on a free port of this
machine, opens every page in a window of 1400 and of 390 pixels, and prints what is wrong: exit
status 1 if anything is. `--shots` writes a picture of each page.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import sys
import threading
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright  # pyright: ignore[reportMissingImports]

SITE = Path(__file__).parents[2] / "site"
WIDTHS = (1400, 390)
CUT_OFF = """() => [...document.querySelectorAll('.md-content pre code')]
    .filter(each => each.scrollWidth > each.clientWidth + 1).length"""


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--browser", default="/usr/bin/chromium")
    parser.add_argument("--shots", type=Path)
    options = parser.parse_args()
    handler = functools.partial(_Quiet, directory=str(SITE))
    pages = sorted(path.parent.relative_to(SITE) for path in SITE.rglob("index.html"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found = _look(f"http://127.0.0.1:{server.server_port}", pages, options)
        server.shutdown()
    print("\n".join(found) or f"{len(pages)} pages are as they should be")
    return 1 if found else 0


def _look(address: str, pages: list[Path], options: argparse.Namespace) -> list[str]:
    found: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=options.browser, args=["--no-sandbox"])
        for width in WIDTHS:
            tab: Any = browser.new_page(viewport={"width": width, "height": 900})
            tab.set_default_timeout(300_000)  # pictures of long pages, on a machine with other work
            errors: list[str] = []
            tab.on("pageerror", lambda error: errors.append(str(error)))  # noqa: B023
            tab.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)  # noqa: B023
            for page in pages:
                errors.clear()
                tab.goto(f"{address}/{page}/", wait_until="networkidle")
                at = f"{width} px, {page}"
                wide = tab.evaluate("document.documentElement.scrollWidth")
                if wide > width:
                    found.append(f"{at}: {wide} px wide")
                if width == max(WIDTHS) and (blocks := tab.evaluate(CUT_OFF)):
                    found.append(f"{at}: {blocks} code blocks are cut off")
                found += [f"{at}: {each}" for each in errors]
                if options.shots:
                    name = f"{width}-{'-'.join(page.parts) or 'home'}.png"
                    tab.screenshot(path=options.shots / name, full_page=True)
        browser.close()
    return found


if __name__ == "__main__":
    sys.exit(main())
