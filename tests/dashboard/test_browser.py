"""The page as people see it: JupyterLab in a headless Chromium."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

webdriver = pytest.importorskip('selenium.webdriver')
Keys = pytest.importorskip('selenium.webdriver.common.keys').Keys

CHROMIUM = shutil.which('chromium') or shutil.which('chromium-browser') or shutil.which('google-chrome')
DRIVER = shutil.which('chromedriver')
NOTEBOOK = Path(__file__).parents[2] / 'notebooks' / 'dashboard.ipynb'

#: What is generous on a loaded machine; on an idle one the whole test takes half a minute.
PATIENCE = 240.0

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        not (CHROMIUM and DRIVER), reason='no Chromium with its driver: apt-get install chromium chromium-driver'
    ),
]


def until(condition, what):
    """What a condition gives, once it gives something; a page that is being drawn may raise meanwhile."""
    end, last = time.monotonic() + PATIENCE, None
    while time.monotonic() < end:
        try:
            found = condition()
            if found:
                return found
        except Exception as error:
            last = error
        time.sleep(0.2)
    raise AssertionError(f'{what}: not within {PATIENCE:g} s ({last})')


@pytest.fixture
def lab(tmp_path):
    """The address of a JupyterLab with the notebook."""
    root = tmp_path / 'root'
    root.mkdir()
    shutil.copy(NOTEBOOK, root)
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        port = free.getsockname()[1]
    own = {f'JUPYTER_{name}_DIR': str(tmp_path / name) for name in ('CONFIG', 'DATA', 'RUNTIME')}
    own |= {f'JUPYTERLAB_{name}_DIR': str(tmp_path / name) for name in ('SETTINGS', 'WORKSPACES')}
    path = [str(NOTEBOOK.parents[1]), *filter(None, [os.environ.get('PYTHONPATH')])]
    own |= {'ZOO_RUNS': str(tmp_path / 'runs'), 'PYTHONPATH': os.pathsep.join(path)}
    options = ['--no-browser', '--expose-app-in-browser', '--allow-root', '--ServerApp.ip=127.0.0.1']
    options += [f'--ServerApp.port={port}', '--IdentityProvider.token=zoo', f'--ServerApp.root_dir={root}']
    with open(tmp_path / 'lab.log', 'wb') as log:
        server = subprocess.Popen(
            [sys.executable, '-m', 'jupyterlab', *options],
            env=os.environ | own,
            stdout=log,
            stderr=log,
        )
        try:
            ready = f'http://127.0.0.1:{port}/api/status?token=zoo'
            until(lambda: urllib.request.urlopen(ready, timeout=5).status == 200, 'the server')
            yield f'http://127.0.0.1:{port}/lab/tree/{NOTEBOOK.name}?token=zoo'
        finally:
            server.terminate()
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


@pytest.fixture
def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (
        '--headless=new',
        '--no-sandbox',
        '--disable-dev-shm-usage',
        '--disable-gpu',
        '--window-size=1366,1400',
    ):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


class Page:
    """The dashboard in a browser; every look is a script, so that a part that is redrawn does not get in the way."""

    def __init__(self, browser):
        self.browser = browser

    def run(self, script, *args):
        return self.browser.execute_script(script, *args)

    def text(self, selector):
        return self.run('return document.querySelector(arguments[0])?.innerText ?? ""', f'.zoo-dashboard {selector}')

    def count(self, selector):
        return self.run('return document.querySelectorAll(arguments[0]).length', f'.zoo-dashboard {selector}')

    def click(self, label):
        """Click the first button of that name that can be clicked."""
        find = """
            const all = [...document.querySelectorAll('.zoo-dashboard button')];
            const found = all.find(b => b.innerText.trim() === arguments[0] && !b.disabled && b.offsetParent);
            if (found) found.click();
            return Boolean(found)"""
        until(lambda: self.run(find, label), f'a button {label!r}')

    def choose(self, label, option):
        """Choose from the list below a label."""
        script = """
            const fields = [...document.querySelectorAll('.zoo-dashboard .zoo-field')];
            const select = fields.find(f => f.innerText.trim().startsWith(arguments[0]))?.querySelector('select');
            const option = [...(select?.options ?? [])].find(o => o.text === arguments[1]);
            if (!option) return false;
            select.selectedIndex = option.index;
            select.dispatchEvent(new Event('change', {bubbles: true}));
            return true"""
        until(lambda: self.run(script, label, option), f'{option!r} in the list {label!r}')

    def type(self, name, text):
        """Type into the field of a parameter."""
        script = """
            const rows = [...document.querySelectorAll('.zoo-dashboard .zoo-param')];
            return rows.find(r => r.querySelector('b')?.innerText === arguments[0])?.querySelector('input')"""
        field = until(lambda: self.run(script, name), f'a field {name!r}')
        field.send_keys(Keys.CONTROL + 'a' + Keys.NULL + text + Keys.ENTER)

    def line(self):
        """The points of the learning curve."""
        return self.run(
            'return document.querySelector(".zoo-dashboard .zoo-returns polyline")?.getAttribute("points") ?? ""'
        )


def test_choose_edit_train_pause_stop_and_compare(lab, browser):
    page = Page(browser)
    browser.get(lab)
    kernel = 'return window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status'
    until(lambda: page.run(kernel) == 'idle', 'a kernel')
    page.run("window.jupyterapp.commands.execute('notebook:run-all-cells')")
    until(lambda: page.count('.zoo-diagram img') and page.count('.zoo-frame img'), 'the page with its pictures')

    page.choose('environment', 'Acrobot-v1')
    until(lambda: 'Discrete(3)' in page.text('.zoo-spaces'), 'the spaces of Acrobot')
    page.choose('environment', 'CartPole-v1')
    until(lambda: 'Discrete(2)' in page.text('.zoo-spaces'), 'the spaces of CartPole')
    page.choose('algorithm', 'A2C')
    page.click('Algorithm')
    page.type('gamma', '1.5')
    until(lambda: 'give a number from 0 to 1' in page.text('.zoo-message'), 'a refusal in words')
    page.type('gamma', '0.97')
    until(lambda: 'gamma' in page.text('.zoo-edited') and not page.text('.zoo-message'), 'the edited mark')
    page.click('Learning')
    page.type('train_steps', '2_000_000')
    until(lambda: 'train_steps' in page.text('.zoo-edited'), 'the edited mark')

    state = '.zoo-state strong'
    for _ in range(2):
        page.click('Train')
        until(lambda: page.text(state) in ('starting a process', 'training'), 'the start')  # the last curve is gone
        first = until(page.line, 'a learning curve')
        until(lambda first=first: page.line() not in ('', first), 'a curve that moves')
        page.click('Pause')
        until(lambda: page.text(state) == 'paused', 'the pause')
        page.click('Stop')
        until(lambda: page.text(state).startswith('stopped'), 'the stop')
        until(lambda: page.run('return document.querySelector(".zoo-primary").disabled') is False, 'the button')

    ticks = '.zoo-line-of-table input[type=checkbox]'
    until(lambda: page.run('return document.querySelectorAll(".zoo-steps").length') == 2, 'two runs in the table')
    for i in range(2):
        page.run('document.querySelectorAll(arguments[0])[arguments[1]].click()', ticks, i)
        until(lambda i=i: page.count('.zoo-overlay polyline') == i + 1, 'curves side by side')
    assert 'Traceback' not in page.run('return document.body.innerText')
