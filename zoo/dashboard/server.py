"""The dashboard as a page of its own, without a notebook: Voilà shows one that is made for it.

Each visit of the page has a kernel, which ends when the page is closed or loaded again; a training under way is saved.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import sys
import tempfile
import threading
import webbrowser
from pathlib import Path
from typing import Any

from zoo.common.tools.errors import InvalidValue, MissingPackage
from zoo.common.tools.printing import say

#: The port where the search for a free one begins; how many ports are tried.
PORT, _PORTS = 8866, 50
#: Seconds that a kernel has to end, in which its training saves.
_SAVING = 60.0


def serve(port: int | None = None, browser: bool = True) -> None:
    """Serve the dashboard on 127.0.0.1 until Ctrl-C, and print its address.

    The address has a token, because whoever has the page can run code. Runs are kept where ``zoo.train`` keeps them.

    Args:
        port: the port; None: the first free one from 8866.
        browser: open the page in a browser.

    Raises:
        ImportError: Voilà is not installed; the message has the line that installs it.
        ValueError: the port is in use.
    """
    try:
        from traitlets.config import Config
        from voila.app import Voila
    except ImportError as error:
        told = "the page needs Voilà and Jupyter's widgets: pip install 'zoo-rl[notebook]'"
        raise MissingPackage(f'{told} ({error}).') from error
    if port is not None and not _is_free(port):
        raise InvalidValue(f'port {port} is in use or not permitted: give another one, or leave --port out.')
    if port is None:
        port = next((found for found in range(PORT, PORT + _PORTS) if _is_free(found)), None)
        if port is None:
            raise InvalidValue(f'none of the ports from {PORT} to {PORT + _PORTS - 1} is free: give one as --port.')
    os.environ['ZOO_RUNS'] = str(Path(os.environ.get('ZOO_RUNS') or 'runs').expanduser().absolute())
    token = secrets.token_urlsafe(16)
    with tempfile.TemporaryDirectory(prefix='zoo-') as folder:
        own = {
            'ip': '127.0.0.1', 'port': port, 'port_retries': 0, 'token': token, 'log_level': 'ERROR',
            'open_browser': True, 'root_dir': folder, 'connection_dir_root': folder,
            'notebook_path': _write_notebook(Path(folder)),
        }  # fmt: skip
        hook = {'prelaunch_hook': _let_it_close}
        waiting = {'shutdown_wait_time': _SAVING}
        given = Config({'Voila': own, 'VoilaConfiguration': hook, 'KernelManager': waiting})
        _write_kernel(Path(folder))
        os.environ['JUPYTER_PATH'] = os.pathsep.join(filter(None, [folder, os.environ.get('JUPYTER_PATH')]))
        server: Any = Voila(config=given)
        server.initialize([])
        server.update_config(given)  # before what a file of the user says of Voilà
        address = f'http://127.0.0.1:{port}/?token={token}'
        server.launch_browser = lambda: _announce(address, browser)  # called once the port is open
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background jobs (&) with it ignored
        server.start()


def _is_free(port: int) -> bool:
    with socket.socket() as trial:
        if os.name == 'posix':  # where it frees a port that was just left, and not one in use
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(('127.0.0.1', port))
        except OSError:
            return False
        return True


def _let_it_close(request: Any, **_: Any) -> None:
    """Give the page the cookie with which it asks for the end of its kernel when it is closed; Voilà forgets it."""
    request.xsrf_token  # noqa: B018  # Tornado sets the cookie when this is read


def _announce(address: str, browser: bool) -> None:
    print(f'The dashboard: {address}', flush=True)
    say('Ctrl-C ends it. A training under way is saved.')
    if browser:
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()


def _write_notebook(folder: Path) -> str:
    """Write the notebook of one cell, which runs in the working directory of this process."""
    code = f'import os\nos.chdir({os.getcwd()!r})\nfrom zoo.dashboard import Dashboard\nDashboard()'
    cell: dict[str, Any] = {'cell_type': 'code', 'id': 'page', 'source': code, 'metadata': {}, 'outputs': []}
    cell['execution_count'] = None
    kernel = {'name': 'zoo', 'display_name': 'zoo', 'language': 'python'}
    notebook = {'cells': [cell], 'metadata': {'kernelspec': kernel}, 'nbformat': 4, 'nbformat_minor': 5}
    path = folder / 'zoo.ipynb'
    path.write_text(json.dumps(notebook), encoding='utf-8')
    return str(path)


def _write_kernel(folder: Path) -> None:
    """Write the description of a kernel of this Python: the user's own ``python3`` may be another one."""
    described = folder / 'kernels' / 'zoo'
    described.mkdir(parents=True)
    command = [sys.executable, '-m', 'ipykernel_launcher', '-f', '{connection_file}', '--log-level=ERROR']
    kernel = {'argv': command, 'display_name': 'zoo', 'language': 'python'}
    (described / 'kernel.json').write_text(json.dumps(kernel), encoding='utf-8')
