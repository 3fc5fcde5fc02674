"""Take the pictures of the dashboard, ``docs/images/dashboard_*.png``: ``python docs/screenshots.py [light dark]``.

Needs the extra ``dev``, Chromium and its driver (``apt-get install chromium chromium-driver``). It serves the dashboard
on 127.0.0.1 and uses it as a person does. The trainings repeat; dates and speeds in the pictures do not.
"""

from __future__ import annotations

import base64
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS.parent), str(DOCS.parent / 'tests' / 'support')]

from browsing import Page, browser, until  # noqa: E402

WIDTH, TALL, MARGIN = 1200, 2400, 16
#: The runs of the table: algorithm, seed, settings.
TRAINED: list[tuple[str, int, dict[str, Any]]] = [
    ('A2C', 0, {}),
    ('DQN', 0, {}),
    ('PPO', 0, {}),
    ('PPO', 1, {}),
    ('PPO', 0, {'gamma': 0.9}),
    ('ARS', 0, {}),
]


def main(names: list[str]) -> None:
    """Take the pictures of these names, or all."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        if not names or 'light' in names:
            with opened(folder, '') as page:
                training(page)
                take(page, '.zoo-dashboard', 'light', 930)
        if not names or 'dark' in names:
            train(folder / 'runs')
            with opened(folder, '&theme=dark') as page:
                comparing(page)
                take(page, '.zoo-runs', 'dark', 700)


@contextlib.contextmanager
def opened(folder: Path, theme: str) -> Iterator[Page]:
    """Open the dashboard in a browser whose window has room for all of the page."""
    with served(folder) as address, browser(folder / 'browser', f'{WIDTH},{TALL}') as driver:
        page = Page(driver)
        driver.get(address + theme)
        page.shown()
        yield page


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve the dashboard in a process of its own; give its address."""
    own = {'PYTHONPATH': str(DOCS.parent), 'ZOO_RUNS': str(folder / 'runs')}
    own |= {f'JUPYTER_{name}_DIR': str(folder / name) for name in ('CONFIG', 'DATA', 'RUNTIME')}
    command = [sys.executable, '-m', 'zoo', 'dashboard', '--no-browser']
    process = subprocess.Popen(command, env=os.environ | own, cwd=folder, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield next(line for line in process.stdout if 'http' in line).split()[-1]
    finally:
        process.terminate()
        process.wait()


def training(page: Page) -> None:
    """Train PPO with another ``gae_lambda`` until there is a test and a film."""
    page.choose('environment', 'CartPole-v1')
    page.choose('algorithm', 'PPO')
    page.click('Algorithm')
    page.type('gae_lambda', '0.95')
    until(lambda: 'gae_lambda' in page.text('.zoo-edited'), 'the edited mark')
    page.click('Train')
    until(lambda: 'Test at step 40' in page.text('.zoo-right'), 'a test at 40,000 steps')
    page.click('Pause')
    until(lambda: page.text('.zoo-state strong') == 'paused', 'the pause')
    page.click('Film')
    until(lambda: page.count('.zoo-film img'), 'a film')


def train(runs: Path) -> None:
    """Train what the table shows."""
    for alg, seed, settings in TRAINED:
        given = [word for name, value in settings.items() for word in ('--set', f'{name}={value}')]
        command = ['train', alg, 'CartPole-v1', '--seed', str(seed), '--steps', '50_000', '--quiet', *given]
        own = {'PYTHONPATH': str(DOCS.parent), 'ZOO_RUNS': str(runs)}
        subprocess.run([sys.executable, '-m', 'zoo', *command], env=os.environ | own, check=True)


def comparing(page: Page) -> None:
    """Tick four runs and open one."""
    ticks = '.zoo-dashboard .zoo-line-of-table input[type=checkbox]'
    until(lambda: page.count('.zoo-steps') >= len(TRAINED), 'the runs in the table')
    for i in range(4):
        page.run('document.querySelectorAll(arguments[0])[arguments[1]].click()', ticks, i)
        until(lambda i=i: page.count('.zoo-overlay polyline') > i, 'curves side by side')
    page.click('open')
    until(lambda: 'train_steps' in page.text('.zoo-opened-run'), 'its program and configuration')


def take(page: Page, begin: str, name: str, height: int) -> None:
    """Write a picture of the page from the top of an element on."""
    place = """
        const box = document.querySelector(arguments[0]).getBoundingClientRect();
        return [scrollX + box.left, scrollY + box.top]"""
    x, y = page.run(place, begin)
    clip = {'x': max(0, x - MARGIN), 'y': max(0, y - MARGIN), 'width': WIDTH, 'height': height, 'scale': 1}
    asked = {'format': 'png', 'captureBeyondViewport': True, 'clip': clip}
    shown = page.browser.execute_cdp_cmd('Page.captureScreenshot', asked)
    (DOCS / 'images' / f'dashboard_{name}.png').write_bytes(base64.b64decode(shown['data']))


if __name__ == '__main__':
    main(sys.argv[1:])
