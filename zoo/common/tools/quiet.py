"""Start TensorFlow without its notes on the screen: some six lines and a red error about CUDA.

C++ writes them before TensorFlow reads ``TF_CPP_MIN_LOG_LEVEL``. So the only way to hide them is to redirect the
process's standard error meanwhile.
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
#: This file exists where a graphics card has its driver. TensorFlow's notes then say why it does not use the card.
_DRIVER = '/proc/driver/nvidia/version'

_lock = threading.Lock()
_loaded = False


def load_tensorflow() -> None:
    """Import TensorFlow and find its devices without showing its notes; later calls do nothing.

    To be called before the import of a module that imports TensorFlow. The notes are shown if loading fails, and if
    TensorFlow does not find a graphics card that is there. With ``TF_CPP_MIN_LOG_LEVEL`` set to 0 or 1 they are shown
    as they come. Other output to standard error is shown a moment later. The notes are lost only if the process dies
    here, on a processor that TensorFlow is not built for.
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
    """Import TensorFlow; return whether it leaves a graphics card unused."""
    import tensorflow as tf

    # This writes the error about CUDA. It opens no device, so the numbers of threads can still be chosen.
    found = tf.config.list_physical_devices('GPU')
    return not found and os.path.exists(_DRIVER)


def _load_without_notes() -> None:
    """Redirect file descriptor 2 to a file while TensorFlow loads, then show what is not a note of TensorFlow."""
    with contextlib.ExitStack() as stack:
        try:
            real = os.dup(2)
            stack.callback(os.close, real)
            held = stack.enter_context(tempfile.TemporaryFile())
        except OSError:  # no standard error, as under pythonw, or no room for a file
            _load()
            return
        with contextlib.suppress(AttributeError, OSError, ValueError):  # it may be None, or closed
            sys.stderr.flush()
        os.dup2(held.fileno(), 2)
        show_notes = True
        try:
            show_notes = _load()
        except KeyboardInterrupt:  # the notes do not explain it
            show_notes = False
            raise
        finally:
            os.dup2(real, 2)
            held.seek(0)
            with contextlib.suppress(OSError), open(2, 'wb', closefd=False) as screen:
                screen.writelines(line for line in held if show_notes or not _NOTE.match(line))
