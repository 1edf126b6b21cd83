"""What axe-core finds on a page as it stands, in the light theme and in the dark one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from axe_playwright_python.base import AXE_SCRIPT

from tests.browser.drive import rested

_GRAVE = ("serious", "critical")
_PAINTED = """scheme => {
  const [r, g, b] = getComputedStyle(document.querySelector('[data-testid=stApp]'))
    .backgroundColor.match(/\\d+/g).map(Number);
  const inside = [...document.querySelectorAll('*')].flatMap(
    e => e.shadowRoot ? [...e.shadowRoot.querySelectorAll('[data-theme]')] : []);
  const moving = document.getAnimations().filter(
    a => a instanceof CSSTransition && a.playState === 'running');
  return (r + g + b < 384) === (scheme === 'dark') && !moving.length
    && inside.every(e => e.dataset.theme === scheme);
}"""
# What is drawn anew fades for a moment: null where a run began while axe looked.
_RUN = """async rules => {
  const app = document.querySelector('[data-testid=stApp]');
  let ran = app.dataset.testScriptState !== 'notRunning';
  const watch = new MutationObserver(() => { ran = true; });
  watch.observe(app, {attributes: true, attributeFilter: ['data-test-script-state']});
  const only = rules ? {runOnly: rules} : {};
  const found = await axe.run({resultTypes: ['violations'], ...only});
  watch.disconnect();
  return ran ? null : found.violations;
}"""
_LOOKS = 5
# The theme changes colours and nothing else: in the dark one, the other rules have been asked.
_ASKED: dict[str, list[str] | None] = {"light": None, "dark": ["color-contrast"]}


def faults(page: Any, what: str) -> list[str]:
    """Serious and critical faults of the page, one line each; ``what`` says where we are."""
    page.evaluate(AXE_SCRIPT)
    lines = []
    for scheme, rules in _ASKED.items():
        page.emulate_media(color_scheme=scheme)
        for _ in range(_LOOKS):
            rested(page)
            page.wait_for_function(_PAINTED, arg=scheme)
            if (found := page.evaluate(_RUN, rules)) is not None:
                break
        else:
            raise AssertionError(f"{what} does not come to rest")
        lines += [f"{what}, {scheme}: {line}" for line in _grave(found)]
    page.emulate_media(color_scheme="light")
    return lines


def _grave(violations: list[dict[str, Any]]) -> Iterator[str]:
    for rule in violations:
        if rule["impact"] not in _GRAVE:
            continue
        for node in rule["nodes"]:
            found = " ".join(node["html"].split())[:300]
            why = "; ".join(c["message"] for kind in ("any", "all", "none") for c in node[kind])
            yield f"{rule['id']} at {_path(node)}: {found} ({why})"


def _path(node: dict[str, Any]) -> str:
    """The path of an element; what stands in a shadow root follows its host."""
    return " ".join(part if isinstance(part, str) else " > ".join(part) for part in node["target"])
