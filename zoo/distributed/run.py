"""``python -m zoo.distributed.run -np N [--timeout S] script.py …``: run a script in N processes of this machine.

Each process is one rank of the engine ``local``. When one fails, the others are ended, one message says which rank
failed and how, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import runpy
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from zoo.distributed.engines.base import ClusterError
from zoo.distributed.jobs import launch


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    parser = argparse.ArgumentParser(
        prog='python -m zoo.distributed.run', description=__doc__.partition('\n')[0].replace('``', '')
    )
    parser.add_argument('-np', type=int, required=True, metavar='N', help='the number of ranks')
    parser.add_argument('--timeout', type=float, metavar='S', help='fail after so many seconds')
    parser.add_argument('script', help='the Python program that every rank runs')
    parser.add_argument('args', nargs=argparse.REMAINDER, help='the arguments of the script')
    options = parser.parse_args(arguments)
    if options.np < 1:
        parser.error(f'-np {options.np}: give 1 or more.')
    if Path(options.script).name.startswith('python') and options.args[:1] and Path(options.args[0]).is_file():
        parser.error(f'leave out {options.script}: -np {options.np} {options.args[0]}.')
    if not Path(options.script).is_file():
        parser.error(f'there is no file {options.script!r}.')
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup ignores them
            signal.signal(number, _stop)
    try:
        launch(run_script, options.np, (options.script, options.args), timeout=options.timeout)
    except ClusterError as error:
        print(f'zoo.distributed.run: {str(error).rstrip()}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


def run_script(script: str, args: list[str]) -> None:
    """Run a script as Python itself would.

    >>> run_script('train.py', ['--steps', '1000'])
    """
    sys.argv = [script, *args]
    sys.path[0] = str(Path(script).resolve().parent)
    runpy.run_path(script, run_name='__main__')


def _stop(number: int, frame: Any) -> NoReturn:
    sys.exit(128 + number)


if __name__ == '__main__':
    sys.exit(main())
