"""Network specs, ``dict(hidden=[64, 64], activation='tanh')``: completed and checked."""

from __future__ import annotations

import copy
import functools
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from zoo.common.tools.errors import InvalidValue, unknown

log = logging.getLogger('zoo')

SPEC_DEFAULTS: dict[str, Any] = {
    'hidden': (64, 64),
    'activation': 'tanh',
    'initializer': 'glorot_uniform',
    'features': 512,
    'layers': 'keras',
    'seed': None,
    'normalize': None,
    'recurrent': None,
    'recurrent_units': None,
    'dtype': 'float32',
}

LAYERS = ('keras', 'tensorlayer')

RECURRENT = ('lstm', 'gru')

#: What ``normalize`` may name.
NORMALIZATIONS = ('batch_renorm', 'layer_norm', 'pre_layer_norm')

#: Keras' dtype policies in which networks are assembled.
DTYPES = ('float32', 'mixed_bfloat16')

#: What is wrong with other policies that users may ask for.
_WRONG_WITH = {
    'float16': ', whose gradients vanish without loss scaling',
    'mixed_float16': ', whose gradients vanish without loss scaling',
    'bfloat16': ', whose weights would be too coarse for small steps',
}


def full_spec(spec: dict[str, Any], entry: str) -> dict[str, Any]:
    """The spec with defaults filled in.

    Raises:
        ValueError: an unknown key, kind of layers, dtype, activation, initializer or normalization, units that are not
            positive whole numbers, or a seed that is not a whole number.
    """
    for key in spec:
        if key not in SPEC_DEFAULTS:
            raise InvalidValue(f'{entry}: {unknown("key of a network spec", key, SPEC_DEFAULTS)}')
    full = {**SPEC_DEFAULTS, **spec}
    if full['layers'] not in LAYERS:
        raise InvalidValue(f'{entry}: {unknown("kind of layers", full["layers"], LAYERS)}')
    check_dtype(full['dtype'], full['layers'], entry)
    check_normalize(full['normalize'], full['layers'], entry)
    if not isinstance(full['hidden'], list | tuple):
        raise InvalidValue(f'{entry}: hidden is {full["hidden"]!r}; give the units of each layer, such as [64, 64].')
    if full['seed'] is not None and (not isinstance(full['seed'], int | np.integer) or full['seed'] < 0):
        raise InvalidValue(f'{entry}: seed is {full["seed"]!r}; give a whole number from 0 on, or None.')
    check_recurrent(full['recurrent'], entry)
    if full['recurrent_units'] is not None and full['recurrent'] is None:
        raise InvalidValue(
            f"{entry}: recurrent_units belongs to a recurrent layer: give recurrent='lstm' or 'gru' too."
        )
    if full['recurrent'] is not None and full['recurrent_units'] is None and not full['hidden']:
        full['recurrent_units'] = full['features']
    of_cells = [] if full['recurrent_units'] is None else [full['recurrent_units']]
    for units in (*full['hidden'], full['features'], *of_cells):
        if not isinstance(units, int | np.integer) or units < 1:
            raise InvalidValue(f'{entry}: a layer of {units!r} units cannot be made; give positive whole numbers.')
    for kind, getter in (('activation', keras.activations.get), ('initializer', keras.initializers.get)):
        if not isinstance(full[kind], str | None):  # a name, since specs are written to checkpoints
            raise InvalidValue(f'{entry}: {kind} is {full[kind]!r}; give its name in keras.{kind}s.')
        try:
            getter(full[kind])
        except (ValueError, TypeError):
            raise InvalidValue(
                f'{entry}: Keras has no {kind} {full[kind]!r}; see keras.{kind}s for their names.'
            ) from None
    return full


def check_normalize(normalize: Any, layers: str, entry: str) -> None:
    """Refuse a normalization that cannot be assembled with these layers, by a ValueError that begins with ``entry``."""
    if normalize is None:
        return
    if normalize not in NORMALIZATIONS:
        raise InvalidValue(f'{entry}: normalize is {normalize!r}; give {", ".join(map(repr, NORMALIZATIONS))} or None.')
    if layers == 'tensorlayer':
        raise InvalidValue(
            f'{entry}: normalize={normalize!r} is a Keras layer, which cannot stand between TensorLayer layers: give '
            "layers='keras'."
        )


def check_recurrent(recurrent: Any, entry: str) -> None:
    """Refuse a kind of recurrent layer that a spec cannot have, by a ValueError that begins with ``entry``."""
    if recurrent is not None and recurrent not in RECURRENT:
        raise InvalidValue(f'{entry}: recurrent is {recurrent!r}; give {" or ".join(map(repr, RECURRENT))}, or None.')


def recurrent_units(spec: dict[str, Any]) -> int:
    """Units of the recurrent layer of a full spec."""
    return int(spec['recurrent_units'] or spec['hidden'][-1])


def check_dtype(dtype: Any, layers: str, entry: str) -> None:
    """Refuse a dtype that these layers cannot have, by a ValueError that begins with ``entry``."""
    if not isinstance(dtype, str) or dtype not in DTYPES:  # a name, since specs are written to checkpoints
        wrong = _WRONG_WITH.get(dtype, '') if isinstance(dtype, str) else ''
        names = ' or '.join(map(repr, DTYPES))
        raise InvalidValue(f'{entry}: dtype is {dtype!r}{wrong}: give its name, {names}, or leave it out.')
    if layers == 'tensorlayer' and dtype != 'float32':
        raise InvalidValue(
            f"{entry}: TensorLayer's layers compute only in float32, not in {dtype!r}, which is Keras' global policy "
            "if the spec has no dtype: give dtype='float32', or layers='keras'."
        )


def with_default(spec: dict[str, Any], default: dict[str, Any]) -> dict[str, Any]:
    """The spec, completed by an algorithm's default, but for a normalization that TensorLayer's layers cannot have."""
    if spec.get('layers') == 'tensorlayer':
        default = {key: value for key, value in default.items() if key != 'normalize'}
    return copy.deepcopy(default) | spec


def with_dtype(spec: dict[str, Any], entry: str) -> dict[str, Any]:
    """The spec with its dtype: Keras' global policy if the spec names none.

    An agent calls this once, when it is made, and keeps the result. So its targets and twins, loaded agents and other
    processes have the same dtype, whatever the policy is there.

    Raises:
        ValueError: networks cannot be assembled under Keras' global policy.
    """
    if 'dtype' in spec:
        return spec
    policy = keras.config.dtype_policy().name
    if policy not in DTYPES:
        raise InvalidValue(
            f"{entry} would be made under Keras' dtype policy {policy!r}, but networks are assembled in "
            f'{" or ".join(DTYPES)}: name the dtype in the spec, or call keras.config.set_dtype_policy before the '
            'agent is made.'
        )
    return {**spec, 'dtype': policy}


#: Time of a product of 256 × 256 matrices in bfloat16, with both casts, relative to float32, by the first of these
#: flags of /proc/cpuinfo that a processor has (benchmarks/bfloat16.py).
_TIMES_FLOAT32 = {'avx512_bf16': 2.1, 'avx512f': 5.9, '': 1.3}

#: Flags of processors that gain by bfloat16: AMX of x86, and bfloat16 of ARM.
_GAINS = {'amx_bf16', 'bf16'}


@functools.cache
def warn_where_slow() -> None:
    """Warn, once in a process, if mixed precision is slower than float32 on this processor.

    It does not warn with a GPU, nor on systems other than Linux, where it cannot know.
    """
    flags = processor_flags()
    if not flags or flags & _GAINS or tf.config.list_physical_devices('GPU'):
        return
    log.warning(
        'mixed_bfloat16 is likely to be slower than float32 on this processor: on processors with its instructions a '
        '256 x 256 x 256 product took %g times as long.',
        next(times for flag, times in _TIMES_FLOAT32.items() if flag in flags or not flag),
    )


def processor_flags() -> set[str]:
    """The processor's flags in /proc/cpuinfo; empty if there is no such file."""
    try:
        lines = Path('/proc/cpuinfo').read_text().splitlines()
    except OSError:
        return set()
    return next((set(x.partition(':')[2].split()) for x in lines if x.startswith(('flags', 'Features'))), set())


def with_own_seeds(entries: Sequence[Any], names: Sequence[str]) -> list[Any]:
    """The entries of ``net_list``, where a spec gets another seed if a network of the same kind has that seed already.

    Two critics (``critic_1``, ``critic_2``) that start equal and learn from the same batches would stay equal. Seeds
    that differ are kept, and so are the initial weights.
    """
    found, taken = [], set()
    for i, (entry, name) in enumerate(zip(entries, names, strict=True)):
        seed = entry.get('seed') if isinstance(entry, dict) else None
        if isinstance(seed, int | np.integer) and seed >= 0:
            place = (name.rstrip('_0123456789'), int(seed))
            if place in taken:
                entry = {**entry, 'seed': int(np.random.SeedSequence([int(seed), i]).generate_state(1)[0])}
            taken.add(place)
        found.append(entry)
    return found
