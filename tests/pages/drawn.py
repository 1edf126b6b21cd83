"""What a page draws, followed to where it comes from: foreign text has been through ``plain``.

Notable:
- an expression is safe where it is written in the program, a number, or what ``plain`` (in HTML:
  ``html.escape``) gives; a name is as safe as all that is bound to it
- ``Markdown`` and ``Html`` on a parameter or a result are promises: whoever makes the value is
  held to them
- a number in a form such as ``{n:,}`` is safe: a text would be an error there
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

ESCAPES = {"Markdown": {"plain"}, "Html": {"escape", "esc"}}
_DRAWN = {
    1: "markdown caption error warning info success title header subheader toast spinner expander "
    "popover status button download_button link_button form_submit_button checkbox toggle "
    "selectbox multiselect number_input text_input text_area slider file_uploader tabs",
    2: "progress segmented_control radio pills",
    3: "metric",
    0: "page_link",
}
SINKS = {name: count for count, names in _DRAWN.items() for name in names.split()}
"""How many of the first arguments of a call are read as Markdown, by its name."""
_KEYWORDS = ("label", "body", "help", "icon", "text")
_FORMED = ("segmented_control", "radio", "pills")
"""What reads its options, and the ``format_func`` that writes them, as Markdown."""
FORBIDDEN = {"write", "table", "exception", "latex", "unsafe_allow_html", "link_button"}
"""These read whatever they are given in their own way, or lead away."""
_BUILT = {"bind", "widget", "kept", "_bound", "_field", "table_options"}
"""What makes keyword arguments for a widget: keys, and labels of our own."""
_NUMBERS = {"len", "int", "float", "round", "sum", "abs", "bool"}
_WRITES = {"number", "rounded", "many", "ratio", "percent", "seconds", "milliseconds", "gib"}
_SHAPES = {"list", "tuple", "sorted", "reversed", "dict", "zip", "enumerate", "str", "items"}
_SHAPES |= {"values", "keys", "strip", "rstrip", "capitalize", "lower", "upper", "removeprefix"}
_SHAPES |= {"removesuffix", "copy", "get", "join", "replace", "index", "__getitem__", "splitlines"}
_PROGRAM = ("tuning.", "packing.", "pages.")

_NONE: frozenset[ast.expr] = frozenset()

Scope = ast.FunctionDef | ast.Lambda | ast.Module


@dataclass
class Module:
    """One file: its scopes, what names are bound to in each, what it imports."""

    path: Path
    tree: ast.Module = field(init=False)

    def __post_init__(self) -> None:
        self.tree = ast.parse(self.path.read_text("utf-8"))
        for parent in ast.walk(self.tree):
            for child in ast.iter_child_nodes(parent):
                child.parent = parent  # type: ignore[attr-defined]

    @cached_property
    def imported(self) -> dict[str, str]:
        """Where a name comes from, for those that are taken from another module of ours."""
        return {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(_PROGRAM)
            for alias in node.names
            if node.module
        }

    @cached_property
    def functions(self) -> list[ast.FunctionDef]:
        found = [node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef)]
        for function in found:
            function.stem = self.path.stem  # type: ignore[attr-defined]
        return found

    @cached_property
    def bound(self) -> dict[Scope, dict[str, list[ast.expr | None]]]:
        """What each name of a scope is bound to; None where that cannot be followed."""
        bound: dict[Scope, dict[str, list[ast.expr | None]]] = {}
        for node in ast.walk(self.tree):
            for target, value in _bindings(node):
                for name, part in _parts(target, value):
                    bound.setdefault(scope_of(node), {}).setdefault(name, []).append(part)
        return bound


def scope_of(node: ast.AST) -> Scope:
    while not isinstance(node, Scope):
        node = node.parent  # type: ignore[attr-defined]
    return node


def _bindings(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    match node:
        case ast.Assign(targets=targets, value=value):
            yield from ((target, value) for target in targets)
        case ast.AnnAssign(target=target, value=value) | ast.AugAssign(target=target, value=value):
            yield target, value
        case ast.NamedExpr(target=target, value=value):
            yield target, value
        case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
            if isinstance(value, ast.Tuple | ast.List):
                yield from ((target, each) for each in value.elts)
            else:
                yield target, value
        case ast.withitem(optional_vars=ast.expr() as target):
            yield target, None
        case ast.ExceptHandler(name=str(name)):
            yield ast.Name(name), None


def _parts(target: ast.expr, value: ast.expr | None) -> Iterator[tuple[str, ast.expr | None]]:
    """Names of a target, each with the part of the value that it gets, as far as that is seen."""
    match target, value:
        case ast.Name(id=name), _:
            yield name, value
        case ast.Starred(value=inner), _:
            yield from _parts(inner, value)
        case (ast.Tuple(elts=targets), ast.Call(func=ast.Name(id="enumerate"), args=[inner, *_])):
            yield from _parts(targets[0], ast.Constant(0))
            yield from _parts(targets[1], inner)
        case ast.Tuple(elts=targets), (
            ast.Call(func=ast.Name(id="zip"), args=values) | ast.Tuple(elts=values)
        ) if len(targets) == len(values):
            for inner, part in zip(targets, values, strict=True):
                yield from _parts(inner, part)
        case ast.Tuple(elts=targets), _:
            for inner in targets:
                yield from _parts(inner, value)


@dataclass
class Program:
    """The files of ``pages``; ``wrong`` says what is drawn and was not made safe."""

    modules: list[Module]

    @classmethod
    def of(cls, folder: Path) -> Program:
        return cls([Module(path) for path in sorted(folder.rglob("*.py"))])

    def called(self, function: ast.expr, module: Module) -> list[ast.FunctionDef]:
        """What a call may run: a function of this file or of the module named, else any method."""
        match function:
            case ast.Name(id=name):
                own = [f for f in module.functions if f.name == name]
                return own or [f for f in self._functions if f.name == name]
            case ast.Attribute(value=ast.Name(id=of), attr=name) if of in module.imported:
                stem = module.imported[of].rpartition(".")[2]
                return [f for f in self._functions if f.name == name and f.stem == stem]  # type: ignore[attr-defined]
            case ast.Attribute(attr=name):
                methods = [f for f in self._functions if isinstance(f.parent, ast.ClassDef)]  # type: ignore[attr-defined]
                return [f for f in methods if f.name == name]
        return []

    @cached_property
    def _functions(self) -> list[ast.FunctionDef]:
        return [f for module in self.modules for f in module.functions]

    def promises(self, function: ast.expr, kind: str, module: Module) -> bool:
        found = self.called(function, module)
        return bool(found) and all(_promise(f.returns) == kind for f in found)

    def wrong(self) -> list[str]:
        found = [
            f"{module.path.parent.name}/{module.path.name}:{at.lineno} {ast.unparse(at)[:70]}"
            for module in self.modules
            if module.path.name != "text.py"
            for node in ast.walk(module.tree)
            for kind, at in self._asked(node, module)
            if not self.safe(at, kind, module)
        ]
        return sorted(set(found))

    def _asked(self, node: ast.AST, module: Module) -> Iterator[tuple[str, ast.expr]]:
        """What must be safe of a node, and for which kind of markup."""
        match node:
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
                yield from self._asked_of_call(node, name, module)
            case ast.Attribute(value=ast.Name(id="st"), attr=name) if name in SINKS:
                parent = node.parent  # type: ignore[attr-defined]
                if not (isinstance(parent, ast.Call) and parent.func is node):
                    yield "Markdown", node  # handed over: what it will draw is not seen
            case ast.Return(value=ast.expr() as value):
                scope = scope_of(node)
                if isinstance(scope, ast.FunctionDef) and (kind := _promise(scope.returns)):
                    yield kind, value

    def _asked_of_call(
        self, node: ast.Call, name: str, module: Module
    ) -> Iterator[tuple[str, ast.expr]]:
        method = isinstance(node.func, ast.Attribute)
        if (method and name in FORBIDDEN) or any(k.arg in FORBIDDEN for k in node.keywords):
            yield "Markdown", node.func
        if method and name == "html":
            yield from (("Html", one) for one in node.args)
        elif method and name in SINKS:
            formed = any(k.arg == "format_func" for k in node.keywords)
            for nth, one in enumerate(node.args[: SINKS[name]]):
                counted = name != "progress" or nth == 1
                if counted and not (nth == 1 and formed):
                    yield "Markdown", one
            for keyword in node.keywords:
                if (
                    keyword.arg in _KEYWORDS
                    or (keyword.arg == "format_func" and name in _FORMED)
                    or (keyword.arg is None and not _built(keyword.value))
                ):
                    yield "Markdown", keyword.value
        else:
            by_name = {k.arg: k.value for k in node.keywords}
            for function in self.called(node.func, module):
                for nth, argument in enumerate(_arguments(function)):
                    value = node.args[nth] if nth < len(node.args) else by_name.get(argument.arg)
                    if value is not None and (kind := _promise(argument.annotation)):
                        yield kind, value

    def safe(
        self, node: ast.expr | None, kind: str, module: Module, seen: frozenset[ast.expr] = _NONE
    ) -> bool:
        """Whether a value holds nothing foreign that could act in this kind of markup."""
        if node is None or node in seen:
            return node is not None  # a name bound to what is made of itself
        seen |= {node}

        def safe(*nodes: ast.expr | None) -> bool:
            return all(self.safe(one, kind, module, seen) for one in nodes)

        match node:
            case ast.Constant() | ast.Compare() | ast.UnaryOp():
                return True
            case ast.BinOp(op=ast.Sub() | ast.Div() | ast.FloorDiv() | ast.Pow()):
                return True  # none of these makes a text
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                return safe(left) or safe(right)
            case ast.BinOp(left=left, op=ast.Add() | ast.BitOr(), right=right):
                return safe(left, right)
            case ast.FormattedValue(value=value, format_spec=spec):
                return _numeric(spec) or (node.conversion == -1 and safe(value))
            case ast.IfExp(body=body, orelse=orelse):
                return safe(body, orelse)
            case (
                ast.JoinedStr(values=values)
                | ast.BoolOp(values=values)
                | ast.List(elts=values)
                | ast.Tuple(elts=values)
            ):
                return safe(*values)
            case ast.Dict(keys=keys, values=values):
                return safe(*(key for key in keys if key is not None), *values)
            case ast.Attribute(attr=name) if name.isupper():
                return True  # a table of the program
            case (
                ast.Starred(value=value)
                | ast.Subscript(value=value)
                | ast.Lambda(body=value)
                | ast.ListComp(elt=value)
                | ast.GeneratorExp(elt=value)
                | ast.Attribute(value=value, attr="__getitem__")
            ):
                return safe(value)
            case ast.Name(id=name):
                return safe(*self._bound(node, kind, module)) or self.promises(node, kind, module)
            case ast.Call(func=ast.Attribute(value=value, attr=name), args=args):
                if name in ESCAPES[kind] or self.promises(node.func, kind, module):
                    return True
                return name in _SHAPES and safe(value, *args[name == "get" :])
            case ast.Call(func=ast.Name(id=name), args=args):
                if name in ESCAPES[kind] | _NUMBERS or self.promises(node.func, kind, module):
                    return True
                if module.imported.get(name, "").startswith("tuning.plan.numbers."):
                    return name in _WRITES and safe(*args[1:])
                return name in _SHAPES and (safe(*args) or self._safe_keys(args[0], kind, module))
        return False

    def _safe_keys(self, node: ast.expr, kind: str, module: Module) -> bool:
        bound = self._bound(node, kind, module) if isinstance(node, ast.Name) else [node]
        return all(
            isinstance(one, ast.Dict) and all(self.safe(key, kind, module) for key in one.keys)
            for one in bound
        )

    def _bound(self, name: ast.Name, kind: str, module: Module) -> list[ast.expr | None]:
        """What a name may stand for; None where that cannot be told."""
        scope = scope_of(name)
        while True:
            for argument in _arguments(scope):
                if argument.arg == name.id:
                    said = ast.unparse(argument.annotation) if argument.annotation else ""
                    held = kind in said or said in ("int", "float", "bool")
                    return [ast.Constant("") if held else None]
            if found := module.bound.get(scope, {}).get(name.id):
                return found
            if isinstance(scope, ast.Module):
                table = name.id.isupper() and name.id in module.imported  # of the program
                return [ast.Constant("") if table else None]
            scope = scope_of(scope.parent)  # type: ignore[union-attr]


def _arguments(scope: Scope) -> list[ast.arg]:
    if isinstance(scope, ast.Module):
        return []
    given = scope.args
    more = [given.vararg] if given.vararg else []
    return [one for one in (*given.args, *more, *given.kwonlyargs) if one.arg != "self"]


def _promise(annotation: ast.expr | None) -> str:
    said = ast.unparse(annotation) if annotation is not None else ""
    return next((kind for kind in ESCAPES if kind in said), "")


def _numeric(spec: ast.expr | None) -> bool:
    """Whether only a number can be written in a form."""
    match spec:
        case ast.JoinedStr(values=[ast.Constant(value=str(form))]):
            try:
                format("", form)
            except ValueError:
                return True
    return False


def _built(value: ast.expr) -> bool:
    match value:
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
            return name in _BUILT
    return False
