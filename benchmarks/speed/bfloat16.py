"""bfloat16 beside float32, on this processor and with some of its instructions kept from use.

    python benchmarks/speed/bfloat16.py       # under a minute; writes results/bfloat16.md

Two things rest on this table: the line that zoo logs on a slow processor (in ``zoo/common/networks/spec.py``), and
what ``zoo/common/networks/layers/dense.py`` rounds. Each row is measured in a process of its own with one thread: a
chain of operations in one ``tf.function``, and the best of some calls.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where common.py is
from common import answer_of, environment, header, parser_of, row, show, stamp, write_page

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
    print(json.dumps(found), flush=True)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument('--worker', action='store_true', help=argparse.SUPPRESS)
    if parser.parse_args().worker:
        work()
        return
    lines = [
        '# bfloat16 beside float32',
        '',
        '`python benchmarks/speed/bfloat16.py`, one thread, no GPU. Microseconds in float32 / in bfloat16, for '
        f'{SIDE} × {SIDE} numbers, and how many times as long the latter takes. The casts of both factors and of the '
        'result belong to the product in bfloat16.',
        '',
        *header('instructions', 'product', 'gradient of relu', "bias' gradient"),
    ]
    for name, kept in PROCESSORS.items():
        found = answer_of([sys.executable, __file__, '--worker'], environment(**kept))
        show(lines, row(name, *(f'{a:,.0f} / {b:,.0f}: **{b / a:.2g}**' for a, b in found.values())))
    write_page('bfloat16', [*lines, '', f'Run on {stamp("tensorflow")}.'])


if __name__ == '__main__':
    main()
