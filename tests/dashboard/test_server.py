"""``zoo dashboard``: the page without a notebook, in a process of its own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from browsing import Page, browser, needs_browser, until

import zoo
from zoo.cli import main

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def served(folder, *words):
    """The process of ``zoo dashboard`` in a folder, and its address, once it is printed.

    In place of a browser a script writes the address that it is given to ``opened.txt``.
    """
    script = folder / 'browser.sh'
    script.write_text(f'#!/bin/sh\necho "$1" > {folder}/opened.txt\n')
    script.chmod(0o755)
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get('PYTHONPATH')]))
    own = {'PYTHONPATH': path, 'HOME': str(folder), 'BROWSER': f'{script} %s'}
    own |= {f'JUPYTER_{name}_DIR': str(folder / name) for name in ('CONFIG', 'DATA', 'RUNTIME')}
    with open(folder / 'err.txt', 'wb') as err:
        process = subprocess.Popen(
            [sys.executable, '-m', 'zoo', 'dashboard', *words],
            cwd=folder,
            env={name: value for name, value in os.environ.items() if name != 'ZOO_RUNS'} | own,
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
            start_new_session=True,
        )
    try:
        line = process.stdout.readline()
        found = re.search(r'http://127\.0\.0\.1:\d+/\?token=\S+', line)
        assert found, (line, (folder / 'err.txt').read_text())
        yield process, found[0]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def ended(process, folder):
    """Press Ctrl-C; the exit status and what was printed to standard error."""
    os.kill(process.pid, signal.SIGINT)
    status = process.wait(120)
    return status, (folder / 'err.txt').read_text()


def children_of(pid):
    """All processes below one, where the system shows them."""
    found = []
    for path in Path('/proc').glob('[0-9]*/stat'):
        with contextlib.suppress(OSError):
            if int(path.read_text().rpartition(')')[2].split()[1]) == pid:
                child = int(path.parent.name)
                found += [child, *children_of(child)]
    return found


def is_alive(pid):
    with contextlib.suppress(OSError):
        return Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[0] != 'Z'
    return False


def test_it_serves_only_who_has_the_address_until_ctrl_c(tmp_path):
    pytest.importorskip('voila')
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        port = free.getsockname()[1]
    with served(tmp_path, '--port', str(port)) as (process, address):
        assert f':{port}/' in address
        try:  # the page itself, without the token
            answer = urllib.request.urlopen(f'http://127.0.0.1:{port}/', timeout=30)
            assert '/login' in answer.url
        except urllib.error.HTTPError as error:
            assert error.code in (401, 403, 404)
        refused = subprocess.run(
            [sys.executable, '-m', 'zoo', 'dashboard', '--no-browser', '--port', str(port)],
            env=os.environ | {'PYTHONPATH': str(ROOT)},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (refused.returncode, refused.stdout) == (2, '')
        assert f'port {port} is in use' in refused.stderr and 'Traceback' not in refused.stderr
        if os.name == 'posix':
            until((tmp_path / 'opened.txt').exists, 'a browser')
            assert (tmp_path / 'opened.txt').read_text().strip() == address
        status, said = ended(process, tmp_path)
    assert status == 0 and said == 'Ctrl-C ends it. A training under way is saved.\n'
    assert list(tmp_path.glob('runs')) == []  # nothing was trained, so nothing is written


def test_without_voila_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, 'voila', None)
    monkeypatch.setitem(sys.modules, 'voila.app', None)
    assert main(['dashboard', '--no-browser']) == 1
    said = capsys.readouterr().err
    assert "zoo dashboard: the page needs Voilà and Jupyter's widgets: pip install 'zoo-rl[notebook]'" in said
    assert said.count('\n') == 1


@pytest.mark.parametrize('port', ['0', '70000', 'x', '-1'])
def test_a_port_that_is_none_is_refused(port, capsys):
    assert main(['dashboard', f'--port={port}']) == 2
    assert 'is not a whole number from 1 to 65535' in capsys.readouterr().err


@pytest.mark.full
@needs_browser
def test_the_page_comes_up_trains_and_ctrl_c_leaves_no_process(tmp_path):
    pytest.importorskip('voila')
    pytest.importorskip('selenium')
    (tmp_path / 'work').mkdir()
    with served(tmp_path / 'work', '--no-browser') as (process, address), browser(tmp_path / 'browser') as driver:
        page = Page(driver)
        driver.get(address)
        page.shown()
        assert page.run('return document.documentElement.scrollWidth <= innerWidth')
        page.choose('algorithm', 'A2C')
        page.click('Learning')
        page.type('train_steps', '2_000')
        until(lambda: 'train_steps' in page.text('.zoo-edited'), 'the edited mark')
        page.click('Train')
        until(lambda: page.text('.zoo-state strong') == 'ended' and page.line(), 'a short training')
        assert [run.steps >= 2000 for run in zoo.list_runs(tmp_path / 'work' / 'runs')] == [True]

        before = children_of(process.pid)
        driver.refresh()  # which begins with a new kernel, and ends the old one
        page.shown()
        until(lambda: not any(map(is_alive, before)), 'the end of the first kernel')
        page.choose('algorithm', 'A2C')
        page.click('Learning')
        page.type('train_steps', '2_000_000')
        page.click('Train')
        until(lambda: page.text('.zoo-state strong') == 'training' and page.line(), 'a long training')
        started = children_of(process.pid)
        status, said = ended(process, tmp_path / 'work')
        assert len(started) >= 2 * sys.platform.startswith('linux')  # a kernel and a training
        until(lambda: not any(map(is_alive, started)), 'the end of every process')
    assert status == 0 and 'Traceback' not in said, said
    newest = max(zoo.list_runs(tmp_path / 'work' / 'runs'), key=lambda run: run.name)
    assert not (tmp_path / 'work' / 'opened.txt').exists()
    assert newest.checkpoints and newest.steps < 2_000_000
