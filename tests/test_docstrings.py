"""Every public function and class says what it takes, what it returns, and shows an example that runs."""

import inspect
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
    yield from ((f"caliope.{name}", getattr(caliope, name)) for name in caliope.__all__)
    for namespace in NAMESPACES:
        module = import_module(f"caliope.{namespace}")
        yield from (
            (f"caliope.{namespace}.{name}", getattr(module, name)) for name in getattr(module, "__all__", ())
        )


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


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CALLABLES))
def test_it_says_what_it_takes_and_returns_and_shows_an_example(name):
    wanted = checks_for(CALLABLES[name])
    found = [f"{code} {text}" for code, text in validate(name)["errors"] if code in wanted]
    assert not found, found
