"""Progress and errors at the terminal."""

import io
import re

import pytest
from click.testing import CliRunner

from caliope.cli import _console, main
from caliope.cli._console import show_progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_in_a_terminal_one_bar_shows_the_stage_the_count_and_the_time_left(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(_console.sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with show_progress(quiet=False) as display:
        display("reading [the] log")
        display.expect(4)
        display("fitting")
        display.bar.refresh()
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    assert "fitting" in shown
    assert "1/4" in shown
    assert "left:" in shown


def test_elsewhere_plain_lines_show_the_stage_and_the_count(capsys):
    with show_progress(quiet=False) as display:
        display("reading the log")
        display.expect(12)
        display("fitting")
    first, second = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r" +\d\.\d s +1  reading the log \.\.\.", first)
    assert re.fullmatch(r" +\d\.\d s +2/12  fitting \.\.\.", second)


def test_no_stage_is_numbered_beyond_the_last_one(capsys, monkeypatch):
    with show_progress(quiet=False) as display:
        display("reading the log")
        display.expect(2)
        display("fitting")
        display("fitting again")
    assert "  3/3  fitting again" in capsys.readouterr().err
    screen = Terminal()
    monkeypatch.setattr(_console.sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with show_progress(quiet=False) as display:
        display.expect(1)
        display("fitting")
        display("fitting again")
        assert (display.bar.tasks[0].completed, display.bar.tasks[0].total) == (1, 2)


def test_a_missing_file_is_named_before_what_else_is_missing(tmp_path):
    result = CliRunner().invoke(main, ["evaluate", str(tmp_path / "nofile.csv")])
    assert result.exit_code == 2
    assert re.search(
        r"2 mistakes: no file matches '.*nofile\.csv'.*; the target policy is missing", result.stderr
    )


def test_quiet_shows_nothing(capsys):
    with show_progress(quiet=True) as display:
        display.expect(1)
        display("reading the log")
    assert capsys.readouterr().err == ""


def test_what_is_unexpected_is_said_to_be(monkeypatch):
    def fail(code):
        raise RuntimeError("two\nlines")

    monkeypatch.setattr("caliope.checks.explain", fail)
    result = CliRunner().invoke(main, ["explain", "B104"])
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: RuntimeError: two lines. This is unexpected; CALIOPE_TRACEBACK=1")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["folder", "nowhere/log.csv"])
def test_an_output_file_that_cannot_be_written_is_refused_first(tmp_path, name):
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match=r"is a folder|does not exist"):
        _console.check_writable(tmp_path / name)
