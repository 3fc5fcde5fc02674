"""Each notebook runs from its first cell to its last, as it is in the repository: without outputs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

#: XLA takes seconds to compile each agent's update.
PLAIN = """from zoo.algorithms.base import updating
from zoo.common.maths import optimizers
updating.prefers_xla = optimizers.prefers_xla = lambda variables: False"""
NOTEBOOKS = sorted(ROOT.glob('notebooks/*.ipynb'))


@pytest.mark.parametrize('path', NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip('ipykernel')
    nbclient, nbformat = pytest.importorskip('nbclient'), pytest.importorskip('nbformat')
    monkeypatch.setenv('PYTHONPATH', os.pathsep.join([str(ROOT), *filter(None, sys.path)]))
    monkeypatch.setenv('ZOO_RUNS', str(tmp_path / 'runs'))
    monkeypatch.setenv('ZOO_NOTEBOOK_STEPS', '300')
    monkeypatch.setenv('ZOO_NOTEBOOK_SEEDS', '1')
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == 'code']
    assert not any(cell.outputs or cell.execution_count for cell in code), 'is committed without outputs'
    if path.stem in ('custom_environment', 'custom_network', 'distributed'):  # which train in their own process
        notebook.cells.insert(0, nbformat.v4.new_code_cell(PLAIN))
    resources = {'metadata': {'path': str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, resources=resources).execute()
    assert not list(tmp_path.glob('*.png')), 'writes into the run directories alone'
