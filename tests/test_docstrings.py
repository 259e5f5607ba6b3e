"""Every public function and class says what it takes, what it returns, and shows an example that runs."""

import inspect
import pkgutil
from importlib import import_module

import pytest
from numpydoc.docscrape import NumpyDocString
from numpydoc.validate import validate

import caliope

NAMESPACES = [
    "behaviour",
    "bounds",
    "calibration",
    "checks",
    "clinical",
    "domains",
    "engines",
    "estimators",
    "io",
    "plots",
    "report",
    "sensitivity",
    "uncertainty",
    "values",
    "weights",
]
# Of numpydoc's checks: a summary, every parameter under its own name, what is returned, an example.
WANTED = {"GL08", "SS01", "PR01", "PR02", "PR03", "RT01", "EX01"}


def public():
    """Every public name of the front door, the namespaces and the domains, with what it stands for."""
    domains = [f"domains.{name}" for name in caliope.domains.__all__]
    for module in map(import_module, ["caliope", *(f"caliope.{name}" for name in [*NAMESPACES, *domains])]):
        names = getattr(module, "__all__", None) or [name for name in vars(module) if is_own(module, name)]
        yield from ((f"{module.__name__}.{name}", getattr(module, name)) for name in names)


def is_own(module, name):
    own = getattr(getattr(module, name), "__module__", None) == module.__name__
    return not name.startswith("_") and (own or name.isupper())


CALLABLES = {name: thing for name, thing in public() if inspect.isfunction(thing) or inspect.isclass(thing)}


def fields(thing):
    """Names that the Attributes section of a class documents: enough for results, which users never make."""
    listed = NumpyDocString(inspect.getdoc(thing) or "")["Attributes"]
    return {name.strip() for each in listed for name in each.name.split(",")}


def checks_for(thing):
    if inspect.isclass(thing) and issubclass(thing, Exception):
        return {"GL08", "SS01"}
    if getattr(thing, "_is_protocol", False):
        return WANTED - {"PR01"}
    if inspect.isclass(thing) and set(inspect.signature(thing).parameters) <= fields(thing):
        return WANTED - {"PR01"}
    return WANTED


def test_every_public_module_is_a_namespace():
    modules = {each.name for each in pkgutil.iter_modules(caliope.__path__) if each.name[0] != "_"}
    assert modules == {*NAMESPACES, "cli"}  # whose commands stand on a page of their own


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CALLABLES))
def test_it_says_what_it_takes_and_returns_and_shows_an_example(name):
    wanted = checks_for(CALLABLES[name])
    found = [f"{code} {text}" for code, text in validate(name)["errors"] if code in wanted]
    assert not found, found
