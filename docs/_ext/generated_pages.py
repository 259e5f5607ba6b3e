"""Pages that are made from the package: the API, the commands, the settings of a study, and the keys of a report.

Before the sources are read, one page per namespace is written to ``docs/api``, which is not committed. Three
directives describe what the package declares once, and names of the package in other pages become links.
"""

from __future__ import annotations

import inspect
import pkgutil
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import click
from docutils import nodes
from docutils.statemachine import StringList
from sphinx import addnodes
from sphinx.pycode import ModuleAnalyzer
from sphinx.transforms import SphinxTransform
from sphinx.util.docutils import SphinxDirective

import caliope
from caliope import cli
from caliope.cli._config import SETTINGS, Study

API = "api"
# The front door, in the order in which a reader needs it. A name that is in no group stands in the last one.
GROUPS = {
    "The audit": "audit prepare_audit compare Audit About",
    "Data": "read_table Trajectories",
    "Policies": "Policy TabularPolicy UniformPolicy GreedyPolicy mix tilt practice action_probabilities SupportError",
    "The behaviour policy": "fit_behaviour default_model NeighbourPolicy recalibrate compare_policies",
    "Evidence and values": "gather Evidence fitted_q cross_fitted_q CaliopeWarning",
    "Estimators": "monte_carlo ois step_is wis step_wis phis phwis step_phwis dm dr wdr phwdr per_horizon difference",
    "Results": "estimate bootstrap Estimate Interval Table Finding",
}


# -- the API --


@cache
def namespaces() -> tuple[str, ...]:
    """Names of the public modules, those of the domains among them."""
    modules = sorted(each.name for each in pkgutil.iter_modules(caliope.__path__) if each.name[0] != "_")
    domains = [f"domains.{name}" for name in sorted(caliope.domains.__all__)]
    return tuple(f"caliope.{name}" for name in [*modules, *domains] if name not in ("cli", "domains"))


@cache
def public_names(module: str) -> tuple[str, ...]:
    """Names of a public module: those it declares, else its own functions, classes and constants."""
    found = vars(import_module(module))
    declared = getattr(import_module(module), "__all__", None)
    if declared is None:
        declared = [name for name, thing in found.items() if _is_own(name, thing, module)]
    return tuple(name for name in declared if not isinstance(_get(module, name), ModuleType))


def _is_own(name: str, thing: Any, module: str) -> bool:
    own = getattr(thing, "__module__", None) == module and callable(thing)
    return not name.startswith("_") and (own or name.isupper())


def is_constant(module: str, name: str) -> bool:
    """Whether a name stands for data: these are described on the page of their module."""
    return not callable(_get(module, name)) or name.isupper()


def api_pages() -> dict[str, str]:
    """The pages by file name, in reStructuredText, as autosummary reads it."""
    pages = {"caliope.rst": _front_page()}
    pages |= {f"{module}.rst": _module_page(module) for module in namespaces()}
    listed = "\n".join(f"   {Path(name).stem}" for name in pages)
    pages["index.rst"] = f"{_title('API')}{_INTRODUCTION}\n.. toctree::\n   :maxdepth: 1\n\n{listed}\n"
    return pages


_INTRODUCTION = """
What most analyses need is at the front door, ``import caliope as cal``. The rest is in namespaces, which are loaded
when they are used. Every function says what it takes and returns, and shows an example that is run in the tests.
"""


def _get(module: str, name: str) -> Any:
    return getattr(import_module(module), name)


def _title(text: str, line: str = "=") -> str:
    return f"{text}\n{line * len(text)}\n"


def _summary(module: str, names: list[str]) -> str:
    listed = "\n".join(f"   {name}" for name in names)
    return f".. currentmodule:: {module}\n\n.. autosummary::\n   :toctree: generated\n\n{listed}\n"


def _front_page() -> str:
    names, groups = public_names("caliope"), {title: text.split() for title, text in GROUPS.items()}
    rest = sorted(set(names).difference(*groups.values()))
    parts = [_title("caliope"), "``import caliope as cal``\n"]
    for title, group in (groups | ({"More": rest} if rest else {})).items():
        parts += [_title(title, "-"), _summary("caliope", [name for name in group if name in names])]
    return "\n".join(parts)


def _module_page(module: str) -> str:
    """A page with what a module says of itself, its functions and classes, and its constants."""
    places = {name: place_of(f"{module}.{name}".removeprefix("caliope.")) for name in public_names(module)}
    elsewhere = [place for name, place in places.items() if place != f"{module}.{name}"]
    own = [name for name, place in places.items() if place not in elsewhere]
    constants = [name for name in own if is_constant(module, name)]
    parts = [
        _title(module),
        f".. module:: {module}\n",
        inspect.cleandoc(import_module(module).__doc__ or ""),
        "",
    ]
    listed = [name for name in own if name not in constants]
    parts += [_summary(module, listed)] if listed else []
    if elsewhere:
        parts += [f"Also here, from the front door: {', '.join(f':obj:`{place}`' for place in elsewhere)}.\n"]
    if constants:
        parts += [_title("Constants", "-"), *_describe(module, constants)]
    return "\n".join(parts)


def _describe(module: str, names: list[str]) -> list[str]:
    """Constants with the text that follows them in the source; the value itself may be a large array."""
    texts = ModuleAnalyzer.for_module(module).find_attr_docs()
    return [f".. py:data:: {name}\n\n   {' '.join(texts.get(('', name), []))}\n" for name in names]


def _write_api(app: Any, config: Any) -> None:
    folder = Path(app.srcdir) / API
    folder.mkdir(exist_ok=True)
    for name, text in api_pages().items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    config.autosummary_generate = [f"{API}/{name}" for name in api_pages()]


# -- directives that describe what is declared once --


class Described(SphinxDirective):
    """A directive whose content is Markdown made by :meth:`lines`."""

    def lines(self) -> list[str]:
        """Return the Markdown."""
        raise NotImplementedError

    def run(self) -> list[nodes.Node]:
        """Parse it where the directive stands."""
        node = nodes.container()
        lines = StringList(self.lines(), source="generated")
        self.state.nested_parse(lines, self.content_offset, node)
        return node.children


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


class Commands(Described):
    """The options of one command: ``{command} evaluate``."""

    required_arguments = 1

    def lines(self) -> list[str]:
        """Return what its help says."""
        return command_lines(self.arguments[0], cli.main.commands[self.arguments[0]])


def command_lines(name: str, command: click.Command) -> list[str]:
    """Usage, text and options of a command and of those below it, in Markdown."""
    context = click.Context(command, info_name=name, help_option_names=["-h", "--help"])
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [
        "```text",
        f"caliope {name} {usage}",
        "```",
        "",
        *inspect.cleandoc(command.help or "").splitlines(),
        "",
    ]
    records = [each.get_help_record(context) for each in command.params if isinstance(each, click.Option)]
    shown = [record for record in records if record]
    lines += ["| option | what it is |", "|---|---|"] * bool(shown)
    lines += [f"| `{option.replace('|', ' or ')}` | {_escape(text)} |" for option, text in shown]
    for below, each in getattr(command, "commands", {}).items():
        lines += ["", *command_lines(f"{name} {below}", each)]
    return lines


def _help_of(command: click.Command) -> list[str]:
    """The text of a command, its options as code."""
    return re.sub(r"(?<!\w)(--[a-z][a-z-]*)", r"`\1`", inspect.cleandoc(command.help or "")).splitlines()


class StudySettings(Described):
    """The keys of a study file, from the settings of an evaluation."""

    def lines(self) -> list[str]:
        """Return one row per key."""
        return study_lines()


_TITLES = {
    None: "The log itself",
    "log": "Columns of the log",
    "target": "The policy and the question",
    "about": "Names for the report",
    "fit": "Models and chance",
    "parts": "Logs that are read in parts",
    "output": "What is written",
}


def study_lines() -> list[str]:
    """Tables of the keys of a study file by group, in Markdown."""
    lines = []
    for group, title in _TITLES.items():
        lines += [f"**{title}**", "", "| key | holds | what it is |", "|---|---|---|"]
        for name in Study.__dataclass_fields__:
            setting = SETTINGS[name]
            if setting.group == group:
                holds = setting.kind.metavar or "true or false"
                lines.append(f"| `{name}` | {_escape(holds)} | {_escape(setting.help)} |")
        lines.append("")
    return lines


def slug_of(heading: str) -> str:
    """Anchor of a heading: that of GitHub, and the code alone for a finding (``findings.md#b104``)."""
    finding = re.match(r"([A-Z]\d{3}) [a-z0-9-]+$", heading)
    return finding[1].lower() if finding else re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


# -- names of the package in other pages become links --

NAMED = re.compile(r"(?:cal|caliope)\.([A-Za-z_][\w.]*)(?:\(.*)?$", flags=re.DOTALL)


@cache
def place_of(dotted: str) -> str | None:
    """The page name of something public: ``wdr`` is ``caliope.wdr``; None if there is none."""
    module, _, name = f"caliope.{dotted}".rpartition(".")
    if f"caliope.{dotted}" in namespaces():
        return f"caliope.{dotted}"
    if module not in ["caliope", *namespaces()] or name not in public_names(module):
        return None
    thing = _get(module, name)
    front = name in public_names("caliope") and getattr(caliope, name) is thing
    return f"caliope.{name}" if front else f"{module}.{name}"


def _find_missing(app: Any, env: Any, node: Any, content: nodes.Node) -> nodes.Node | None:
    """Resolve a name that a docstring uses without its module, or by another of its places."""
    name, _, member = node.get("reftarget", "").removeprefix("caliope.").partition(".")
    wanted = f".{node.get('reftarget', '').removeprefix('caliope.')}"
    known = [f"{module}.{name}" for module in ("caliope", *namespaces()) for name in public_names(module)]
    places = {place_of(each.removeprefix("caliope.")) for each in known if each.endswith(wanted)}
    if not places and member:  # of a class
        classes = {place_of(each.removeprefix("caliope.")) for each in known if each.endswith(f".{name}")}
        places = {f"{place}.{member}" for place in classes}
    if node.get("refdomain") != "py" or len(places) != 1:
        return None
    return env.domains.python_domain.resolve_xref(
        env, node["refdoc"], app.builder, "obj", places.pop(), node, content
    )


class LinkNames(SphinxTransform):
    """Turn ``cal.audit`` in running text into a link to its page."""

    default_priority = 5

    def apply(self, **options: Any) -> None:
        """Look at every literal that is not part of a title or a link."""
        for literal in [*self.document.findall(nodes.literal)]:
            found = NAMED.match(literal.astext())
            inside = isinstance(literal.parent, (nodes.reference, nodes.title, addnodes.pending_xref))
            place = place_of(found[1]) if found and not inside else None
            if place is None:
                continue
            link = addnodes.pending_xref(
                "", refdomain="py", reftype="obj", reftarget=place, refexplicit=True, refwarn=False
            )
            link["refdoc"] = self.env.docname
            literal.replace_self(link)
            link += literal


def setup(app: Any) -> dict[str, bool]:
    """Write the pages, and add the directives and links."""
    app.connect("config-inited", _write_api)  # before the sources are looked for
    app.connect("missing-reference", _find_missing)
    app.add_directive("command", Commands)
    app.add_directive("study-settings", StudySettings)
    app.add_transform(LinkNames)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
