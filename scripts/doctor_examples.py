"""Writes ``docs/doctor-examples.md``: three of AReaL's examples as the doctor reports on them.

    python -m scripts.doctor_examples ../shared/data/areal_configs

Notable:
- what was found, and the changes that mend it; the configs themselves stay where they are
- what no setting mends stays in the verdict after them
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tuning.areal.config import ArealConfig
from tuning.doctor.doctor import check, describe

OUT = Path(__file__).parents[1] / "docs" / "doctor-examples.md"
EXAMPLES = {
    "tau2_config_8b_airline": "An agent on Archon, trees on",
    "search_agent_local_1.5b_example": "A search agent on FSDP, trees off",
    "vlm_geometry3k_grpo": "A vision model, trees off",
}
_HEAD = """\
# What the doctor says of three of AReaL's examples

Each report is what `python -m tuning check FILE` prints, trees as the file has them and trees
turned on. Below it stand the changes that mend the errors which a setting can mend, as
`python -m tuning export ROWS --base FILE --diff` writes them, and the verdict after them. This page
is written by `python -m scripts.doctor_examples FOLDER` from the folder with AReaL's files.
"""


def render(folder: Path) -> str:
    """The page."""
    parts = [_HEAD]
    for name, title in EXAMPLES.items():
        file = folder / f"{name}.yaml"
        report = check(file)
        config = ArealConfig.read(file)
        fixes = {k: v for one in report.errors for k, v in one.fix.items()}
        mended = config.written(fixes)
        parts += [
            f"## {title}: `{name}.yaml`\n",
            f"```text\n{describe(report)}\n```\n",
            f"```diff\n{_changed(config.diff(mended, file.name))}\n```\n",
            f"After these changes: {check(mended).verdict}\n",
        ]
    return "\n".join(parts)


def _changed(diff: str) -> str:
    """A diff without the lines around a change: those are AReaL's."""
    return "\n".join(line for line in diff.splitlines() if not line.startswith(" "))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    OUT.write_text(render(parser.parse_args().folder))


if __name__ == "__main__":
    main()
