"""The algorithms, one file each; a name is imported when it is asked for, so that the list costs nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from zoo.algorithms.base import catalog
from zoo.algorithms.base.catalog import NAMES
from zoo.common.tools.errors import InvalidValue, unknown
from zoo.common.tools.habits import ALGORITHMS

if TYPE_CHECKING:  # what a type checker knows; a test compares it with NAMES
    from zoo.algorithms.a2c import A2C as A2C
    from zoo.algorithms.a3c import A3C as A3C
    from zoo.algorithms.ac import AC as AC
    from zoo.algorithms.apexddpg import ApexDDPG as ApexDDPG
    from zoo.algorithms.apexdqn import ApexDQN as ApexDQN
    from zoo.algorithms.ars import ARS as ARS
    from zoo.algorithms.awac import AWAC as AWAC
    from zoo.algorithms.bc import BC as BC
    from zoo.algorithms.c51 import C51 as C51
    from zoo.algorithms.cql import CQL as CQL
    from zoo.algorithms.crossq import CrossQ as CrossQ
    from zoo.algorithms.dagger import DAgger as DAgger
    from zoo.algorithms.ddpg import DDPG as DDPG
    from zoo.algorithms.dppo import DPPO as DPPO
    from zoo.algorithms.dqn import DQN as DQN
    from zoo.algorithms.es import ES as ES
    from zoo.algorithms.fql import FQL as FQL
    from zoo.algorithms.gail import GAIL as GAIL
    from zoo.algorithms.gailtrpo import GAILTRPO as GAILTRPO
    from zoo.algorithms.impala import IMPALA as IMPALA
    from zoo.algorithms.iql import IQL as IQL
    from zoo.algorithms.marwil import MARWIL as MARWIL
    from zoo.algorithms.offpac import OffPAC as OffPAC
    from zoo.algorithms.ppo import PPO as PPO
    from zoo.algorithms.pqn import PQN as PQN
    from zoo.algorithms.qrdqn import QRDQN as QRDQN
    from zoo.algorithms.r2d2 import R2D2 as R2D2
    from zoo.algorithms.rainbow import Rainbow as Rainbow
    from zoo.algorithms.sac import SAC as SAC
    from zoo.algorithms.td3 import TD3 as TD3
    from zoo.algorithms.td3bc import TD3BC as TD3BC
    from zoo.algorithms.tqc import TQC as TQC
    from zoo.algorithms.trpo import TRPO as TRPO
    from zoo.algorithms.vpg import VPG as VPG

__all__ = ['NAMES', *NAMES]  # noqa: PLE0604


if not TYPE_CHECKING:  # where it is seen, any name seems to exist

    def __getattr__(name: str) -> Any:
        if name in NAMES:
            return catalog.find(name)
        if name.startswith('__'):
            raise AttributeError(name)
        told = ALGORITHMS.get(name.lower())
        message = unknown('algorithm', name, NAMES) if told is None else f'unknown algorithm {name!r}: {told}.'
        raise AttributeError(message)


def check_name(name: object) -> str:
    """Return the name of an algorithm that is given in any case; a class is told what to do instead."""
    if isinstance(name, type):
        own = name.__name__
        if own in NAMES:
            raise InvalidValue(f'the algorithm is given by its name, not as a class: write {own!r}.')
        raise InvalidValue(
            f'the algorithm is given by its name, not as a class; one of your own is trained by '
            f"{own}(env.observation_space, env.action_space).learn(env, 'train')."
        )
    return catalog.named(name)


def length_of(alg: str, params: Mapping[str, Any]) -> str:
    """Return the parameter of ``learn`` that says how long a training of an algorithm with these parameters is."""
    known = catalog.find(alg).learn_params()
    from_data = 'train_updates' in known and (params.get('dataset') is not None or 'train_steps' not in known)
    return 'train_updates' if from_data else 'train_steps'


def __dir__() -> list[str]:
    return sorted(__all__)
