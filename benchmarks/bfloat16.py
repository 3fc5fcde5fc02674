"""bfloat16 beside float32, on this processor and with some of its instructions kept from use.

    python benchmarks/bfloat16.py       # under a minute; writes results/bfloat16.md

What the line that zoo logs on a slow processor says (``_TIMES_FLOAT32`` in ``zoo/common/networks.py``) and what
``zoo/common/networks/layers/dense.py`` rounds is read off this table. Each row is measured in a process of its own
with one thread: a
chain of operations in one ``tf.function``, the best of some calls.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import time
from pathlib import Path

RESULT = Path(__file__).resolve().parent / 'results' / 'bfloat16.md'
SIDE, CHAIN, CALLS = 256, 50, 20

#: What keeps oneDNN from instructions, or TensorFlow from oneDNN, as it does without where there is no AVX-512.
PROCESSORS = {
    'all that this processor has': {},
    'AVX-512 with bfloat16': {'ONEDNN_MAX_CPU_ISA': 'AVX512_CORE_BF16'},
    'AVX-512': {'ONEDNN_MAX_CPU_ISA': 'AVX512_CORE'},
    'without oneDNN': {'TF_ENABLE_ONEDNN_OPTS': '0'},
}


def work() -> None:
    """The worker: print the microseconds of each operation in both dtypes."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    matrix = tf.random.normal([SIDE, SIDE], stddev=SIDE**-0.5)

    def product(x: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        return tf.cast(tf.matmul(tf.cast(x, dtype), tf.cast(matrix, dtype)), tf.float32)

    def activation(x: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        return tf.raw_ops.ReluGrad(gradients=x, features=tf.cast(matrix, dtype))

    def bias(x: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        return tf.raw_ops.BiasAddGrad(out_backprop=x)

    def microseconds(operation: object, dtype: tf.DType, chained: bool) -> float:
        @tf.function(autograph=False)
        def chain(x: tf.Tensor) -> tf.Tensor:
            y = x
            for _ in range(CHAIN):
                with tf.control_dependencies([y]):  # one after another where none takes what the last one gave
                    y = operation(y if chained else x, dtype)
            return y

        x = matrix if operation is product else tf.cast(matrix, dtype)
        chain(x)
        seconds = []
        for _ in range(CALLS):
            begin = time.perf_counter()
            chain(x).numpy()
            seconds.append(time.perf_counter() - begin)
        return min(seconds) / CHAIN * 1e6

    operations = {'product': (product, True), 'activation': (activation, True), 'bias': (bias, False)}
    found = {
        name: [microseconds(operation, dtype, chained) for dtype in (tf.float32, tf.bfloat16)]
        for name, (operation, chained) in operations.items()
    }
    print(json.dumps({'found': found, 'tensorflow': tf.__version__}), flush=True)


def main() -> None:
    if sys.argv[1:] == ['--worker']:
        work()
        return
    lines = [
        '# bfloat16 beside float32',
        '',
        '`python benchmarks/bfloat16.py`, one thread, no GPU. Microseconds in float32 / in bfloat16, for '
        f'{SIDE} × {SIDE} numbers, and how many times as long the latter takes. The casts of both factors and of the '
        'result belong to the product in bfloat16.',
        '',
        "| instructions | product | gradient of relu | bias' gradient |",
        '|---|---|---|---|',
    ]
    for name, kept in PROCESSORS.items():
        done = subprocess.run(
            [sys.executable, __file__, '--worker'],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {'TF_CPP_MIN_LOG_LEVEL': '3'} | kept,
        )
        answer = json.loads(done.stdout.splitlines()[-1])
        cells = [f'{a:,.0f} / {b:,.0f}: **{b / a:.2g}**' for a, b in answer['found'].values()]
        lines.append(f'| {name} | {" | ".join(cells)} |')
        print(lines[-1], flush=True)
    lines += ['', f'TensorFlow {answer["tensorflow"]}. Run on {datetime.date.today().isoformat()}.', '']
    RESULT.write_text('\n'.join(lines), encoding='utf-8')


if __name__ == '__main__':
    main()
