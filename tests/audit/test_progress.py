"""Progress is shown where somebody looks, and nowhere else."""

import io
import sys
import types

import pytest

from caliope._audit import _progress
from caliope._audit._progress import StageLine, in_notebook, show_stages


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(monkeypatch, progress, stream, *, testing=False):
    monkeypatch.setattr(sys, "stderr", stream)
    if not testing:
        monkeypatch.delenv("PYTEST_CURRENT_TEST")
    with show_stages(progress) as tell:
        if tell is not None:
            tell("fitting")
    return stream.getvalue()


@pytest.mark.parametrize(
    ("progress", "stream", "seen"),
    [
        (None, Terminal, True),
        (None, io.StringIO, False),
        (True, io.StringIO, True),
        (False, Terminal, False),
    ],
)
def test_a_line_is_shown_in_a_terminal_unless_asked_otherwise(monkeypatch, progress, stream, seen):
    assert ("1  fitting ..." in shown(monkeypatch, progress, stream())) is seen


def test_nothing_is_shown_in_a_test_even_with_a_terminal(monkeypatch):
    assert shown(monkeypatch, None, Terminal(), testing=True) == ""


def test_a_notebook_is_recognised_by_its_kernel(monkeypatch):
    assert not in_notebook()
    for kernel in (object(), None):
        shell = types.SimpleNamespace(kernel=kernel)
        monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))  # noqa: B023
        assert in_notebook() is (kernel is not None)


def test_a_function_of_the_user_is_called_instead():
    with show_stages(print) as tell:
        assert tell is print


def test_anything_else_is_refused():
    with pytest.raises(TypeError, match="progress must be True, False"), show_stages("yes"):
        pass


def test_the_line_is_overwritten_and_empty_at_last():
    stream = io.StringIO()
    line = StageLine(stream)
    for name in ("x" * 200, "short"):
        line(name)
    line.clear()
    parts = stream.getvalue().split("\r")
    assert {len(part) for part in parts[1:-1]} == {_progress._WIDTH}
    assert parts[-2].strip() == "" == parts[-1]
