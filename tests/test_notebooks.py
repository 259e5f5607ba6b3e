"""The notebooks run from the first cell to the last, and are kept without their outputs."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def test_there_are_the_two_that_the_site_offers():
    page = (ROOT / "docs" / "start" / "notebooks.md").read_text()
    assert [path.stem for path in NOTEBOOKS] == ["sepsis", "tour"]
    assert all(f"{{download}}`{path.name} <../../notebooks/{path.name}>`" in page for path in NOTEBOOKS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_stripped(path):
    cells = json.loads(path.read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(code) >= 5
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the kernel and its client
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_every_result_is_shown(path, tmp_path):
    pytest.importorskip("nbclient", reason="nbclient is not installed: pip install '.[notebooks]'")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed: pip install '.[notebooks]'")
    import nbformat
    from nbclient import NotebookClient

    book = nbformat.read(path, as_version=4)
    NotebookClient(book, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [each for cell in book.cells if cell.cell_type == "code" for each in cell.outputs]
    assert not [each for each in outputs if each.output_type == "error" or each.get("name") == "stderr"]
    assert any("image/png" in each.get("data", {}) for each in outputs)
    assert any("text/html" in each.get("data", {}) for each in outputs)
