"""The conformance suite over two hosts on one machine: two network namespaces with a cable between them, under mpirun.

    python benchmarks/scale/two_hosts.py                    # as root: the suite, two ranks on each host
    python benchmarks/scale/two_hosts.py --ranks 3 my.py    # another program, three ranks on each host

Each namespace has an address, a host name and nothing else. What the ranks of the two say to each other goes over TCP
through the cable; the number of its bytes is printed. Namespaces need Linux, root and `ip`. Where one of these or
`mpirun` is missing, the script says so, runs nothing and ends with status 0.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where common.py is
from common import ROOT, environment, find_mpirun, parser_of

SUITE = ROOT / 'zoo' / 'distributed' / 'testing' / '__main__.py'
#: Network of the cable: a piece of the range for tests between networks, which nothing else routes.
ADDRESSES = ('198.18.77.1', '198.18.77.2')
CABLE = 'cable'


def reason_to_skip() -> str | None:
    """Return why it cannot run here, or None."""
    if not sys.platform.startswith('linux'):
        return 'only Linux has network namespaces'
    if os.geteuid() != 0:
        return 'network namespaces need root'
    for command in ('ip', 'unshare', 'hostname'):
        if shutil.which(command) is None:
            return f'there is no command {command}'
    if find_mpirun() is None:
        return "there is no mpirun: pip install 'zoo-rl[mpi]'"
    probe = f'zoo-probe-{os.getpid()}'
    made = subprocess.run(['ip', 'netns', 'add', probe], capture_output=True, text=True)
    if made.returncode:
        return f'namespaces may not be made here ({made.stderr.strip()})'
    subprocess.run(['ip', 'netns', 'delete', probe], check=True)
    return None


@contextmanager
def two_namespaces() -> Iterator[tuple[str, str]]:
    """Two namespaces joined by a cable, each with one of the :data:`ADDRESSES`; they are gone afterwards."""
    names = (f'zoo-a-{os.getpid()}', f'zoo-b-{os.getpid()}')
    try:
        for name in names:
            ip('netns', 'add', name)
        ip('-n', names[0], 'link', 'add', CABLE, 'type', 'veth', 'peer', CABLE, 'netns', names[1])
        for name, address in zip(names, ADDRESSES, strict=True):
            ip('-n', name, 'address', 'add', f'{address}/30', 'dev', CABLE)
            ip('-n', name, 'link', 'set', CABLE, 'up')
            ip('-n', name, 'link', 'set', 'lo', 'up')
        yield names
    finally:
        for name in names:
            subprocess.run(['ip', 'netns', 'delete', name], capture_output=True)


def ip(*args: str) -> str:
    """Return what a command of ``ip`` prints."""
    return subprocess.run(['ip', *args], check=True, capture_output=True, text=True).stdout


def bytes_through_cable(name: str) -> int:
    """Return the bytes that a namespace has sent and received."""
    counters = [f'/sys/class/net/{CABLE}/statistics/{way}_bytes' for way in ('tx', 'rx')]
    return sum(int(number) for number in ip('netns', 'exec', name, 'cat', *counters).split())


def run(names: tuple[str, str], program: list[str], ranks: int, timeout: float) -> int:
    """Run a program with some ranks in each namespace; return the exit status of ``mpirun``."""
    with tempfile.TemporaryDirectory() as folder:
        # mpirun calls this as it would call ssh: with the host's address and the command to run there.
        agent = Path(folder) / 'agent'
        agent.write_text(
            '#!/bin/sh\nshift\n'
            f'exec ip netns exec {names[1]} unshare --uts sh -c \'hostname zoo-b; exec sh -c "$0"\' "$*"\n'
        )
        agent.chmod(0o755)
        hosts = ','.join(f'{address}:{ranks}' for address in ADDRESSES)
        command = [find_mpirun(), '--allow-run-as-root', '--prtemca', 'plm_ssh_agent', str(agent)]
        command += ['--prtemca', 'prte_if_include', CABLE, '--mca', 'btl_tcp_if_include', CABLE]
        command += ['--mca', 'pml', 'ob1', '--mca', 'btl', 'self,sm,tcp', '-x', 'PYTHONPATH']
        command += ['--host', hosts, '--map-by', 'slot:oversubscribe', '-n', str(2 * ranks), sys.executable, *program]
        inside = ['ip', 'netns', 'exec', names[0], 'unshare', '--uts', 'sh', '-c', 'hostname zoo-a; exec "$@"', 'sh']
        try:
            return subprocess.run([*inside, *command], env=environment(), timeout=timeout).returncode
        except subprocess.TimeoutExpired:
            print(f'two hosts: not done after {timeout:.0f} s', flush=True)
            return 1


def main() -> int:
    """The command; returns the exit status."""
    parser = parser_of(__doc__)
    parser.add_argument('--ranks', type=int, default=2, help='ranks on each host (default 2)')
    parser.add_argument('--timeout', type=float, default=300, help='seconds (default 300)')
    parser.add_argument('program', nargs=argparse.REMAINDER, help='a program and its arguments (default: the suite)')
    options = parser.parse_args()
    reason = reason_to_skip()
    if reason:
        print(f'two hosts: skipped: {reason}')
        return 0
    with two_namespaces() as names:
        before, started = bytes_through_cable(names[0]), time.monotonic()
        status = run(names, options.program or [str(SUITE)], options.ranks, options.timeout)
        seconds, crossed = time.monotonic() - started, bytes_through_cable(names[0]) - before
    result = 'passed' if status == 0 else f'failed with status {status}'
    print(f'two hosts: {result} in {seconds:.1f} s, {options.ranks} ranks each, {crossed / 1e6:.1f} MB over the cable')
    return status


if __name__ == '__main__':
    sys.exit(main())
