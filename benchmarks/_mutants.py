"""Small changes of one module: which there are, and the code that each of them gives."""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "caliope"
SEED = 20
Change = tuple[str, ast.AST, str, ast.AST | list | object]  # kind, node, field, the new value of the field

COMPARISONS = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
ARITHMETIC = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.FloorDiv: ast.Div, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
PAIRS = [
    ("min", "max"),
    ("any", "all"),
    ("argmin", "argmax"),
    ("minimum", "maximum"),
    ("floor", "ceil"),
    ("nanmin", "nanmax"),
]
OTHER = {a: b for pair in PAIRS for a, b in (pair, pair[::-1])}
DROPPED = {"abs", "sqrt", "log", "exp", "log1p", "expm1", "sorted", "unique", "cumsum", "round"}


@dataclass(frozen=True)
class Mutant:
    """One change of one module."""

    path: Path
    name: str
    kind: str
    line: int
    lines: tuple[str, ...]  # file:function:offset of the lines changed; none at the top of the module
    users: tuple[str, ...]  # then the functions that name what is changed; none for any of the module
    code: Callable[[], CodeType]

    @property
    def module(self) -> str:
        return str(self.path.relative_to(SOURCE))

    def used_in(self, line: str) -> bool:
        """Whether what is changed at the top is used in the function of a line."""
        module, function, _ = line.split(":")
        return module == self.module and (not self.users or not {*function.split(".")}.isdisjoint(self.users))

    @property
    def order(self) -> str:
        return hashlib.sha256(f"{SEED} {self.name}".encode()).hexdigest()


def changes_of(node: ast.AST) -> Iterator[Change]:
    """The small changes of one node, as new values of one of its fields."""
    match node:
        case ast.Compare(ops=[op]):
            for other in COMPARISONS[type(op)]:
                yield "comparison", node, "ops", [other()]
        case ast.BoolOp(op=op):
            yield "and/or", node, "op", ast.Or() if isinstance(op, ast.And) else ast.And()
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in ARITHMETIC and not has_text(node):
            yield "arithmetic", node, "op", ARITHMETIC[type(op)]()
        case ast.Constant(value=bool() as value):
            yield "constant", node, "value", not value
        case ast.Constant(value=int() as value):
            yield "constant", node, "value", value + 1
        case ast.Constant(value=float() as value):
            yield "constant", node, "value", 2 * value or 1.0
        case ast.IfExp():
            yield "branch taken", node, "test", ast.Constant(value=True)
            yield "branch taken", node, "test", ast.Constant(value=False)
        case ast.If(test=test) if ast.unparse(test) != "TYPE_CHECKING":
            yield "branch taken", node, "test", ast.Constant(value=True)
            yield "branch taken", node, "test", ast.Constant(value=False)
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
            yield "return None", node, "value", ast.Constant(value=None)
        case ast.Slice():
            for field in ("lower", "upper"):
                if getattr(node, field) is not None:
                    yield "slice", node, field, None
        case ast.Call(func=ast.Name(id=name)) if name in OTHER:
            yield "min/max", node, "func", ast.Name(id=OTHER[name], ctx=ast.Load())
        case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in OTHER:
            yield "min/max", node, "func", ast.Attribute(value=value, attr=OTHER[name], ctx=ast.Load())


def replacements_of(field: str, child: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What can stand in place of a whole node."""
    match child:
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield "not/minus dropped", operand
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[only], keywords=[]) if (
            name in DROPPED
        ):
            yield "function dropped", only
        case ast.Raise() | ast.Expr(value=ast.Call()) | ast.AugAssign():
            yield "statement dropped", ast.Pass()
        case ast.BoolOp(op=op, values=values):
            for dropped in values:
                rest = [value for value in values if value is not dropped]
                yield "operand dropped", rest[0] if len(rest) == 1 else ast.BoolOp(op=op, values=rest)


def has_text(node: ast.AST) -> bool:
    """Whether texts are put together here."""
    parts = [ast.unparse(part) for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
    return any(part.lstrip("f")[:1] in "'\"" for part in parts)


def walk(node: ast.AST, inside: tuple[ast.AST, ...]) -> Iterator[tuple[Change, tuple[ast.AST, ...]]]:
    """Every change below a node with the nodes around it; nothing in annotations, texts of errors, decorators."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "exc", "cause", "type_params"):
            continue
        for number, child in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(child, ast.AST):
                continue
            for kind, new in replacements_of(field, child):
                whole = [*value[:number], new, *value[number + 1 :]] if isinstance(value, list) else new
                yield (kind, node, field, whole), (*inside, node, child)
            for change in changes_of(child):
                yield change, (*inside, node, child)
            yield from walk(child, (*inside, node))


def mutants_of(path: Path) -> Iterator[Mutant]:
    """All mutants of a module, in the order of its lines; each has a name of its own."""
    tree, seen = ast.parse(path.read_text()), Counter[str]()
    module = str(path.relative_to(SOURCE))
    for change, inside in list(walk(tree, ())):
        kind, node, field, new = change
        scopes = [x for x in inside if isinstance(x, ast.FunctionDef | ast.ClassDef | ast.Lambda)]
        functions = [x for x in scopes if isinstance(x, ast.FunctionDef)]
        before = text_of(inside[-1])
        old = put(node, field, new)
        after = (
            text_of(inside[-1])
            if field not in ("body", "orelse", "finalbody") and inside[-2] is not node
            else ""
        )
        if inside[-2] is node:
            after = "pass" if kind == "statement dropped" else text_of(new_child(new, old))
        setattr(node, field, old)
        where = ".".join(x.name for x in scopes if hasattr(x, "name"))
        name = f"{module} {where or 'top'}: {kind}: {before} -> {after}"
        seen[name] += 1
        name += f" ({seen[name]})" if seen[name] > 1 else ""
        body = functions and in_body(functions[0], inside)
        lines = lines_of(module, scopes, [x for x in inside if isinstance(x, ast.stmt)][-1]) if body else ()
        users = () if lines else users_of(tree, inside)
        yield Mutant(
            path, name, kind, inside[-1].lineno, lines, users, compiler(path, tree, node, field, new)
        )


def text_of(node: object) -> str:
    """A node in one short line."""
    shown = ast.Expr(value=node.test) if isinstance(node, ast.If) else node
    text = " ".join(ast.unparse(shown).split()) if isinstance(shown, ast.AST) else str(shown)
    return text if len(text) < 90 else text[:50] + "..." + text[-37:]


def new_child(new: object, old: object) -> object:
    """What is new in the value of a field."""
    return next(a for a, b in zip(new, old, strict=True) if a is not b) if isinstance(new, list) else new


def put(node: ast.AST, field: str, new: object) -> object:
    """Set a field; what it was before."""
    old = getattr(node, field)
    setattr(node, field, new)
    return old


def compiler(path: Path, tree: ast.Module, node: ast.AST, field: str, new: object) -> Callable[[], CodeType]:
    """The code of the module with one field changed."""

    def made() -> CodeType:
        old = put(node, field, new)
        code = compile(ast.fix_missing_locations(tree), str(path), "exec")
        setattr(node, field, old)
        return code

    return made


def in_body(function: ast.FunctionDef, inside: tuple[ast.AST, ...]) -> bool:
    """Whether a node is in the body of the outermost function, not among its defaults."""
    return inside[inside.index(function) + 1] in function.body if function is not inside[-1] else False


def lines_of(module: str, scopes: list[ast.AST], node: ast.stmt) -> tuple[str, ...]:
    """The lines of a statement as the tracer writes them, relative to its function; of a block the first."""
    names, found = [], []
    for scope in scopes:
        names.append(getattr(scope, "name", "<lambda>"))
        if not isinstance(scope, ast.ClassDef):
            first = min([scope.lineno, *(x.lineno for x in getattr(scope, "decorator_list", []))])
            last = node.body[0].lineno - 1 if hasattr(node, "body") else node.end_lineno
            found += [
                f"{module}:{'.'.join(names)}:{line - first}"
                for line in range(node.lineno, max(node.lineno, last) + 1)
            ]
            names.append("<locals>")
    return tuple(found)


def users_of(tree: ast.Module, inside: tuple[ast.AST, ...]) -> tuple[str, ...]:
    """The functions around a default, and those that name what is assigned at the top."""
    targets = {x.id for node in inside for x in getattr(node, "targets", []) if isinstance(x, ast.Name)}
    named = [x.name for x in inside if isinstance(x, ast.FunctionDef)]
    for function in [x for x in ast.walk(tree) if isinstance(x, ast.FunctionDef)]:
        if targets & {x.id for x in ast.walk(function) if isinstance(x, ast.Name)}:
            named.append(function.name)
    return tuple(named)
