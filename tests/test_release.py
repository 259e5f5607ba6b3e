"""What a release promises: one version everywhere, a closed changelog, and nothing on the way in that only Unix has."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import caliope

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
UNIX_ONLY = ("fcntl", "grp", "pwd", "resource", "termios", "tty", "pty", "readline", "curses", "syslog")


def test_the_version_is_the_same_everywhere():
    citation = (ROOT / "CITATION.cff").read_text()
    changelog = (ROOT / "CHANGELOG.md").read_text()
    newest, date = re.search(r"^## (\d[\w.]*) \((\d{4}-\d\d-\d\d)\)$", changelog, flags=re.MULTILINE).groups()
    assert PROJECT["version"] == caliope.__version__ == newest
    assert re.search(r"^version: (.+)$", citation, flags=re.MULTILINE).group(1) == newest
    assert re.search(r"^date-released: (.+)$", citation, flags=re.MULTILINE).group(1) == date


def test_the_extra_all_has_every_extra_for_users_but_torch():
    extras = PROJECT["optional-dependencies"]
    named = re.fullmatch(r"caliope\[(.+)\]", extras["all"][0]).group(1).split(",")
    assert sorted(named) == sorted(set(extras) - {"all", "torch", "docs", "dev", "notebooks"})


@pytest.mark.slow
def test_the_package_can_be_imported_where_unix_modules_are_missing():
    """As on Windows: the modules cannot be imported, by us or by what we need."""
    code = (
        "import importlib, pkgutil, sys\n"
        # What is installed beside it is not ours to judge.
        "import numpy, scipy.stats, sklearn.linear_model, polars, click, faiss, matplotlib.pyplot\n"
        "import dask.distributed, duckdb, psycopg, pandas\n"
        f"for name in {UNIX_ONLY}: sys.modules[name] = None\n"
        "import caliope\n"
        "for each in pkgutil.walk_packages(caliope.__path__, 'caliope.'):\n"
        "    try: importlib.import_module(each.name)\n"
        "    except ModuleNotFoundError as missing: assert missing.name == 'torch', each.name\n"  # an extra
        "from caliope.domains import ward\n"
        "data = ward.simulate(60, rng=0)\n"
        "models = {'frequencies': caliope.behaviour.TabularFrequencies()}\n"
        "print(caliope.audit(data, caliope.TabularPolicy(ward.EARLIER), models, rng=0, n_draws=50).verdict)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(("trust", "caution", "do not trust"))
