"""Default hyper-parameters: one file for each algorithm, each a table of plain data.

A table has three levels: ``COMMON``, ``TYPES`` by environment type, and ``TUNED`` by environment id. A later level
overrides an earlier one. An EnvPool task takes the level of the type that it is like, see
:func:`zoo.common.envs.names.table_type`. The keys are the parameters of the algorithm and of its ``learn``, and

* ``network``: keys of the network spec (:mod:`zoo.common.networks`);
* ``networks``: changes for some networks, by name without number: ``{'critic': {'hidden': [2048, 2048]}}``;
* ``optimizer``: keys of the optimizer spec (:class:`zoo.common.maths.optimizers.Optimizer`);
* ``optimizers``: changes for some optimizers, by name: ``{'actor': {'learning_rate': 1e-4}}``;
* ``recurrent``: changes for recurrent networks, a table of the same keys;
* ``nenv``: the number of copies of the environment that ``horizon`` is meant for; 1 without it;
* ``rollout_size``: on-policy algorithms: steps of one iteration, summed over copies. ``horizon`` is this divided by the
  number of copies, so that the defaults mean the same for every ``nenv``.

"RL Baselines3 Zoo" in a table means its tuned hyper-parameters: DLR-RM/rl-baselines3-zoo, commit 22e3ff2, MIT license.
Where a table departs from that source, a comment says so.

A user's own defaults come after all tables, see :mod:`zoo.algorithms.base.own_defaults`.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import Env, Space
from gymnasium.vector import VectorEnv

from zoo import algorithms
from zoo.algorithms.base.own_defaults import own_defaults_for
from zoo.common.adaptors.observation import features
from zoo.common.env_wrappers import TYPES
from zoo.common.envs.about import about, note_defaults
from zoo.common.envs.goals import is_goal_environment
from zoo.common.envs.names import table_type
from zoo.common.replay.hindsight import Strategy
from zoo.common.tools.checks import is_integer, whole
from zoo.common.tools.errors import InvalidValue, unknown
from zoo.common.tools.params import ParamDict

log = logging.getLogger('zoo')

#: After convolutions one dense layer is enough (Mnih et al. 2015). One more layer mixes images with other observations.
_IMAGE = {'hidden': [], 'activation': 'relu'}
_IMAGE_AND_MORE = {'hidden': [256], 'activation': 'relu'}

#: Transitions with images in a replay buffer: a million of them would be 20 to 60 GB.
_IMAGE_BUFFER = 100_000


def call_default_params(
    env: Env | VectorEnv,
    env_type: str | None = None,
    alg: str = '',
    seed: int | None = None,
    layers: str = 'keras',
    dtype: str | None = None,
    recurrent: str | None = None,
) -> tuple[ParamDict, ParamDict]:
    """Return the default hyper-parameters of an algorithm for an environment, as two dicts to edit.

    Args:
        env: from ``build_env``.
        env_type: the type it was built with; None asks the environment, which knows it if ``build_env`` made it.
        alg: name of the algorithm, such as ``'TD3'``.
        seed: fixes the initial weights, and goes into ``learn_params``.
        layers: ``'keras'`` or ``'tensorlayer'``, the kind of layers in the networks.
        dtype: ``'float32'`` or ``'mixed_bfloat16'`` (:mod:`zoo.common.networks`). None takes Keras' global dtype
            policy, ``keras.config.set_dtype_policy``, when the agent is made.
        recurrent: ``'lstm'`` or ``'gru'`` adds such a layer, which keeps a state along an episode, for tasks where one
            observation does not show all that matters.

    Returns:
        ``alg_params`` for the constructor and ``learn_params`` for ``learn``, both complete. ``net_list`` and
        ``optimizers_list`` hold specs: edit these dicts, or replace them by networks and optimizers.

    Raises:
        ValueError: no environment; an unknown algorithm, environment type, kind of layers, dtype or recurrent layer; a
            space that the algorithm cannot act in; an algorithm that cannot be recurrent.
    """
    if env is None:
        raise InvalidValue(
            'call_default_params needs an environment: make it with build_env. Without an environment, '
            'zoo.train(alg, dataset=…) takes the default parameters.'
        )
    if not isinstance(env, Env | VectorEnv):
        raise InvalidValue(
            f'call_default_params needs an environment, not {env!r}: make it with build_env({env!r}) first.'
        )
    if not alg and env_type in algorithms.NAMES:
        raise InvalidValue(f'{env_type!r} is given where the type of the environment belongs: say alg={env_type!r}.')
    alg = algorithms.check_name(alg)
    if seed is not None and not is_integer(seed, 0):
        raise InvalidValue(f'seed is {seed!r}: give a whole number of at least 0, or None for random weights.')
    env_type = about(env).type if env_type is None else env_type
    if env_type is None:
        raise InvalidValue(
            f'build_env did not make this environment, so its type is not known: give one of {", ".join(TYPES)}.'
        )
    if env_type not in TYPES:
        raise InvalidValue(unknown('environment type', env_type, TYPES))
    built = about(env).type
    if built not in (None, 'gymnasium') and env_type not in ('gymnasium', built, table_type(built, about(env).name)):
        told = f'the environment is of type {built!r}, and the defaults of {env_type!r} do not belong to it'
        raise InvalidValue(f'{told}: leave the type out.')
    if layers not in ('keras', 'tensorlayer'):
        raise InvalidValue(unknown('kind of layers', layers, ('keras', 'tensorlayer')))
    if isinstance(env, VectorEnv):
        observation_space, action_space, num_envs = env.single_observation_space, env.single_action_space, env.num_envs
    else:
        observation_space, action_space, num_envs = env.observation_space, env.action_space, 1
    spec = getattr(env, 'spec', None)
    env_id = spec.id if spec else about(env).name  # environments in JAX have no spec
    found = defaults_in(
        alg,
        observation_space,
        action_space,
        num_envs,
        env_type,
        env_id,
        lambda: is_goal_environment(env),
        seed,
        layers,
        dtype,
        recurrent,
    )
    own = own_defaults_for(alg, env_type, about(env).name, env_id)
    given = {} if own is None else own.checked()
    table = _table(alg)
    copies = given.pop('nenv', _merged(table, env_type, env_id, recurrent).get('nenv', num_envs))
    if copies != num_envs:
        log.warning(
            "%s's default settings%s are meant for %d copies of the environment (nenv=%d); here %s.",
            alg,
            f' for {env_id}' if env_id in table.TUNED else '',
            copies,
            copies,
            'is one' if num_envs == 1 else f'are {num_envs}',
        )
    if own is not None:
        _apply(given, getattr(algorithms, alg), *found)
        note_defaults(env, alg, own.as_json())
        log.info('Your own defaults of %s for %s: %s.', alg, own.environment, own)
    return found


def defaults_in(
    alg: str,
    observation_space: Space[Any],
    action_space: Space[Any],
    num_envs: int,
    env_type: str,
    env_id: str,
    has_goals: Callable[[], bool],
    seed: int | None = None,
    layers: str = 'keras',
    dtype: str | None = None,
    recurrent: str | None = None,
) -> tuple[ParamDict, ParamDict]:
    """Return zoo's own defaults, as `call_default_params` does, for an environment that need not be built.

    A user's own defaults (``ZOO_DEFAULTS``) have no part in them.

    Args:
        alg, seed, layers, dtype, recurrent: as there.
        observation_space, action_space: of one copy.
        num_envs: copies of the environment.
        env_type, env_id: its type, and its name in the tables; empty if it has none.
        has_goals: whether hindsight experience replay applies to it; called only where that matters.

    Raises:
        ValueError: as there.
    """
    cls = getattr(algorithms, alg)
    cls.check_action_space(action_space)

    if dtype is not None:
        from zoo.common.networks.spec import check_dtype

        check_dtype(dtype, layers, 'call_default_params')

    if recurrent is not None:
        from zoo.common.networks.spec import check_recurrent

        check_recurrent(recurrent, 'call_default_params')
        cls.check_recurrent(f'the network of recurrent={recurrent!r}')

    merged = _merged(_table(alg), env_type, env_id, recurrent)
    if recurrent is not None:  # recurrent policies have no state-dependent exploration
        merged.pop('use_sde', None)
        merged.pop('sde_sample_freq', None)
    network, optimizer = merged.pop('network'), merged.pop('optimizer')
    special, special_optimizers = merged.pop('networks', {}), merged.pop('optimizers', {})
    if dtype is not None:
        network['dtype'] = dtype
    found = features(observation_space)
    images = any(item.kind == 'image' for item in found)
    if images:
        network |= _IMAGE if len(found) == 1 else _IMAGE_AND_MORE
        special = {name: {k: x for k, x in entry.items() if k == 'recurrent'} for name, entry in special.items()}
        if 'buffer_size' in merged:
            merged['buffer_size'] = min(merged['buffer_size'], _IMAGE_BUFFER)
    if kinds := [entry['normalize'] for entry in (network, *special.values()) if entry.get('normalize')]:
        from zoo.common.networks.spec import check_normalize

        check_normalize(kinds[0], layers, f'call_default_params: {alg}')
    if not any(item.normalize for item in features(observation_space, True)):
        merged.pop('normalize_obs', None)
    merged.pop('nenv', None)
    if 'rollout_size' in merged:
        merged['horizon'] = max(1, merged.pop('rollout_size') // num_envs)

    alg_params: dict[str, Any] = {
        'observation_space': observation_space,
        'action_space': action_space,
        'net_list': [
            cls.shared_torso[name]
            if (images or recurrent) and name in cls.shared_torso
            else copy.deepcopy(network | special.get(name.rstrip('_0123456789'), {}))
            | {'layers': layers, 'seed': weights_seed(seed, i)}
            for i, name in enumerate(cls.network_names)
        ],
        'optimizers_list': [optimizer | special_optimizers.get(name, {}) for name in cls.optimizer_names],
    }
    for name, default in cls.params().items():
        if name not in alg_params:
            alg_params[name] = merged.pop(name, default)
    learn_params = cls.learn_params()
    learn_params = {name: merged.pop(name, default) for name, default in learn_params.items()}
    del learn_params['resume']  # what to do once, not a value to tune
    # Imitation has no use for rewards, and the goals of the data are those that were pursued.
    takes_goals = 'her' in learn_params and not cls.loop.needs_data and network.get('recurrent') is None
    if takes_goals and learn_params['her'] is None and has_goals():
        learn_params['her'] = dataclasses.asdict(Strategy())
    if seed is not None:
        learn_params['seed'] = seed
    assert not merged, f'the defaults of {alg} name {sorted(merged)}, which it does not take'
    return ParamDict(alg_params), ParamDict(learn_params)


def default_nenv(alg: str, env_type: str, env_id: str, with_own: bool = True) -> int:
    """Return how many copies of an environment an algorithm's defaults are meant for.

    ``with_own=False`` leaves a user's own defaults (``ZOO_DEFAULTS``) out.

    >>> default_nenv('A2C', 'classic_control', 'CartPole-v1')
    8
    """
    own = own_defaults_for(alg, env_type, env_id) if with_own else None
    copies: int = _merged(_table(alg), env_type, env_id, None).get('nenv', 1)
    return copies if own is None else whole(f"nenv in '{own.file}'", own.values.get('nenv', copies))


def _apply(own: dict[str, Any], cls: Any, alg_params: dict[str, Any], learn_params: dict[str, Any]) -> None:
    """Put a user's own defaults, checked, into the two dicts."""
    if 'net' in own:
        alg_params['net_list'] = networks(own.pop('net'), alg_params['net_list'])
    if 'learning_rate' in own and 'learning_rate' not in alg_params and 'learning_rate' not in learn_params:
        rate = own.pop('learning_rate')
        alg_params['optimizers_list'] = [entry | {'learning_rate': rate} for entry in alg_params['optimizers_list']]
    fit_exploration(cls, alg_params, own)
    for name, value in own.items():
        (alg_params if name in alg_params else learn_params)[name] = value


def fit_exploration(cls: Any, alg_params: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Let exploration follow the layers: the default of ``epsilon`` fits the table's choice of noisy layers."""
    if given.get('noisy') not in (None, alg_params.get('noisy')) and cls.params().get('epsilon', 0.0) is None:
        alg_params['epsilon'] = None


def networks(net: Any, default: Sequence[Any]) -> list[Any]:
    """Return the entries of ``net_list`` for the argument ``net`` of :func:`train`.

    A default entry that names another network, to share its torso, is not changed.
    """
    if isinstance(net, str):
        try:
            net = [int(part) for part in net.strip('[]').split(',')] if net != '[]' else []
        except ValueError:
            right = "the units of the hidden layers, such as '256,256', or '[]' for none"
            raise InvalidValue(f'net is {net!r}: give {right}.') from None
    if isinstance(net, Mapping):
        changes = dict(net)
    elif isinstance(net, list | tuple) and all(isinstance(units, int) and not isinstance(units, bool) for units in net):
        changes = {'hidden': list(net)}
    elif isinstance(net, list | tuple):
        return list(net)
    else:
        right = "'256,256', [256, 256], dict(hidden=[256, 256], activation='relu') or a net_list"
        raise InvalidValue(f'net is {net!r}: give {right}.')
    return [{**entry, **changes} if isinstance(entry, dict) else entry for entry in default]


def seeded(net_list: Any, seed: int | None) -> Any:
    """Return the entries of ``net_list``, where specs that name no seed have one that follows from ``seed``."""
    if not isinstance(net_list, list | tuple):
        return net_list  # the constructor refuses it
    return [
        {**entry, 'seed': weights_seed(seed, i)} if isinstance(entry, Mapping) and 'seed' not in entry else entry
        for i, entry in enumerate(net_list)
    ]


def _table(alg: str) -> Any:
    return importlib.import_module(f'zoo.default_params.{alg.lower()}')


def weights_seed(seed: int | None, i: int) -> int | None:
    """Return an independent seed for the initial weights of the ``i``-th network."""
    return None if seed is None else int(np.random.SeedSequence([seed, i]).generate_state(1)[0])


def _merged(table: Any, env_type: str, env_id: str, recurrent: str | None) -> dict[str, Any]:
    """Return the three levels in one dict. ``network``, ``optimizer``, ``networks`` and ``optimizers`` merge by key.

    The ``recurrent`` parts of the levels come after all levels.
    """
    levels = [table.COMMON, table.TYPES.get(table_type(env_type, env_id), {}), table.TUNED.get(env_id, {})]
    if recurrent is not None:
        levels += [level.get('recurrent', {}) for level in levels] + [{'network': {'recurrent': recurrent}}]
    merged: dict[str, Any] = {'network': {}, 'optimizer': {}}
    for level in levels:
        for key, value in level.items():
            if key in ('network', 'optimizer'):
                value = {**merged[key], **value}
            elif key in ('networks', 'optimizers'):
                before = merged.get(key, {})
                value = before | {name: before.get(name, {}) | entry for name, entry in value.items()}
            merged[key] = value
    merged.pop('recurrent', None)
    return merged
