"""How an agent is built: from the entries of ``net_list`` and ``optimizers_list`` to networks and optimizers."""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf

from zoo.common.adaptors.observation import Preprocess
from zoo.common.maths.optimizers import Optimizer
from zoo.common.networks import pairs
from zoo.common.networks.build import build_network, build_on
from zoo.common.networks.heads import Head
from zoo.common.networks.network import Network, variables_of
from zoo.common.networks.spec import with_default, with_dtype, with_own_seeds
from zoo.common.tools.errors import InvalidType, InvalidValue, a_type

log = logging.getLogger('zoo')


def entries(
    what: str,
    given: Sequence[Any] | None,
    default: dict[str, Any],
    names: Sequence[str],
    algorithm: str,
    hint: str = '',
) -> list[Any]:
    """Give one entry for each name: the user's, or the default. Refuse another number, and what is no list.

    ``hint`` ends the message that there are too few.
    """
    listed = ', '.join(names)
    if given is not None and not isinstance(given, list | tuple):
        entries = 'an entry for each of ' if len(names) > 1 else 'one entry, for '
        raise InvalidValue(f'{what} is {a_type(given)}: give a list with {entries}{listed}{hint}.')
    found = [default] * len(names) if given is None else list(given)
    if len(found) != len(names):
        hint = hint if len(found) < len(names) else ''
        counted = '1 entry' if len(found) == 1 else f'{len(found)} entries'
        raise InvalidValue(f'{what} has {counted}, but {algorithm} takes {len(names)}: {listed}{hint}.')
    return found


def one_for_both(shared_torso: Mapping[str, str]) -> str:
    """Give the end of a sentence, with the line for a network that serves two, where networks may share a torso."""
    return ''.join(f'; for one network of policy and value write [network, {x!r}]' for x in shared_torso.values())


def with_pairs(given: Sequence[Any], names: Sequence[str], shared_torso: Mapping[str, str]) -> list[Any]:
    """Give the entries, where one network that serves two is in the place of the first, and its name in the other's."""
    found = list(given)
    for name, other in shared_torso.items():
        if name in names:
            i, j = names.index(other), names.index(name)
            both = pairs.with_both(found[i], found[j])
            if both is not None:
                found[i], found[j] = both, other
    return found


def label(i: int, name: str) -> str:
    """Give the name of an entry of ``net_list`` for messages."""
    return f'net_list[{i}] ({name})'


def completed(given: Sequence[Any], names: Sequence[str], default: Callable[[str], dict[str, Any]]) -> list[Any]:
    """Give the entries of ``net_list`` with dtype and what the algorithm's default sets written into every spec."""
    return [
        with_dtype(with_default(entry, default(name)), label(i, name)) if isinstance(entry, dict) else entry
        for i, (entry, name) in enumerate(zip(given, names, strict=True))
    ]


def networks(
    given: Sequence[Any], heads: Mapping[str, Head], preprocess: Preprocess, shared_torso: Mapping[str, str]
) -> dict[str, Network]:
    """Build the networks, by name, and refuse entries that do not fit, or that share weights.

    Args:
        given: an entry for each network.
        heads: what each network has to give, by name.
        shared_torso: networks that may share the torso of another one, and which.
    """
    made: dict[str, Network] = {}
    entries = with_own_seeds(given, tuple(heads))
    heads = dict(heads)
    for name, other in shared_torso.items():
        if name in heads:
            heads[other] = replace(heads[other], beside=heads[name])
    for i, ((name, head), entry) in enumerate(zip(heads.items(), entries, strict=True)):
        if isinstance(entry, str):
            made[name] = _on_torso(entry, label(i, name), head, made, given, bool(shared_torso))
        else:
            made[name] = build_network(entry, label(i, name), preprocess, head)
            _check_both_are_used(made[name], label(i, name), dict(zip(heads, entries, strict=True)), shared_torso)
    owned = [id(v) for network in made.values() for v in network.trainable_variables]
    if len(set(owned)) < len(owned):
        raise InvalidValue(
            'two entries of net_list are the same network or share weights: give each one of its own'
            + ''.join(
                f'; what two use belongs in one network, keras.Model(inputs, [policy, value]): write [network, {x!r}]'
                for x in shared_torso.values()
            )
            + '.'
        )
    return made


#: A user's own networks that were trained, and who trained them last.
_TRAINED: weakref.WeakKeyDictionary[Any, weakref.ref[Any]] = weakref.WeakKeyDictionary()


def note_training(agent: Any, new: bool) -> None:
    """Remember who trains a user's own networks; warn where a ``new`` agent begins with what another has trained."""
    for i, (name, entry) in enumerate(zip(agent.networks, agent.net_list, strict=False)):
        if isinstance(entry, dict | str) or not variables_of(entry, trainable=True):
            continue
        with contextlib.suppress(TypeError):  # what nobody can refer to
            if new and entry in _TRAINED and _TRAINED[entry]() is not agent:
                log.warning(
                    '%s was trained by another agent: this training begins with those weights, and both agents share '
                    'them. Build a network for each agent.',
                    label(i, name),
                )
            _TRAINED[entry] = weakref.ref(agent)


def _check_both_are_used(network: Network, name: str, entries: dict[str, Any], shared_torso: Mapping[str, str]) -> None:
    """Refuse a network with an output for another one, which has an entry of its own."""
    for user, owner in shared_torso.items():
        if network.columns is not None and owner == network.name and entries[user] != owner:
            raise InvalidValue(
                f'{name} gives policy and value, but the {user} is another network: write '
                f'net_list=[network, {owner!r}], where {owner!r} says that the {user} is the second output.'
            )


def _on_torso(
    other: str, name: str, head: Head, made: dict[str, Network], given: Sequence[Any], may_share: bool
) -> Network:
    """Build the network of an entry that names another network, to share its torso."""
    if not may_share:
        raise InvalidValue(f'{name} is the name {other!r}, but the networks of this algorithm share no torso.')
    if other not in made:
        raise InvalidValue(f'{name} is to share the torso of {other!r}: name a network before it, {list(made)}.')
    spec = given[list(made).index(other)]
    seed = spec.get('seed') if isinstance(spec, dict) else None
    return build_on(made[other], name, head, seed=None if seed is None else [seed, 2])


def check_memory(networks: Mapping[str, Network]) -> None:
    """Refuse a recurrent network beside an actor, the first network, that is not recurrent."""
    for i, (name, network) in enumerate(networks.items()):
        if network.state_size:
            raise InvalidValue(
                f'{label(i, name)} is recurrent and the actor is not, but sequences of steps are drawn for the state '
                'of the actor: make the actor recurrent too, or neither.'
            )


def optimizers(
    given: Sequence[Any], groups: dict[str, list[tf.Variable]], clip_norm: float | None
) -> dict[str, Optimizer]:
    """Make the optimizer of each group of variables; ``clip_norm`` holds where an entry names none."""
    return {
        name: Optimizer(entry, group, f'optimizers_list[{i}] ({name})', clip_norm)
        for i, ((name, group), entry) in enumerate(zip(groups.items(), given, strict=True))
    }


def check_built(agent: Any) -> None:
    """Refuse an agent whose ``build`` has not set how it explores: most often it forgets the build of its base."""
    if 'behavior' not in vars(agent):
        own = type(agent).__name__
        raise InvalidType(f'{own}.build() has not set behavior: call super().build() in it, or set self.behavior.')
