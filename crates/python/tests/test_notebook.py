"""The notebook of the examples, from its first cell to its last, as Jupyter runs it."""

from __future__ import annotations

from pathlib import Path

import nbclient
import nbformat

NOTEBOOK = Path(__file__).resolve().parents[3] / "examples" / "notebook.ipynb"
LIMIT_S = 60


def test_the_notebook_runs_and_shows_what_it_says(tmp_path: Path) -> None:
    notebook = nbformat.reads(NOTEBOOK.read_text(), as_version=4)  # type: ignore[no-untyped-call]
    assert all(not cell.outputs for cell in notebook.cells if cell.cell_type == "code"), "it is kept without outputs"
    client = nbclient.NotebookClient(notebook, timeout=LIMIT_S, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    shown = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [output for output in shown if output.output_type == "error" or output.get("name") == "stderr"]
    pages = [output.data["text/html"] for output in shown if "text/html" in output.get("data", {})]
    assert pages[0].startswith("<iframe")
    assert "farside.saxpy" in pages[0]
    assert "on-touch" in pages[1]
    assert any("image/png" in output.get("data", {}) for output in shown)
