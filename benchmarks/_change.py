"""Put a mutant into a package that is loaded: no file is touched."""

from __future__ import annotations

import gc
import sys
from types import CodeType, FunctionType, ModuleType

import numpy as np

from benchmarks._mutants import SOURCE, Mutant

VALUES = int | float | tuple | dict | frozenset | set | str | np.ndarray


def codes_in(code: CodeType) -> dict[tuple[str, int], CodeType]:
    """Every code object inside another, by name and first line."""
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return {(code.co_qualname, code.co_firstlineno): code} | {
        k: v for each in inner for k, v in codes_in(each).items()
    }


def functions_in_use() -> list[FunctionType]:
    """Every function there is, told by type alone: some objects warn when they are asked for their class."""
    return [each for each in gc.get_objects() if type(each) is FunctionType]


def change(mutant: Mutant, functions: list[FunctionType]) -> None:
    """Give the functions that are in use the code of the mutant; at the top of a module, its values too."""
    code, path = mutant.code(), str(mutant.path)
    new = codes_in(code)
    inside = [f for f in functions if f.__code__.co_filename == path]
    for function in inside:
        key = (function.__code__.co_qualname, function.__code__.co_firstlineno)
        if key in new:
            function.__code__ = new[key]
    if mutant.lines:
        return
    name = ".".join(mutant.path.relative_to(SOURCE.parent).with_suffix("").parts)
    before, fresh = sys.modules[name], ModuleType(name)
    fresh.__dict__.update({"__file__": path, "__package__": before.__package__})
    sys.modules[name] = fresh  # dataclasses look their module up
    exec(code, fresh.__dict__)
    sys.modules[name] = before
    made = {f.__code__: f for f in functions_in_use() if f.__globals__ is fresh.__dict__}
    for function in inside:
        if (other := made.get(function.__code__)) is not None:
            function.__defaults__, function.__kwdefaults__ = other.__defaults__, other.__kwdefaults__
    for key, value in fresh.__dict__.items():
        old = before.__dict__.get(key)
        if isinstance(value, type) and isinstance(old, type) and value.__module__ == name:
            take_generated(value, old, path)
        if isinstance(
            value, int | float | tuple | dict | frozenset | set | str | np.ndarray
        ) and not key.startswith("__"):
            for module in list(sys.modules.values()):
                if getattr(module, "__dict__", {}).get(key) is old:
                    setattr(module, key, value)


def take_generated(fresh: type, old: type, path: str) -> None:
    """Give a dataclass the methods that were written for it anew: the defaults and what is shown are in them."""
    for method in ("__init__", "__repr__"):
        code = getattr(fresh.__dict__.get(method), "__code__", None)
        if code is not None and code.co_filename != path and method in old.__dict__:
            setattr(old, method, fresh.__dict__[method])
