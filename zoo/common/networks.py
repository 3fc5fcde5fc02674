"""The networks that the adaptors assemble from a small spec, of Keras layers or of TensorLayer layers.

A spec is a dict; every key has a default::

    dict(hidden=[256, 256],           # units of the dense layers
         activation='relu',           # any Keras activation
         initializer='glorot_uniform',# any Keras initializer; 'orthogonal' has gain sqrt(2)
         features=512,                # units after a convolutional encoder
         layers='keras',              # or 'tensorlayer'
         seed=None,                   # fixes the initial weights
         normalize=None,              # or 'batch_renorm': of what enters the hidden layers, and after each of them
         recurrent=None,              # or 'lstm' or 'gru': a recurrent layer after the hidden ones
         recurrent_units=None,        # of that layer; None: as many as the last hidden layer, or ``features``, has
         dtype='float32')             # or 'mixed_bfloat16'; Keras' global dtype policy where an agent's spec has none

What comes out ends before the head, which belongs to the algorithm (:mod:`zoo.common.adaptors.policy`).

Mixed precision is that of Keras: in ``'mixed_bfloat16'`` convolutions and wide dense layers of the torso round what
they are given and their weights to bfloat16, 8 bits in place of 24, and compute in it. The weights themselves stay
float32, and so does all that is not the torso: recurrent layers, heads, hence values and the parameters of
distributions, losses, optimisers, checkpoints, and the forward pass in NumPy by which chains of dense layers act. Dense
layers with a kernel of at most 128 × 128 entries, which would lose by it, stay float32 too (:mod:`zoo.common.dense`).
It pays on a processor that has AMX or a GPU that has bfloat16, for layers of some 256 units on batches of some hundred
rows, and for images. The figures are in ``benchmarks/results``.
"""

from __future__ import annotations

import functools
import logging
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from zoo.common.adaptors.observation import Feature
from zoo.common.batch_renorm import BatchRenormalization
from zoo.common.dense import Dense
from zoo.common.errors import unknown

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

#: Keras' dtype policies in which networks are assembled.
DTYPES = ('float32', 'mixed_bfloat16')

#: What is wrong with others that are likely to be asked for.
_WRONG_WITH = {
    'float16': ', whose gradients vanish where the loss is not scaled',
    'mixed_float16': ', whose gradients vanish where the loss is not scaled',
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
            raise ValueError(f'{entry}: {unknown("key of a network spec", key, SPEC_DEFAULTS)}')
    full = {**SPEC_DEFAULTS, **spec}
    if full['layers'] not in LAYERS:
        raise ValueError(f'{entry}: {unknown("kind of layers", full["layers"], LAYERS)}')
    check_dtype(full['dtype'], full['layers'], entry)
    check_normalize(full['normalize'], full['layers'], entry)
    if not isinstance(full['hidden'], list | tuple):
        raise ValueError(f'{entry}: hidden is {full["hidden"]!r}; give the units of each layer, such as [64, 64].')
    if full['seed'] is not None and (not isinstance(full['seed'], int | np.integer) or full['seed'] < 0):
        raise ValueError(f'{entry}: seed is {full["seed"]!r}; give a whole number from 0 on, or None.')
    check_recurrent(full['recurrent'], entry)
    if full['recurrent_units'] is not None and full['recurrent'] is None:
        raise ValueError(f"{entry}: recurrent_units belongs to a recurrent layer: give recurrent='lstm' or 'gru' too.")
    if full['recurrent'] is not None and full['recurrent_units'] is None and not full['hidden']:
        full['recurrent_units'] = full['features']
    of_cells = [] if full['recurrent_units'] is None else [full['recurrent_units']]
    for units in (*full['hidden'], full['features'], *of_cells):
        if not isinstance(units, int | np.integer) or units < 1:
            raise ValueError(f'{entry}: a layer of {units!r} units cannot be made; give positive whole numbers.')
    for kind, getter in (('activation', keras.activations.get), ('initializer', keras.initializers.get)):
        if not isinstance(full[kind], str | None):  # a name, since specs are written to checkpoints
            raise ValueError(f'{entry}: {kind} is {full[kind]!r}; give its name in keras.{kind}s.')
        try:
            getter(full[kind])
        except (ValueError, TypeError):
            raise ValueError(
                f'{entry}: Keras has no {kind} {full[kind]!r}; see keras.{kind}s for their names.'
            ) from None
    return full


def check_normalize(normalize: Any, layers: str, entry: str) -> None:
    """Refuse a normalisation with which such layers are not assembled.

    Raises:
        ValueError: one sentence, which begins with ``entry``.
    """
    if normalize is None:
        return
    if normalize != 'batch_renorm':
        raise ValueError(f"{entry}: normalize is {normalize!r}; give 'batch_renorm' or None.")
    if layers == 'tensorlayer':
        raise ValueError(
            f"{entry}: normalize='batch_renorm' is a layer of Keras, which does not go between those of TensorLayer: "
            "give layers='keras'."
        )


def check_recurrent(recurrent: Any, entry: str) -> None:
    """Refuse a recurrent layer that is not assembled.

    Raises:
        ValueError: one sentence, which begins with ``entry``.
    """
    if recurrent is not None and recurrent not in RECURRENT:
        raise ValueError(f'{entry}: recurrent is {recurrent!r}; give {" or ".join(map(repr, RECURRENT))}, or None.')


def recurrent_units(spec: dict[str, Any]) -> int:
    """Units of the recurrent layer of a full spec."""
    return int(spec['recurrent_units'] or spec['hidden'][-1])


def check_dtype(dtype: Any, layers: str, entry: str) -> None:
    """Refuse a dtype in which such layers are not assembled.

    Raises:
        ValueError: one sentence, which begins with ``entry``.
    """
    if not isinstance(dtype, str) or dtype not in DTYPES:  # a name, since specs are written to checkpoints
        wrong = _WRONG_WITH.get(dtype, '') if isinstance(dtype, str) else ''
        names = ' or '.join(map(repr, DTYPES))
        raise ValueError(f'{entry}: dtype is {dtype!r}{wrong}: give its name, {names}, or leave it out.')
    if layers == 'tensorlayer' and dtype != 'float32':
        raise ValueError(
            f"{entry}: TensorLayer's layers compute in float32 alone, not in {dtype!r}, which is Keras' global policy "
            "if nothing else was named: give dtype='float32', or layers='keras'."
        )


def with_dtype(spec: dict[str, Any], entry: str) -> dict[str, Any]:
    """The spec with its dtype: Keras' global policy where it names none.

    An agent does that once, when it is made, and keeps what comes out, so that its targets, its twins, what is loaded
    and what other processes make of it are the same whatever the policy is there.

    Raises:
        ValueError: a policy in which networks are not assembled.
    """
    if 'dtype' in spec:
        return spec
    policy = keras.config.dtype_policy().name
    if policy not in DTYPES:
        raise ValueError(
            f"{entry} would be made under Keras' dtype policy {policy!r}, but networks are assembled in "
            f'{" or ".join(DTYPES)}: name the dtype in the spec, or call keras.config.set_dtype_policy before the '
            'agent is made.'
        )
    return {**spec, 'dtype': policy}


#: How long a product of 256 × 256 matrices takes in bfloat16, with the casts of both, in times of float32, by the first
#: of these flags of /proc/cpuinfo that a processor has; benchmarks/bfloat16.py measures it again.
_TIMES_FLOAT32 = {'avx512_bf16': 2.1, 'avx512f': 5.9, '': 1.3}

#: The flags of processors that gain: AMX of x86, and bfloat16 of ARM.
_GAINS = {'amx_bf16', 'bf16'}


@functools.cache
def warn_where_slow() -> None:
    """Say, once in a process, that mixed precision is slower than float32 on a processor that is not made for it.

    Nothing is said where that is not known: on another system than Linux, or with a GPU.
    """
    flags = _processor_flags()
    if not flags or flags & _GAINS or tf.config.list_physical_devices('GPU'):
        return
    log.warning(
        'mixed_bfloat16 is likely to be slower than float32 on this processor: with the instructions that it has for '
        'it a 256 x 256 x 256 product was measured to take %g times as long.',
        next(times for flag, times in _TIMES_FLOAT32.items() if flag in flags or not flag),
    )


def _processor_flags() -> set[str]:
    """What Linux says that the processor can; nothing where that is not known."""
    try:
        lines = Path('/proc/cpuinfo').read_text().splitlines()
    except OSError:
        return set()
    return next((set(x.partition(':')[2].split()) for x in lines if x.startswith(('flags', 'Features'))), set())


def with_own_seeds(entries: Sequence[Any], names: Sequence[str]) -> list[Any]:
    """The entries of ``net_list``, with another seed in a spec whose seed a network of the same kind has already.

    Two critics (``critic_1``, ``critic_2``) that start equal and learn from the same batches stay equal for ever. Seeds
    that differ are left alone, and with them the initial weights that they lead to.
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


def convolutions(height: int, width: int) -> list[tuple[int, int, int, str]]:
    """Filters, kernel, stride and padding of the convolutions that fit an image of this size (at least 8 × 8).

    From 64 pixels on the network of Mnih et al. (2015, Nature, Methods), after halving layers that bring larger images
    below 128; smaller images, where its strides would leave a single pixel, get halving 3 × 3 layers until at most
    5 pixels are left, as in the universe-starter-agent that A3C papers used on 42 × 42 frames.
    """
    layers: list[tuple[int, int, int, str]] = []
    side = min(height, width)
    if side >= 64:
        while max(height, width) > 128 and min(height, width) >= 128:
            layers.append((32, 3, 2, 'same'))
            height, width = -(-height // 2), -(-width // 2)
        return [*layers, (32, 8, 4, 'valid'), (64, 4, 2, 'valid'), (64, 3, 1, 'valid')]
    while side > 5:
        layers.append((32 if len(layers) < 2 else 64, 3, 2, 'same'))
        side = -(-side // 2)
    return layers


class SeedSequence:
    """Integer seeds for initialisers, one per call.

    Without a seed they come from Python's ``random``, as Keras' own do, so that ``keras.utils.set_random_seed`` fixes
    the head that is attached to a user's network too.
    """

    def __init__(self, seed: int | Sequence[int] | None) -> None:
        self._rng = np.random.default_rng(random.getrandbits(64) if seed is None else seed)

    def __call__(self) -> int:
        return int(self._rng.integers(2**31 - 1))


def initializer(name: str, seed: int, gain: float = np.sqrt(2.0)) -> Any:
    """A Keras initialiser with its seed; ``gain`` is that of the orthogonal one."""
    if name == 'orthogonal':
        return keras.initializers.Orthogonal(gain=gain, seed=seed)
    made = keras.initializers.get(name)
    config = made.get_config()
    if 'seed' in config:
        made = type(made).from_config({**config, 'seed': seed})
    return made


def activation_name(activation: Callable[..., Any]) -> str:
    """The name by which Keras knows an activation; empty for a function of the user's own, whatever its name."""
    name = getattr(activation, '__name__', '')
    return name if any(getattr(module, name, None) is activation for module in (keras.activations, tf.nn)) else ''


def keras_torso(features: Sequence[Feature], spec: dict[str, Any], extra: int = 0) -> keras.Model:
    """A Keras model from the features, in their order, to the last hidden layer.

    Features that are all vectors are joined by the caller, and the model is a plain ``Sequential`` of dense layers;
    otherwise it is a functional model of one input per feature.

    Args:
        features: what the observation adaptor gives.
        spec: a full spec.
        extra: length of a vector that joins the encoded observation, last: the action of a critic.
    """
    seeds, dtype = SeedSequence(spec['seed']), spec['dtype']
    if all(item.is_vector for item in features):
        width = sum(item.size for item in features) + extra
        layers = _hidden(spec, seeds) or [keras.layers.Identity(dtype='float32')]  # a Sequential needs one
        return keras.Sequential([keras.Input((width,), dtype='float32'), *layers])
    inputs, parts = [], []
    for i, item in enumerate(features):
        # TensorFlow takes few characters in a name, Keras none twice, and keys may be anything.
        name = f'obs{i}_{re.sub("[^A-Za-z0-9]+", "_", item.path)}'
        x = keras.Input(item.shape, dtype='int32' if item.kind == 'index' else 'float32', name=name)
        inputs.append(x)
        if item.kind == 'image':
            for j, (filters, kernel, stride, padding) in enumerate(convolutions(*item.shape[:2])):
                x = keras.layers.Conv2D(
                    filters,
                    kernel,
                    stride,
                    padding,
                    activation='relu',
                    kernel_initializer=initializer(spec['initializer'], seeds()),
                    dtype=dtype,
                    name=f'{name}_conv{j}',
                )(x)
            x = keras.layers.Flatten(dtype=dtype, name=f'{name}_flat')(x)
            x = Dense(
                spec['features'],
                activation='relu',
                kernel_initializer=initializer(spec['initializer'], seeds()),
                dtype=dtype,
                name=f'{name}_features',
            )(x)
        elif item.kind == 'index':
            x = keras.layers.Embedding(
                item.counts[0],
                embedding_width(item.counts[0]),
                embeddings_initializer=keras.initializers.RandomNormal(stddev=1.0, seed=seeds()),
                dtype='float32',
                name=f'{name}_embedding',
            )(x)
        parts.append(x)
    if extra:
        inputs.append(keras.Input((extra,), dtype='float32', name='action'))
        parts.append(inputs[-1])
    x = parts[0] if len(parts) == 1 else keras.layers.Concatenate(dtype='float32', name='join')(parts)
    for layer in _hidden(spec, seeds):
        x = layer(x)
    return keras.Model(inputs, x)


def _hidden(spec: dict[str, Any], seeds: SeedSequence) -> list[keras.layers.Layer]:
    normed = spec['normalize'] is not None
    layers: list[keras.layers.Layer] = [BatchRenormalization(name='input_norm')] if normed else []
    for i, units in enumerate(spec['hidden']):
        made = Dense(
            units,
            activation=spec['activation'],
            kernel_initializer=initializer(spec['initializer'], seeds()),
            dtype=spec['dtype'],
            name=f'hidden{i}',
        )
        layers += [made, BatchRenormalization(name=f'hidden{i}_norm')] if normed else [made]
    return layers


def embedding_width(count: int) -> int:
    """Width of the embedding of ``count`` values: the fourth root rule of thumb, eightfold, at most 128."""
    return min(128, 8 * int(np.ceil(count**0.25)))


def tensorlayer_torso(features: Sequence[Feature], spec: dict[str, Any], extra: int = 0) -> Any:
    """The same as :func:`keras_torso` as a static TensorLayer 2 model of one input per feature.

    Raises:
        ImportError: TensorLayer is not installed.
    """
    tl = _tensorlayer()
    seeds = SeedSequence(spec['seed'])
    act = keras.activations.get(spec['activation'])

    base: Any = tl.initializers.Initializer

    class Weights(base):
        """A Keras initialiser in TensorLayer's protocol, so that both kinds of layers start alike."""

        def __init__(self, made: Any) -> None:
            self.made = made

        def __call__(self, shape: Sequence[int], dtype: Any = tf.float32) -> tf.Tensor:
            return tf.convert_to_tensor(self.made(tuple(shape), 'float32'))

    def weights() -> Weights:
        return Weights(initializer(spec['initializer'], seeds()))

    inputs, parts = [], []
    for item in features:
        x = tl.layers.Input([None, *item.shape], dtype=tf.int32 if item.kind == 'index' else tf.float32)
        inputs.append(x)
        if item.kind == 'image':
            for filters, kernel, stride, padding in convolutions(*item.shape[:2]):
                size, strides = (kernel, kernel), (stride, stride)
                x = tl.layers.Conv2d(filters, size, strides, tf.nn.relu, padding.upper(), W_init=weights())(x)
            x = tl.layers.Flatten()(x)
            x = tl.layers.Dense(spec['features'], tf.nn.relu, weights())(x)
        elif item.kind == 'index':
            table = Weights(keras.initializers.RandomNormal(stddev=1.0, seed=seeds()))
            x = tl.layers.Embedding(item.counts[0], embedding_width(item.counts[0]), E_init=table)(x)
        parts.append(x)
    if extra:
        inputs.append(tl.layers.Input([None, extra]))
        parts.append(inputs[-1])
    x = parts[0] if len(parts) == 1 else tl.layers.Concat(-1)(parts)
    for units in spec['hidden']:
        x = tl.layers.Dense(units, act, weights())(x)
    model = tl.models.Model(inputs if len(inputs) > 1 else inputs[0], x)
    model.eval()  # it wants to know its mode, which makes no difference to these layers
    return model


def _tensorlayer() -> Any:
    try:
        import tensorlayer
    except ImportError as error:
        raise ImportError(
            f"networks of TensorLayer layers need the extra: pip install 'zoo-rl[tensorlayer]' ({error})."
        ) from error
    return tensorlayer


def torso(
    features: Sequence[Feature], spec: dict[str, Any], extra: int = 0
) -> tuple[Any, Callable[[list[tf.Tensor], bool], tf.Tensor]]:
    """The torso of a full spec, and the function that calls it: of the list of its features (and the action), and
    whether in training mode.

    What that function gives is float32, whatever the torso computes in, for a :class:`zoo.common.dense.Dense` or what
    joins the features is its last layer.
    """
    if spec['layers'] == 'tensorlayer':
        model = tensorlayer_torso(features, spec, extra)
        return model, lambda inputs, training: model(inputs if len(inputs) > 1 else inputs[0])
    model = keras_torso(features, spec, extra)
    if isinstance(model, keras.Sequential):

        def call(inputs: list[tf.Tensor], training: bool) -> tf.Tensor:
            return model(inputs[0] if len(inputs) == 1 else tf.concat(inputs, -1), training=training)

        return model, call
    return model, lambda inputs, training: model(inputs, training=training)


def rounds(torso: keras.Model) -> bool:
    """Whether a torso that was assembled computes anything in bfloat16."""
    return any(
        layer.rounds
        if isinstance(layer, Dense)
        else isinstance(layer, keras.layers.Conv2D) and layer.compute_dtype == 'bfloat16'
        for layer in torso.layers
    )


class NoisyDense(keras.layers.Layer):
    """A dense layer whose weights are drawn anew whenever it is given noise: ``(μ + σ ∘ ε) x``.

    Fortunato et al. 2018, *Noisy Networks for Exploration* (arXiv 1706.10295): factorised Gaussian noise (equations 10
    and 11), and the initial values of its section 3.2: μ uniform in ±1/√p and σ = σ₀/√p, for p inputs.

    Args:
        units: outputs.
        sigma: σ₀.
        seeds: of the initial kernel and bias.
    """

    def __init__(self, units: int, sigma: float, seeds: tuple[int, int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units = units
        self.sigma = sigma
        self.seeds = seeds

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        width = input_shape[-1]
        assert width is not None
        bound = width**-0.5
        mean = [keras.initializers.RandomUniform(-bound, bound, seed) for seed in self.seeds]
        deviation = keras.initializers.Constant(self.sigma * bound)
        self.kernel = self.add_weight(shape=(width, self.units), initializer=mean[0], name='kernel')
        self.bias = self.add_weight(shape=(self.units,), initializer=mean[1], name='bias')
        self.noise_kernel = self.add_weight(shape=(width, self.units), initializer=deviation, name='noise_kernel')
        self.noise_bias = self.add_weight(shape=(self.units,), initializer=deviation, name='noise_bias')
        self.built = True

    @property
    def noise_size(self) -> int:
        """Normal numbers that one draw of the weights takes: one for each input and each output."""
        return self.kernel.shape[0] + self.units

    def call(self, inputs: Any, noise: Any = None) -> Any:
        """Outputs ``[B, units]`` for ``[B, p]``.

        Args:
            inputs: float32.
            noise: normal numbers ``[1, noise_size]``, one draw for all rows, or ``[B, noise_size]``, one for each; None
                takes the mean weights μ.
        """
        kernel, bias = tf.convert_to_tensor(self.kernel), tf.convert_to_tensor(self.bias)
        if noise is None:
            return tf.nn.bias_add(tf.matmul(inputs, kernel), bias)
        noise_kernel, noise_bias = tf.convert_to_tensor(self.noise_kernel), tf.convert_to_tensor(self.noise_bias)
        before, after = tf.split(tf.sign(noise) * tf.sqrt(tf.abs(noise)), [self.noise_size - self.units, self.units], 1)
        if noise.shape[0] == 1:  # one draw for all rows takes one product
            kernel += noise_kernel * (tf.transpose(before) * after)
            return tf.nn.bias_add(tf.matmul(inputs, kernel), bias + noise_bias * after[0])
        # The noise of a weight is the product of its input's and its output's: no kernel has to be made for each row.
        noisy = tf.nn.bias_add(tf.matmul(inputs * before, noise_kernel), noise_bias)
        return tf.nn.bias_add(tf.matmul(inputs, kernel), bias) + noisy * after


class DuelingHead(keras.layers.Layer):
    """Q(s, a) = V(s) + A(s, a) − mean over a of A(s, a): Wang et al. 2016, equation 9.

    With several numbers for each action, the atoms or quantiles of a distribution, that holds of each of them by
    itself: Hessel et al. 2018 (arXiv 1710.02298), section 3.

    Args:
        value: the layer of V, ``values`` outputs.
        advantage: the layer of A, ``values`` outputs for each action.
        values: numbers for each action.
    """

    def __init__(self, value: keras.layers.Layer, advantage: keras.layers.Layer, values: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.value = value
        self.advantage = advantage
        self.values = values

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        self.value.build(input_shape)
        self.advantage.build(input_shape)
        self.built = True

    def call(self, inputs: Any, noise: Any = None) -> Any:
        """Outputs ``[B, actions · values]``, those of an action side by side; ``noise`` is that of both layers."""
        if noise is None:
            value, advantage = self.value(inputs), self.advantage(inputs)
        else:
            first, second = tf.split(noise, [self.value.noise_size, self.advantage.noise_size], 1)
            value, advantage = self.value(inputs, first), self.advantage(inputs, second)
        if self.values == 1:
            return value + advantage - tf.reduce_mean(advantage, -1, keepdims=True)
        each = tf.reshape(advantage, [-1, advantage.shape[-1] // self.values, self.values])
        joined = value[:, tf.newaxis] + each - tf.reduce_mean(each, 1, keepdims=True)
        return tf.reshape(joined, [-1, advantage.shape[-1]])
