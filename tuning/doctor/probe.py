"""Run by ``check`` in a process of its own: AReaL's real classes, parser and start checks.

Notable:
- imports ``areal.api`` alone; packages of AReaL that pull in engines are left unrun, and heavy
  third-party modules, which the config classes do not use, are replaced by blanks
- the trainer's own start checks are taken out of its source and run on the parsed config
- needs numpy, omegaconf, hydra-core and pyyaml (lark for backends); imports nothing of Espalier
- reads one JSON object from standard input, writes one to standard output
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import importlib.util
import json
import re
import sys
import tempfile
import types
import warnings
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

_PACKAGES = (
    "areal",
    "areal.api",
    "areal.engine",
    "areal.engine.fsdp_utils",
    "areal.utils",
    "areal.infra",
)
_BLANK_PARTS = ("areal.utils.logging", "areal.utils.name_resolve", "areal.infra.platforms")
_HEAVY = frozenset(
    {"aiohttp", "colorlog", "httpx", "numba", "orjson", "ray", "torch", "transformers", "uvloop"}
)
_TRAINERS = ("PPOConfig", "SFTConfig", "RWConfig", "DPOConfig")


class _Blank:
    """Anything: attributes, calls and decorators give blanks or what they were given."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Blank()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else _Blank()


class _BlankModule(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "is_kernel":
            return _is_kernel
        return _Blank()


def _is_kernel(name: str) -> bool:
    """Whether ``name`` has the form of a Hugging Face kernels repo."""
    pattern = r"(?:[\w-]+\|)?[\w.-]+/[\w.-]+(?:@[\w./-]+)?(?::[\w.-]+)?"
    return re.fullmatch(pattern, name) is not None


class _Finder:
    """Gives blanks for heavy modules and for parts of AReaL that need an engine."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: object = None
    ) -> ModuleSpec | None:
        if name in _BLANK_PARTS or name.split(".")[0] in _HEAVY:
            return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]
        return None

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        module = _BlankModule(spec.name)
        module.__path__ = []  # a package: modules below it are blank too
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """A blank has nothing to run."""


def load_cli_args(root: str) -> Any:
    """The module ``areal.api.cli_args`` found under ``root``."""
    import hydra  # noqa: F401  # before the blanks: it probes for optional modules
    import omegaconf  # noqa: F401

    for name in _PACKAGES:
        package = types.ModuleType(name)
        package.__path__ = [f"{root}/{name.replace('.', '/')}"]
        sys.modules[name] = package
    sys.meta_path.insert(0, _Finder())
    sys.path.insert(0, root)
    return importlib.import_module("areal.api.cli_args")


def _judge(cli_args: Any, root: str, question: Mapping[str, Any]) -> dict[str, Any]:
    """What AReaL does with one text, from reading the file to the start of its trainer."""
    from omegaconf import OmegaConf, open_dict

    name, whole = question["class"], question["class"] in _TRAINERS
    cls = getattr(cli_args, name, None)
    if cls is None:
        error = f"AttributeError: no {name} in this version"
        return {"accepted": False, "error": error, "stage": "merge", "left_out": []}
    left_out: list[str] = []
    stage = "read"
    try:
        config = _composed(cli_args, question["text"]) if whole else _plain(question["text"])
        stage = "merge"
        if whole:
            known = set(cls.__dataclass_fields__)
            left_out = [str(key) for key in config if key not in known]
            for key in [key for key in config if not str(key).isidentifier()]:
                with open_dict(config):
                    del config[key]
            cls = _extended(cls, [key for key in left_out if key.isidentifier()])
        made = OmegaConf.to_object(cli_args.to_structured_cfg(config, cls))
        stage = "start"
        if question.get("start", True) and importlib.util.find_spec("lark") is not None:
            _start(made, root, name)
    except Exception as error:  # whatever AReaL raises is the answer
        text = f"{type(error).__name__}: {error}"
        return {"accepted": False, "error": text, "stage": stage, "left_out": left_out}
    return {"accepted": True, "left_out": left_out}


def _extended(cls: Any, own: list[str]) -> Any:
    """The class with keys of a script's own, as such a script would extend it."""
    fields = [(key, Any, dataclasses.field(default=None)) for key in own]
    return dataclasses.make_dataclass(cls.__name__, fields, bases=(cls,)) if own else cls


def _plain(text: str) -> Any:
    from omegaconf import OmegaConf

    return OmegaConf.create(text)


def _composed(cli_args: Any, text: str) -> Any:
    """By AReaL's own reader, from a file, as its trainers read it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "config.yaml")
        file.write_text(text)
        return cli_args.parse_cli_args(["--config", str(file)])[0]


def _start(made: Any, root: str, name: str) -> None:
    """Backends of all engines, and the trainer's ``_validate_cfg``. Raises what they raise."""
    alloc = importlib.import_module("areal.api.alloc_mode")
    for engine in ("actor", "ref", "critic"):
        section = getattr(made, engine, None)
        used = engine != "ref" or name != "PPOConfig" or made.actor.kl_ctl > 0
        if section is not None and used:
            _engine(alloc, section.backend, ("fsdp", "megatron", "archon"))
    if name == "PPOConfig":
        _engine(alloc, made.rollout.backend, ("sglang", "vllm"))
        teacher = made.teacher
        if teacher is not None and getattr(teacher, "engine_type", "train") == "rollout":
            _engine(alloc, teacher.rollout.backend, ("sglang", "vllm"))
        elif teacher is not None:
            train = getattr(teacher, "train", teacher)
            _engine(alloc, train.backend, ("fsdp", "megatron", "archon"))
        _trainer_checks(made, root, alloc)


def _engine(alloc: Any, text: str, engines: tuple[str, ...]) -> None:
    found = alloc.ModelAllocation.from_str(text).backend
    if found not in engines:
        raise ValueError(f"Invalid backend: {found}, expected {', '.join(engines)}")


def _trainer_checks(made: Any, root: str, alloc: Any) -> None:
    source = Path(root, "areal", "trainer", "rl_trainer.py").read_text()
    trainer = next(
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and node.name == "PPOTrainer"
    )
    methods = {node.name: node for node in trainer.body if isinstance(node, ast.FunctionDef)}
    kept = [node for name, node in methods.items() if name.startswith(("_is_", "_validate_cfg"))]
    begin = methods.get("_init_impl", methods["__init__"])
    prepared = []
    for line in begin.body:
        text = ast.unparse(line)
        if text.startswith("self._validate_cfg"):
            break
        wanted = r"self\.(\w+_alloc|_should_\w+) = |if self\._is_v1_awex"
        if re.match(wanted, text) or text == "self.config = config":
            prepared.append(line)
    prepare = ast.parse("def prepare(self, config):\n    pass").body[0]
    assert isinstance(prepare, ast.FunctionDef)
    prepare.body = prepared
    shell = ast.ClassDef("Shell", [], [], [*kept, prepare], [])
    module = ast.fix_missing_locations(ast.Module([shell], []))
    names = vars(alloc) | {"config": made}
    header = "from __future__ import annotations\n"
    namespace: dict[str, Any] = dict(names)
    exec(compile(header + ast.unparse(module), "rl_trainer", "exec"), namespace)
    shell_object = namespace["Shell"]()
    shell_object.prepare(made)
    shell_object._validate_cfg()


def _overrides(lines: list[str]) -> dict[str, Any]:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        OverridesParser.create().parse_overrides(lines)
    except HydraException as error:
        return {"accepted": False, "error": str(error)}
    return {"accepted": True}


def answer(question: Mapping[str, Any]) -> dict[str, Any]:
    """``{"root", "class", "text"}``, ``{"root", "many": [...]}`` or ``{"overrides"}``."""
    warnings.simplefilter("ignore")
    if "overrides" in question:
        return _overrides(question["overrides"])
    root = question["root"]
    cli_args = load_cli_args(root)
    if "many" in question:
        return {"answers": [_judge(cli_args, root, one) for one in question["many"]]}
    return _judge(cli_args, root, question)


if __name__ == "__main__":
    result = answer(json.loads(sys.stdin.read()))
    sys.stdout.write("\n" + json.dumps(result) + "\n")
