"""Seconds until `zoo` shows something in a terminal: help, the first line of a training, and its first progress bar.

    python benchmarks/speed/startup.py                            # writes results/startup.md; a minute
    python benchmarks/speed/startup.py --python venv/bin/python   # of the zoo that another Python has

What has to be imported depends on what is installed. Keras imports scikit-learn where it finds it; zoo does not need
it, and TensorLayer brings it. So zoo starts sooner after a plain ``pip install zoo-rl`` than with all extras.
"""

from __future__ import annotations

import fcntl
import os
import platform
import pty
import struct
import sys
import tempfile
import termios
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where common.py is
from common import BENCHMARKS, answer_of, header, listed, middle_and_spread, parser_of, row, show, today, write_page

TRAIN = ['train', 'PPO', 'CartPole-v1', '--steps', '6000']
PACKAGES = ('tensorflow', 'keras', 'gymnasium', 'scikit-learn')


def watch(command: list[str], folder: str) -> tuple[dict[str, float], str]:
    """Run a command in a terminal. Return the seconds until first output, first bar and end, and all that it wrote."""
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


def versions_of(python: str) -> str:
    """Return the versions that another Python has."""
    program = 'import sys, json, common; print(json.dumps(common.versions(*sys.argv[1:])))'
    env = os.environ | {'PYTHONPATH': str(BENCHMARKS)}
    return listed(answer_of([python, '-c', program, *PACKAGES], env))


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument('--python', action='append', help='of the environments to measure; repeatable')
    parser.add_argument('--rounds', type=int, default=7)
    args = parser.parse_args()
    pythons = args.python or [sys.executable]
    lines = [
        '# Until zoo shows something',
        '',
        f'`python benchmarks/speed/startup.py`, {os.cpu_count()} cores, {platform.system()}. Seconds in a terminal, '
        f'median of {args.rounds} starts with the smallest and the largest. The first start, which reads files from '
        'disk, is left out.',
        '',
        *header('with', '`zoo --help`', f'first line of `zoo {" ".join(TRAIN)}`', 'its first bar (aim 5)', 'noise'),
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
        cells = (middle_and_spread(rows[name]) for name in ('help', 'first line', 'first bar'))
        show(lines, row(versions_of(python), *cells, ', '.join(sorted(noise)) or 'none'))
    write_page('startup', [*lines, '', f'Run on {today()}.'])


if __name__ == '__main__':
    main()
