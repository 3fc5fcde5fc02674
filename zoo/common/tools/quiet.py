"""Start TensorFlow without its notes on the screen: some six lines and a red error about CUDA.

C++ writes them before TensorFlow reads ``TF_CPP_MIN_LOG_LEVEL``. So the only way to hide them is to redirect the
process's standard error meanwhile. ``import zoo`` prepares this, whoever imports TensorFlow afterward: zoo, Keras or
the program. What TensorFlow wrote before ``import zoo`` is on the screen already.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

#: What TensorFlow's C++ writes: ``E0000 00:00:1795288722.610469 5669 cuda_platform.cc:52] failed call to cuInit``, the
#: same behind a date, one line without such a head, and the place in the source that TensorFlow 2.22 adds.
_NOTES = re.compile(
    rb'^(?:[IWE]\d{4} [\d:.]+ +\d+ \S+:\d+\] |\d{4}-\d\d-\d\d [\d:.]+: [IWE] \S+:\d+\] |'
    rb'WARNING: All log messages before absl::InitializeLog)[^\n]*\n?'
    rb'(?:=== Source Location Trace: ===[^\n]*\n(?:\S+:\d+\n)*\n?)?',
    re.MULTILINE,
)
#: This file exists where a graphics card has its driver. TensorFlow's notes then say why it does not use the card.
_DRIVER = '/proc/driver/nvidia/version'

_lock = threading.RLock()
_loaded = False


def find_tensorflow() -> ModuleSpec | None:
    """Find TensorFlow as Python does; what its module writes while it runs is hidden. None where Python finds none."""
    spec = PathFinder.find_spec('tensorflow')
    if spec is None or spec.loader is None:
        return None
    execute = spec.loader.exec_module

    def execute_quietly(module: ModuleType) -> None:
        _start(module, execute)

    spec.loader.exec_module = execute_quietly  # type: ignore[method-assign]
    return spec


def load_tensorflow() -> None:
    """Import TensorFlow and find its devices without showing its notes; later calls do nothing.

    To be called before the import of a module that imports TensorFlow. The notes are shown if loading fails, and if
    TensorFlow does not find a graphics card that is there. With ``TF_CPP_MIN_LOG_LEVEL`` set to 0 or 1 they are shown
    as they come. Other output to standard error is shown a moment later. The notes are lost only if the process dies
    here, on a processor that TensorFlow is not built for.
    """
    import tensorflow as tf

    _start(tf)


def _start(tf: Any, execute: Callable[[Any], None] | None = None) -> None:
    """Run TensorFlow's module, unless it has run, and find the devices. Only the first call does something."""
    global _loaded

    def load() -> bool:
        """Return whether TensorFlow leaves a graphics card unused."""
        if execute is not None:
            execute(tf)
        # This writes the error about CUDA. It opens no device, so the numbers of threads can still be chosen.
        found = tf.config.list_physical_devices('GPU')
        return not found and os.path.exists(_DRIVER)

    with _lock:
        if _loaded and execute is None:
            return
        if os.environ.get('TF_CPP_MIN_LOG_LEVEL') in ('0', '1'):
            load()
        else:
            _without_notes(load)
        _loaded = True


def _without_notes(load: Callable[[], bool]) -> None:
    """Redirect file descriptor 2 to a file while TensorFlow loads, then show what is not a note of TensorFlow."""
    import tempfile

    with contextlib.ExitStack() as stack:
        try:
            real = os.dup(2)
            stack.callback(os.close, real)
            held = stack.enter_context(tempfile.TemporaryFile())
        except OSError:  # no standard error, as under pythonw, or no room for a file
            load()
            return
        with contextlib.suppress(AttributeError, OSError, ValueError):  # it may be None, or closed
            sys.stderr.flush()
        os.dup2(held.fileno(), 2)
        show_notes = True
        try:
            show_notes = load()
        except KeyboardInterrupt:  # the notes do not explain it
            show_notes = False
            raise
        finally:
            os.dup2(real, 2)
            held.seek(0)
            written = held.read()
            with contextlib.suppress(OSError), open(2, 'wb', closefd=False) as screen:
                screen.write(written if show_notes else _NOTES.sub(b'', written))
