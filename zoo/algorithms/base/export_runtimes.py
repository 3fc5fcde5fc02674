"""Write and run a TensorFlow function of named tensors with a free first axis as SavedModel, LiteRT or ONNX."""

from __future__ import annotations

import contextlib
import importlib.metadata
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.common.tools.errors import MissingPackage

#: Version of ONNX's operators, from 2021: every runtime of today has them.
OPSET = 17

#: Arrays by name, in and out.
Run = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]


@dataclass(frozen=True)
class Runtime:
    """One form of a model.

    Attributes:
        title: its name for messages.
        file: the model's file in the folder; ``'.'``: the folder itself is the model.
        float32: whether it computes in float32 only, whatever dtypes it takes and gives.
        write: ``write(function, specs, folder)`` writes a ``tf.function`` of positional tensors that gives a dict;
            ``specs`` has the tensors' names and dtypes.
        load: ``load(folder)`` gives a function that runs the model, and what runs it (``'onnxruntime 1.23.0'``); or
            None, where nothing is installed that can.
    """

    title: str
    file: str
    float32: bool
    write: Callable[[Any, Sequence[tf.TensorSpec], Path], None]
    load: Callable[[Path], tuple[Run, str] | None]


def _write_savedmodel(function: Any, specs: Sequence[tf.TensorSpec], folder: Path) -> None:
    module = tf.Module()
    concrete = function.get_concrete_function(*specs)
    module.kept = list(concrete.graph.variables)  # a SavedModel holds only these
    with _quiet('tensorflow'):
        tf.saved_model.save(module, str(folder), signatures={'serving_default': concrete})


def _load_savedmodel(folder: Path) -> tuple[Run, str]:
    model = tf.saved_model.load(str(folder))
    call = model.signatures['serving_default']

    def run(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        assert model is not None  # its variables live as long as the model
        found = call(**{name: tf.convert_to_tensor(x) for name, x in inputs.items()})
        return {name: x.numpy() for name, x in found.items()}

    return run, f'tensorflow {tf.__version__}'


def _write_litert(function: Any, specs: Sequence[tf.TensorSpec], folder: Path) -> None:
    with tempfile.TemporaryDirectory() as saved, _quiet('tensorflow'):
        _write_savedmodel(function, specs, Path(saved))
        converter = tf.lite.TFLiteConverter.from_saved_model(saved, signature_keys=['serving_default'])
        (folder / LITERT.file).write_bytes(converter.convert())


def _load_litert(folder: Path) -> tuple[Run, str]:
    try:
        from ai_edge_litert.interpreter import Interpreter

        version = f'ai-edge-litert {importlib.metadata.version("ai-edge-litert")}'
    except ImportError:
        Interpreter, version = tf.lite.Interpreter, f'tensorflow {tf.__version__}'
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # TensorFlow warns that its interpreter will be removed
        interpreter = Interpreter(model_path=str(folder / LITERT.file))
    runner = interpreter.get_signature_runner('serving_default')
    return (lambda inputs: runner(**inputs)), version


def _write_onnx(function: Any, specs: Sequence[tf.TensorSpec], folder: Path) -> None:
    try:
        import onnx
        import tf2onnx
    except ImportError as error:
        raise MissingPackage(f"exporting to ONNX needs the extra: pip install 'zoo-rl[export]' ({error}).") from error
    with _quiet('tensorflow', 'tf2onnx'):
        model, _ = tf2onnx.convert.from_function(function, input_signature=list(specs), opset=OPSET)
    onnx.checker.check_model(model)  # tf2onnx passes on operations that it does not know
    (folder / ONNX.file).write_bytes(model.SerializeToString())


def _load_onnx(folder: Path) -> tuple[Run, str] | None:
    try:
        import onnxruntime
    except ImportError:
        return None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(folder / ONNX.file), options, providers=['CPUExecutionProvider'])
    names = [output.name for output in session.get_outputs()]

    def run(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return dict(zip(names, session.run(names, inputs), strict=True))

    return run, f'onnxruntime {onnxruntime.__version__}'


@contextlib.contextmanager
def _quiet(*names: str) -> Iterator[None]:
    """Silence these loggers below an error."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


SAVEDMODEL = Runtime('SavedModel', '.', False, _write_savedmodel, _load_savedmodel)
LITERT = Runtime('LiteRT', 'model.tflite', True, _write_litert, _load_litert)
ONNX = Runtime('ONNX', 'model.onnx', False, _write_onnx, _load_onnx)

RUNTIMES = {'savedmodel': SAVEDMODEL, 'litert': LITERT, 'onnx': ONNX}
