"""The flow through the app as one short animated picture: what a person sees who does the job.

Notable:
- every frame is a screenshot of the running app; only the line of words below it is added
- frames stay as long as reading them takes; the whole lasts about twenty seconds
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from tests.browser.drive import to_page

SIZE = (1200, 760)
_CAPTION = 44
_SHOWN = (960, 608 + _CAPTION * 960 // SIZE[0])
_SETTLED_MS = 900
_QUALITY = 72


@dataclass
class _Film:
    page: Any
    frames: list[Image.Image] = field(default_factory=list)
    lasting_ms: list[int] = field(default_factory=list)

    def shoot(self, words: str, lasting_ms: int) -> None:
        """One frame of what is on screen, with ``words`` below it."""
        picture = Image.open(io.BytesIO(self.page.screenshot())).convert("RGB")
        framed = Image.new("RGB", (SIZE[0], SIZE[1] + _CAPTION), "#1f2623")
        framed.paste(picture)
        ImageDraw.Draw(framed).text(
            (20, SIZE[1] + 10), words, fill="#fbfaf6", font=ImageFont.load_default(22)
        )
        self.frames.append(framed.resize(_SHOWN, Image.Resampling.LANCZOS))
        self.lasting_ms.append(lasting_ms)


def record(chromium: Any, url: str, link: str, path: Path) -> None:
    """Do the job in a browser and write the film to ``path`` (.webp).

    url, link: the server, and the query of a plan that was measured on it
    """
    page = chromium.new_page(viewport={"width": SIZE[0], "height": SIZE[1]}, color_scheme="light")
    film = _Film(page)

    def to(name: str) -> None:
        to_page(page, name)
        page.wait_for_timeout(_SETTLED_MS)

    page.goto(f"{url}/dataset?{link}")
    page.get_by_role("heading", name="Dataset", exact=True, level=1).wait_for()
    page.wait_for_timeout(3 * _SETTLED_MS)
    film.shoot("Load rollouts: rows that share a prompt share tokens", 2200)

    to("Trie")
    page.locator("canvas").first.wait_for()
    page.wait_for_timeout(_SETTLED_MS)
    film.shoot("See what they share: every tree, down to the token", 2000)
    page.locator(".mark").nth(1).click()
    page.wait_for_timeout(_SETTLED_MS)
    film.shoot("Drill down into a branch", 1600)

    to("Packing")
    page.get_by_text("Still working").wait_for(state="detached", timeout=120_000)
    film.shoot("Choose max_tokens_per_mb: what it saves, what is paid", 1800)
    page.get_by_role("slider").focus()
    for _ in range(4):
        for _ in range(4):
            page.keyboard.press("ArrowRight")
        page.wait_for_timeout(_SETTLED_MS // 2)
        film.shoot("A move of the slider packs all rows anew, exactly as AReaL will", 450)
    page.get_by_test_id("stTopNav").get_by_role("link", name="Overview").click()
    play = page.get_by_role("button", name="Play")
    play.wait_for()
    page.wait_for_timeout(_SETTLED_MS)
    film.shoot("The answer: before and after to scale, and one cap", 1400)
    page.get_by_role("heading", name="How one tree folds").evaluate("e => e.scrollIntoView()")
    page.wait_for_timeout(_SETTLED_MS)
    play.click()
    for _ in range(10):
        page.wait_for_timeout(320)
        film.shoot("Rows fold into a tree: what is shared is computed once", 250)
    film.shoot("Rows fold into a tree: what is shared is computed once", 1000)

    to("Kernels")
    film.shoot("Prove it: a packed step equals the rows one by one", 2000)
    to("Tune")
    page.wait_for_timeout(2 * _SETTLED_MS)
    film.shoot("Measure real training steps; the pick and its reason", 2600)
    use = page.get_by_role("button", name=re.compile(r"^Use [\d,]+$"))
    if use.count():
        use.click()
        page.get_by_role("button", name="In use").wait_for()
    to("Export")
    film.shoot("Take the config that will not fail after the first rollout", 2400)
    page.close()
    first, *rest = film.frames
    first.save(
        path,
        save_all=True,
        append_images=rest,
        duration=film.lasting_ms,
        loop=0,
        quality=_QUALITY,
        method=6,
    )
