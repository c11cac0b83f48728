"""A headless browser, where one is installed: pages of ours are looked at as a reader has them before the eyes."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

#: What the browser saw is kept here, for people to look at; git ignores it.
ARTEFACTS = Path(__file__).parents[2] / "build" / "screenshots"

# Run in the page: what sticks out of it, and what bars' texts lie over their neighbours.
LOOK = """
<script>
addEventListener("load", () => {
  const wrong = [];
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width) wrong.push("the page is wider than the window");
  for (const bar of document.querySelectorAll(".bar")) {
    const boxes = [...bar.children].map(e => [e, e.getBoundingClientRect()]);
    for (const [a, p] of boxes) {
      if (a.scrollWidth > a.clientWidth + 1 && a.className == "value") wrong.push("cut off: " + a.textContent);
      for (const [b, q] of boxes)
        if (a !== b && p.left < q.right - 1 && q.left < p.right - 1 && p.top < q.bottom - 1 && q.top < p.bottom - 1)
          wrong.push("overlap: " + a.textContent + " / " + b.textContent);
    }
  }
  if ([...document.images].some(image => !image.naturalWidth)) wrong.push("a picture does not load");
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const paper = getComputedStyle(document.body).backgroundColor;
  document.body.innerHTML = "<pre id=seen>" + JSON.stringify([dark, paper, width, wrong]) + "</pre>";
});
</script>
"""


def check_in_a_browser(text: str, name: str, scheme: str, width: int, folder: Path) -> None:
    """The page fits its window, with nothing over anything else; a picture of it is kept. Skipped without a browser."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip("no chromium is installed: apt-get install chromium")
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    (ARTEFACTS / f"{name}.html").write_text(text)
    (folder / "looked.html").write_text(text.replace("</main>", f"</main>{LOOK}"))

    def browse(page: Path, *words: str) -> str:
        command = [
            *(browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage"),
            *(f"--user-data-dir={folder}", f"--window-size={width},4200", "--virtual-time-budget=5000"),
            f"--blink-settings=preferredColorScheme={1 if scheme == 'light' else 0}",
            *(*words, page.as_uri()),
        ]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout

    seen = re.search(r"<pre id=\"seen\">(.*?)</pre>", browse(folder / "looked.html", "--dump-dom"))
    assert seen is not None
    paper = "rgb(20, 24, 29)" if scheme == "dark" else "rgb(255, 255, 255)"
    assert seen[1] == f'[{"true" if scheme == "dark" else "false"},"{paper}",{width},[]]'
    picture = ARTEFACTS / f"{name}-{scheme}-{width}.png"
    browse(ARTEFACTS / f"{name}.html", f"--screenshot={picture}")
    assert picture.stat().st_size > 50_000
