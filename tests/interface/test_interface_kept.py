"""What a refactoring must keep: the paths that names are imported from, and the weights that trainings end with.

`import_paths.txt` has one dotted name a line, and is kept by hand. A name that only an old program uses is marked with
`# deprecated` behind it: it must resolve, and may warn. `fingerprints.py` takes the weights.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import fingerprints
import pytest

from zoo import algorithms

PATHS = Path(__file__).with_name('import_paths.txt')

#: Imports the longest prefix that is a module, and takes the rest as attributes. It prints what fails, and why. Of
#: deprecations only those count that name zoo: other libraries warn too.
RESOLVE = """
import importlib, json, sys, warnings

def resolve(path):
    parts = path.split('.')
    found, known = importlib.import_module(parts[0]), 1
    while known < len(parts):
        name = '.'.join(parts[:known + 1])
        try:
            found = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
            break
        known += 1
    for part in parts[known:]:
        found = getattr(found, part)

failed = {}
for path, deprecated in json.load(sys.stdin):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        try:
            resolve(path)
        except Exception as error:
            failed[path] = repr(error)
    if not deprecated:
        said = [str(x.message) for x in caught if issubclass(x.category, DeprecationWarning)]
        failed.update({path: message for message in said if 'zoo' in message})
print(json.dumps(failed))
"""


def read_paths() -> list[tuple[str, bool]]:
    """Return the dotted names of the list, each with whether it is marked as deprecated."""
    lines = [line.partition('#') for line in PATHS.read_text(encoding='utf-8').splitlines()]
    return [(path.strip(), mark.strip() == 'deprecated') for path, _, mark in lines if path.strip()]


def test_every_import_path_resolves():
    paths = read_paths()
    assert len(paths) > 100
    command = [sys.executable, '-c', RESOLVE]
    done = subprocess.run(command, input=json.dumps(paths), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {}


def test_every_algorithm_has_a_case():
    assert {case.algorithm for case in fingerprints.CASES.values()} == set(algorithms.NAMES)
    assert set(fingerprints.read()['weights']) == set(fingerprints.CASES)


#: ``pytest`` runs the first case of each algorithm, named as it is; the others are variants.
@pytest.mark.parametrize(
    'name', [pytest.param(x, marks=[] if x in algorithms.NAMES else pytest.mark.full) for x in fingerprints.CASES]
)
def test_a_training_ends_with_the_recorded_weights(name: str):
    recorded = fingerprints.read()
    exact = recorded['taken_with'] == fingerprints.machine()
    assert fingerprints.differences(name, recorded, exact) == []
