"""The page as people see it: JupyterLab in a headless Chromium."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from browsing import Page, browser, needs_browser, until

Keys = pytest.importorskip('selenium.webdriver.common.keys').Keys

NOTEBOOK = Path(__file__).parents[2] / 'notebooks' / 'dashboard.ipynb'

pytestmark = [pytest.mark.full, needs_browser]


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
def page(lab, tmp_path):
    """The dashboard in the notebook."""
    with browser(tmp_path / 'browser') as driver:
        driver.get(lab)
        page = Page(driver)
        run_cells(page)
        yield page


def run_cells(page):
    kernel = 'return window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status'
    until(lambda: page.run(kernel) == 'idle', 'a kernel')
    page.run("window.jupyterapp.commands.execute('notebook:run-all-cells')")
    page.shown()


def is_seen(page, selector):
    """Whether an element is within the window and has a text."""
    script = """
        const found = document.querySelector(arguments[0]), box = found?.getBoundingClientRect();
        return Boolean(found?.innerText && box.height && box.top >= 0 && box.bottom <= innerHeight)"""
    return page.run(script, f'.zoo-dashboard {selector}')


def test_choose_edit_train_pause_stop_and_compare(page):
    page.choose('environment', 'Acrobot-v1')
    until(lambda: 'Discrete(3)' in page.text('.zoo-spaces'), 'the spaces of Acrobot')
    page.choose('environment', 'CartPole-v1')
    until(lambda: 'Discrete(2)' in page.text('.zoo-spaces'), 'the spaces of CartPole')
    page.choose('algorithm', 'A2C')
    page.click('Algorithm')
    page.type('gamma', '1.5')
    until(lambda: 'give a number from 0 to 1' in page.text('.zoo-refusal p'), 'a refusal in words')
    page.type('gamma', '0.97')
    until(lambda: 'gamma' in page.text('.zoo-edited') and not page.count('.zoo-refusal p'), 'the edited mark')
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


def test_a_refused_value_stays_in_its_field_with_the_reason_in_view(page):
    page.click('Learning')
    field = page.field('train_steps')
    page.type('train_steps', '-5', Keys.TAB)  # which leaves the field
    until(lambda: 'train_steps is -5' in page.text('.zoo-param.zoo-refused .zoo-refusal'), 'the reason')
    page.run('arguments[0].scrollIntoView({block: "center"})', field)
    assert is_seen(page, '.zoo-param.zoo-refused .zoo-refusal p')
    assert field.get_attribute('value') == '-5'
    style = page.run('const s = getComputedStyle(arguments[0]); return [s.borderTopStyle, s.borderTopWidth]', field)
    assert style == ['double', '3px']  # besides the color
    page.click('Train')
    until(lambda: 'correct train_steps first' in page.text('.zoo-message'), 'no training with another value')
    assert is_seen(page, '.zoo-right .zoo-message p')
    page.type('train_steps', '5_000', Keys.TAB)
    until(lambda: not page.count('.zoo-refused') and 'train_steps' in page.text('.zoo-edited'), 'the edited mark')


def test_fields_are_checked_when_they_are_left(page):
    page.click('Learning')
    page.type('roles', 'xx', Keys.TAB)
    until(lambda: "roles is 'xx': give a dict" in page.text('.zoo-param.zoo-refused'), 'the reason')
    page.type('roles', 'None', Keys.TAB)
    until(lambda: not page.count('.zoo-refused'), 'no mark')
    page.click('Networks')
    field = until(lambda: page.run('return document.querySelector(".zoo-param-wide input")'), 'the networks')
    field.send_keys(Keys.CONTROL + 'a' + Keys.NULL + 'hidden=[0]' + Keys.TAB)
    until(lambda: 'positive whole numbers' in page.text('.zoo-param.zoo-refused'), 'the reason')
    assert field.get_attribute('value') == 'hidden=[0]'


def test_after_a_restart_the_page_says_to_run_the_cell_again(page):
    banner = """
        return getComputedStyle(document.querySelector('.zoo-dashboard'), '::before').content"""
    assert page.run(banner) == 'none'
    page.run('window.jupyterapp.shell.currentWidget.sessionContext.restartKernel()')
    until(lambda: 'run this cell again' in page.run(banner), 'the sentence')
    assert page.run("return getComputedStyle(document.querySelector('.zoo-grid')).pointerEvents") == 'none'
    run_cells(page)
    until(lambda: page.run(banner) == 'none', 'the new page')


def test_a_notebook_that_is_opened_again_says_to_run_the_cell(page):
    again = """
        const found = document.querySelector('.zoo-run-again');
        return Boolean(found?.offsetParent) && found.innerText"""
    assert page.run("return Boolean(document.querySelector('.zoo-run-again'))") and not page.run(again)
    page.run("return window.jupyterapp.commands.execute('docmanager:save')")
    page.run('return window.jupyterapp.shell.currentWidget.sessionContext.shutdown()')
    page.browser.refresh()
    until(lambda: 'run this cell again' in (page.run(again) or ''), 'the sentence')


def test_an_earlier_training_is_not_shown_beside_a_new_choice(page):
    page.choose('algorithm', 'A2C')
    page.click('Learning')
    page.type('train_steps', '2_000')
    until(lambda: 'train_steps' in page.text('.zoo-edited'), 'the edited mark')
    page.click('Train')
    until(lambda: page.text('.zoo-state strong') == 'ended', 'the end')
    until(lambda: page.line() and page.enabled('Film'), 'its curve')
    page.choose('environment', 'Acrobot-v1')
    until(lambda: page.text('.zoo-state strong') == 'not trained yet', 'nothing of the training before')
    assert not page.line() and not page.enabled('Film') and 'CartPole' not in page.text('.zoo-right')
    page.choose('environment', 'CartPole-v1')
    until(lambda: page.text('.zoo-state strong') == 'ended' and page.line(), 'the training of what is chosen again')


def test_the_list_of_parameters_shows_several(page):
    rows = """
        document.querySelector('.zoo-dashboard').scrollIntoView();
        const list = document.querySelector('.zoo-params').getBoundingClientRect();
        const end = Math.min(list.bottom, innerHeight);
        const rows = [...document.querySelectorAll('.zoo-param')].map(row => row.getBoundingClientRect());
        return rows.filter(row => row.top >= list.top - 1 && row.bottom <= end).length"""
    page.click('Learning')
    for height, least in ((1050, 5), (800, 3)):
        view = {'width': 1280, 'height': height, 'deviceScaleFactor': 1, 'mobile': False}
        page.browser.execute_cdp_cmd('Emulation.setDeviceMetricsOverride', view)
        until(lambda least=least: page.run(rows) >= least, f'{least} rows at a height of {height}')
