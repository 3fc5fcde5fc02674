"""What the benchmarks share: places, versions, tables, files of results, workers, launchers and peers' environments.

Only the standard library is imported here, because workers in the peers' environments import this file too. Each script
puts this folder on ``sys.path`` to find it.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import venv
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).resolve().parent
ROOT = BENCHMARKS.parent
RESULTS = BENCHMARKS / 'results'


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser whose help is the docstring of the script as it is written."""
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


def checked(parser: argparse.ArgumentParser, kind: str, given: Sequence[str], known: Iterable[str]) -> list[str]:
    """Return the given names, or all known ones if none is given; end the program if one is not known."""
    known = list(known)
    for name in given:
        if name not in known:
            parser.error(f'unknown {kind} {name!r}: choose from {", ".join(known)}')
    return list(given) or known


# Versions and the machine


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of Python and of packages; a package on the path that is not installed is a checkout."""
    found = {'python': platform.python_version()}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = 'checkout' if name == 'zoo-rl' else 'not installed'
    return found


def listed(found: Mapping[str, str]) -> str:
    """Return versions in one line."""
    return ', '.join(f'{name} {version}' for name, version in found.items())


def today() -> str:
    """Return the date as it stands in results."""
    return datetime.date.today().isoformat()


def stamp(*packages: str) -> str:
    """Return one line that says when, with which versions and on what a result was measured."""
    return f'{today()}, {listed(versions(*packages))}, {platform.system()}, {os.cpu_count()} cores'


def commit(checkout: Path) -> str:
    """Return the short hash of what is checked out in a folder."""
    found = subprocess.run(['git', '-C', str(checkout), 'rev-parse', '--short', 'HEAD'], capture_output=True, text=True)
    return found.stdout.strip() or 'an unknown commit'


# Numbers


def ratios(one: Sequence[float], other: Sequence[float]) -> list[float]:
    """Return the ratio of two columns in each round."""
    return [a / b for a, b in zip(one, other, strict=True)]


def spread(values: Sequence[float], form: str = '.2f') -> str:
    """Return the smallest and the largest value."""
    return f'{min(values):{form}} to {max(values):{form}}'


def middle_and_spread(values: Sequence[float], form: str = '.2f') -> str:
    """Return the median, with the smallest and the largest value."""
    return f'{statistics.median(values):{form}} ({spread(values, form)})'


def take_turns(
    works: Mapping[str, Callable[[], float]], rounds: int, both_ways: bool = False
) -> dict[str, list[float]]:
    """Measure several works in turn, so that a drift of the machine's speed meets all of them alike.

    Args:
        works: Each does a piece of work and returns the measured number.
        rounds: How often each is called.
        both_ways: Reverse the order in every second round.

    Returns:
        The numbers of each work, by round.
    """
    found: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(rounds):
        for name in list(works)[:: -1 if both_ways and turn % 2 else 1]:
            found[name].append(works[name]())
    return found


# Pages and files of results


def row(*cells: Any) -> str:
    """Return a row of a Markdown table."""
    return f'| {" | ".join(map(str, cells))} |'


def header(*titles: str) -> list[str]:
    """Return the first two lines of a Markdown table."""
    return [row(*titles), '|' + '---|' * len(titles)]


def show(lines: list[str], line: str) -> None:
    """Add a line to a page and print it."""
    lines.append(line)
    print(line, flush=True)


def write_page(name: str, lines: Iterable[str]) -> None:
    """Write ``results/NAME.md``."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f'{name}.md').write_text('\n'.join(lines).rstrip() + '\n', encoding='utf-8')


def read_results(name: str) -> dict[str, Any]:
    """Return what ``results/NAME.json`` holds so far."""
    path = RESULTS / f'{name}.json'
    return json.loads(path.read_text(encoding='utf-8')) if path.exists() else {}


def write_results(name: str, results: Mapping[str, Any]) -> None:
    """Write ``results/NAME.json``."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f'{name}.json').write_text(json.dumps(results, indent=1) + '\n', encoding='utf-8')


# Processes


def environment(checkout: Path = ROOT, **variables: str) -> dict[str, str]:
    """Return the environment of a process that imports zoo from a checkout, and logs little."""
    paths = os.pathsep.join(filter(None, [str(checkout), os.environ.get('PYTHONPATH')]))
    return os.environ | {'TF_CPP_MIN_LOG_LEVEL': '3', 'PYTHONPATH': paths} | variables


def answer_of(
    command: Sequence[str], env: Mapping[str, str] | None = None, folder: str | None = None, shown: bool = False
) -> Any:
    """Run a worker to its end, in a folder, and return the last line that it prints as JSON.

    With ``shown`` its standard error is shown as it comes; else only if the worker fails. After Ctrl-C, which it
    receives too, it has some time to save what it has; then it is told to end, and has a minute more.
    """
    errors = None if shown else subprocess.PIPE
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=env, cwd=folder) as worker:
        try:
            out, told = worker.communicate()
        except BaseException:
            for seconds, end in ((10, worker.terminate), (60, worker.kill)):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    worker.wait(seconds)
                end()
            raise
    found = [line[line.index(line.lstrip()[:1]) :] for line in out.splitlines() if line.endswith(('}', ']'))]
    if worker.returncode or not found:
        told = (told or '')[-2000:]
        raise RuntimeError(f'{" ".join(command[1:])} failed with status {worker.returncode}:\n{told}')
    return json.loads(found[-1])


def find_mpirun() -> str | None:
    """Return the command ``mpirun`` of the path, or the one beside this Python."""
    return shutil.which('mpirun') or shutil.which('mpirun', path=str(Path(sys.executable).parent))


def launcher(engine: str, ranks: int) -> list[str]:
    """Return the command that starts a Python program on so many ranks of this machine."""
    if engine == 'local':
        return [sys.executable, '-m', 'zoo.distributed.run', '-np', str(ranks)]
    if engine == 'kungfu':
        return ['kungfu-run', '-q', '-np', str(ranks), '-H', f'127.0.0.1:{ranks}', sys.executable]
    mpirun = find_mpirun()
    if mpirun is None:
        raise SystemExit("there is no mpirun: pip install 'zoo-rl[mpi]'.")
    return [mpirun, '--oversubscribe', '-n', str(ranks), sys.executable]


#: Open MPI refuses to run as root without these.
AS_ROOT = {'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1'}


def peers_python(name: str, packages: Sequence[str]) -> str:
    """Return the Python of a virtual environment for peers, made anew if it is missing or has other packages.

    Args:
        name: The folder beside this file.
        packages: What is installed into it, PyTorch first.
    """
    folder = BENCHMARKS / name
    python = folder / ('Scripts' if os.name == 'nt' else 'bin') / 'python'
    installed, wanted = folder / 'peers.txt', '\n'.join(packages)
    if not installed.exists() or installed.read_text(encoding='utf-8') != wanted:
        print(f'making {name} for the peers …', flush=True)
        if not python.exists():
            venv.create(folder, with_pip=True)
        # PyTorch first and alone: a resolver that sees it with the others may choose a build with CUDA.
        for group in (packages[:1], packages):
            subprocess.run([str(python), '-m', 'pip', 'install', '-q', *group], check=True)
        installed.write_text(wanted, encoding='utf-8')
    return str(python)
