"""TensorFlow's start without its notes: some six lines and a red error about CUDA, whatever its variables ask for.

They come from C++ and before TensorFlow reads ``TF_CPP_MIN_LOG_LEVEL``, so the only way to keep them off the screen is
to point the process's standard error elsewhere while they are written.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
import threading

#: What TensorFlow's C++ writes: ``E0000 00:00:1795288722.610469 5669 cuda_platform.cc:52] failed call to cuInit``, the
#: same behind a date, and one line without such a head.
_NOTE = re.compile(
    rb'[IWE]\d{4} [\d:.]+ +\d+ \S+:\d+\] |\d{4}-\d\d-\d\d [\d:.]+: [IWE] \S+:\d+\] |'
    rb'WARNING: All log messages before absl::InitializeLog'
)
#: There where the driver of a graphics card is: TensorFlow's notes then say why it does not use the card.
_DRIVER = '/proc/driver/nvidia/version'

_lock = threading.Lock()
_loaded = False


def load_tensorflow() -> None:
    """Import TensorFlow and find its devices, with its notes kept off the screen; later calls do nothing.

    The notes are shown where loading fails, where there is a graphics card that TensorFlow does not find, and all as
    they come where the user has set ``TF_CPP_MIN_LOG_LEVEL`` to 0 or 1. What others write to standard error meanwhile
    is shown a moment later. Only a process that dies in it, on a processor that TensorFlow is not built for, takes the
    notes with it.

    To be called before a module that imports TensorFlow is imported.

    Raises:
        ImportError: TensorFlow cannot be loaded.
    """
    global _loaded
    with _lock:
        if _loaded:
            return
        if os.environ.get('TF_CPP_MIN_LOG_LEVEL') in ('0', '1'):
            _load()
        else:
            _load_without_notes()
        _loaded = True


def _load() -> bool:
    """Import TensorFlow; whether it leaves a graphics card unused."""
    import tensorflow as tf

    # The error about CUDA comes with this. It opens no device, so threads can still be chosen.
    found = tf.config.list_physical_devices('GPU')
    return not found and os.path.exists(_DRIVER)


def _load_without_notes() -> None:
    """Point file descriptor 2 to a file while TensorFlow is loaded, and pass on what is not a note of TensorFlow."""
    with contextlib.ExitStack() as stack:
        try:
            real = os.dup(2)
            stack.callback(os.close, real)
            held = stack.enter_context(tempfile.TemporaryFile())
        except OSError:  # there is no standard error, as under pythonw, or no room for a file
            _load()
            return
        with contextlib.suppress(AttributeError, OSError, ValueError):  # it may be None, or closed
            sys.stderr.flush()
        os.dup2(held.fileno(), 2)
        show_notes = True
        try:
            show_notes = _load()
        except KeyboardInterrupt:  # which is no failure that they could explain
            show_notes = False
            raise
        finally:
            os.dup2(real, 2)
            held.seek(0)
            with contextlib.suppress(OSError), open(2, 'wb', closefd=False) as screen:
                screen.writelines(line for line in held if show_notes or not _NOTE.match(line))
