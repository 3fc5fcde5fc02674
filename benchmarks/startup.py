"""Seconds until `zoo` shows something in a terminal: help, the first line of a training, and its first progress bar.

    python benchmarks/startup.py                            # writes results/startup.md; a minute
    python benchmarks/startup.py --python venv/bin/python   # of the zoo that another Python has

What has to be imported depends on what is installed: Keras imports scikit-learn where it finds it, which zoo does not
need and TensorLayer brings. So a plain ``pip install zoo-rl`` starts sooner than an environment with all extras.
"""

from __future__ import annotations

import argparse
import datetime
import fcntl
import os
import platform
import pty
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / 'results' / 'startup.md'
TRAIN = ['train', 'PPO', 'CartPole-v1', '--steps', '6000']
PACKAGES = ('tensorflow', 'keras', 'gymnasium', 'scikit-learn')


def watch(command: list[str], folder: str) -> tuple[dict[str, float], str]:
    """Run a command in a terminal; seconds until the first output, the first bar and the end, and all that it wrote."""
    begin = time.perf_counter()
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM='xterm', ZOO_RUNS=folder)
        os.chdir(folder)
        os.execv(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack('HHHH', 24, 100, 0, 0))
    found: dict[str, float] = {}
    text = b''
    while True:
        try:
            part = os.read(terminal, 4096)
        except OSError:  # Linux says so that the other side is closed
            break
        if not part:
            break
        text += part
        now = time.perf_counter() - begin
        found.setdefault('first line', now)
        if b'%|' in text:
            found.setdefault('first bar', now)
    os.close(terminal)
    os.waitpid(pid, 0)
    return found | {'end': time.perf_counter() - begin}, text.decode(errors='replace')


def versions(python: str) -> str:
    """Of what that Python has."""
    program = (
        'import platform\nfrom importlib import metadata\nfound = ["python " + platform.python_version()]\n'
        f'for name in {PACKAGES!r}:\n'
        '    try:\n        found.append(f"{name} {metadata.version(name)}")\n'
        '    except metadata.PackageNotFoundError:\n        found.append(f"no {name}")\n'
        'print(", ".join(found))'
    )
    return subprocess.run([python, '-c', program], capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--python', action='append', help='of the environments to measure; repeatable')
    parser.add_argument('--rounds', type=int, default=7)
    args = parser.parse_args()
    pythons = args.python or [sys.executable]
    lines = [
        '# Until zoo shows something',
        '',
        f'`python benchmarks/startup.py`, {os.cpu_count()} cores, {platform.system()}. Seconds in a terminal, median '
        f'of {args.rounds} starts with the smallest and the largest; the first start, which reads files from disk, is '
        'left out.',
        '',
        f'| with | `zoo --help` | first line of `zoo {" ".join(TRAIN)}` | its first bar (aim 5) | noise |',
        '|---|---|---|---|---|',
    ]
    for python in pythons:
        rows: dict[str, list[float]] = {'help': [], 'first line': [], 'first bar': []}
        noise: set[str] = set()
        for i in range(args.rounds + 1):
            with tempfile.TemporaryDirectory() as folder:
                found, text = watch([python, '-m', 'zoo', *TRAIN], folder)
                shown, _ = watch([python, '-m', 'zoo', '--help'], folder)
            if 'first bar' not in found:
                raise RuntimeError(f'there was no progress bar:\n{text}')
            noise |= {word for word in ('oneDNN', 'cuda', 'WARNING', 'cpu_feature_guard', 'E0000') if word in text}
            if i:
                for name in ('first line', 'first bar'):
                    rows[name].append(found[name])
                rows['help'].append(shown['end'])
        cells = ' | '.join(
            f'{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})'
            for values in (rows['help'], rows['first line'], rows['first bar'])
        )
        lines.append(f'| {versions(python)} | {cells} | {", ".join(sorted(noise)) or "none"} |')
        print(lines[-1], flush=True)
    RESULTS.write_text('\n'.join([*lines, '', f'Run on {datetime.date.today().isoformat()}.', '']), encoding='utf-8')


if __name__ == '__main__':
    main()
