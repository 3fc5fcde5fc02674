"""A browser without a window, and the dashboard in it, for tests."""

from __future__ import annotations

import contextlib
import shutil
import time

import pytest

CHROMIUM = shutil.which('chromium') or shutil.which('chromium-browser') or shutil.which('google-chrome')
DRIVER = shutil.which('chromedriver')

#: Generous for a loaded machine; on an idle one a whole test takes half a minute.
PATIENCE = 240.0

needs_browser = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason='no Chromium with its driver: apt-get install chromium chromium-driver'
)


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


@contextlib.contextmanager
def browser(folder, size='1280,1050'):
    """A Chromium that keeps its data in a folder."""
    webdriver = pytest.importorskip('selenium.webdriver')
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    flags = ('--headless=new', '--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu', f'--window-size={size}')
    for flag in (*flags, f'--user-data-dir={folder}'):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


class Page:
    """The dashboard in a browser; every look is a script, so that a part that is redrawn does not get in the way."""

    def __init__(self, driver):
        self.browser = driver

    def run(self, script, *args):
        return self.browser.execute_script(script, *args)

    def shown(self):
        """Wait for the page with its pictures."""
        until(lambda: self.count('.zoo-diagram img') and self.count('.zoo-frame img'), 'the page with its pictures')

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

    def enabled(self, label):
        """Whether the button of that name can be clicked."""
        find = """
            const all = [...document.querySelectorAll('.zoo-dashboard button')];
            return all.some(b => b.innerText.trim() === arguments[0] && !b.disabled && b.offsetParent)"""
        return self.run(find, label)

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

    def field(self, name):
        """The field of a parameter."""
        script = """
            const rows = [...document.querySelectorAll('.zoo-dashboard .zoo-param')];
            return rows.find(r => r.querySelector('b')?.innerText === arguments[0])?.querySelector('input')"""
        return until(lambda: self.run(script, name), f'a field {name!r}')

    def type(self, name, text, end=None):
        """Type into the field of a parameter, and leave it with Enter or another key."""
        from selenium.webdriver.common.keys import Keys

        self.field(name).send_keys(Keys.CONTROL + 'a' + Keys.NULL + text + (end or Keys.ENTER))

    def line(self):
        """The points of the learning curve."""
        return self.run(
            'return document.querySelector(".zoo-dashboard .zoo-returns polyline")?.getAttribute("points") ?? ""'
        )
