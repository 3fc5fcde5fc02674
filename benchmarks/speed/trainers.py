"""How each library trains a task of ``tasks.py``: zoo, Stable-Baselines3 with sb3-contrib, SBX and rejax.

Networks, batch sizes, copies of the environment, numbers of updates and random first steps are the same; everything
else is each library's default. Evaluation, checkpoints and logs are off. So is zoo's mean of the weights: its 200
samples take little of a training, and much of a short piece. Learning rates stay where they begin. DQN explores with
the probability at which its schedule ends, TD3 with noise of 0.1, so that every piece is the same work.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable
from typing import Any

from tasks import Task

#: A function that trains so many more steps.
Train = Callable[[int], Any]

#: Peers by the package that each is imported as.
PACKAGES = {'sb3': 'stable_baselines3', 'contrib': 'sb3_contrib', 'sbx': 'sbx'}

ON_POLICY = ('A2C', 'PPO', 'TRPO')
FROM_SPACES = ('observation_space', 'action_space', 'net_list', 'optimizers_list')


def zoo_arguments(task: Task) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what zoo's constructor and ``learn`` take for a task, besides networks and optimizers."""
    made: dict[str, Any]
    learn: dict[str, Any] = {'batch_size': task.batch_size}
    if task.alg in ON_POLICY:
        parts = {
            'A2C': ({}, {}),
            'PPO': ({}, learn | {'epochs': task.n_epochs}),
            'TRPO': ({'cg_iterations': 15}, learn | {'critic_epochs': task.n_epochs}),  # as many as the peer's default
        }
        made, learn = parts[task.alg]
        return made, learn | {'horizon': task.n_steps}
    learn |= {
        'update_every': task.train_freq * task.fused,
        'updates': task.gradient_steps * task.fused,
        'explore_steps': task.learning_starts,
        'buffer_size': task.buffer_size,
    }
    if task.alg not in ('DQN', 'QRDQN'):
        return {}, learn
    made = {'epsilon': task.exploration_final_eps}
    if task.alg == 'DQN':
        made['double_q'] = task.double_q
    if task.target_update_interval is not None:
        # The peers count environment steps and zoo counts updates, which are fewer: the target is moved
        # as many times in all, which is every 5 updates where it is every 10 steps with 128 updates to 256 steps.
        made['target_update_every'] = task.target_update_interval * task.gradient_steps // task.train_freq
    return made, learn


def peer_arguments(library: str, task: Task, actions: tuple[int, ...]) -> dict[str, Any]:
    """Return what the constructors of Stable-Baselines3 and SBX take, besides the policy and the environment.

    Args:
        library: which of them.
        task: the task.
        actions: shape of an action.
    """
    params: dict[str, Any] = {
        'policy_kwargs': {'net_arch': list(task.net_arch)},
        'batch_size': task.batch_size,
        'learning_rate': task.learning_rate,
        'verbose': 0,
    }
    if library in ('sb3', 'contrib'):
        params['device'] = 'cpu'
    if task.recurrent:
        shared = {'lstm_hidden_size': task.recurrent, 'shared_lstm': True, 'enable_critic_lstm': False}
        params['policy_kwargs'] |= shared
    if task.alg == 'A2C':
        del params['batch_size']
        return params | {'n_steps': task.n_steps}
    if task.alg in ON_POLICY:
        epochs = 'n_critic_updates' if task.alg == 'TRPO' else 'n_epochs'
        return params | {'n_steps': task.n_steps, epochs: task.n_epochs}
    params |= {
        'train_freq': task.train_freq,
        'gradient_steps': task.gradient_steps,
        'learning_starts': task.learning_starts,
        'buffer_size': task.buffer_size,
    }
    if task.alg in ('DQN', 'QRDQN'):
        eps = task.exploration_final_eps
        params |= {'exploration_initial_eps': eps, 'exploration_final_eps': eps}
        if task.target_update_interval is not None:
            params['target_update_interval'] = task.target_update_interval
    if task.alg in ('TD3', 'DDPG'):
        import numpy as np
        from stable_baselines3.common.noise import NormalActionNoise

        params['action_noise'] = NormalActionNoise(np.zeros(actions), np.full(actions, 0.1))
    return params


def zoo_agent(library: str, task: Task) -> tuple[Any, Any]:
    """Return zoo's agent for a task, and its environment."""
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
    from zoo import algorithms, build_env, call_default_params

    vectorized = 'compiled' if library == 'zoo-compiled' else task.vectorized
    env = build_env(task.env, task.type, vectorized, nenv=task.nenv)
    dtype = {'dtype': 'mixed_bfloat16'} if library == 'zoo-bf16' else {}  # an older checkout does not know the name
    dtype |= {'recurrent': 'lstm'} if task.recurrent else {}
    alg_params, _ = call_default_params(env, task.type, task.alg, seed=0, **dtype)
    cls = getattr(algorithms, task.alg)
    alg_params |= {name: default for name, default in cls.params().items() if name not in FROM_SPACES}
    alg_params |= zoo_arguments(task)[0]
    if task.type == 'gymnax':  # rejax has no convolutions: it flattens images
        alg_params['net_list'] = [_flat(env.single_observation_space.shape, task) for _ in cls.network_names]
    for spec in alg_params['net_list']:
        if isinstance(spec, dict):  # a name would mean that it shares that network's layers
            spec['hidden'] = list(task.net_arch)
            if task.recurrent:
                spec['recurrent_units'] = task.recurrent
    for spec in alg_params['optimizers_list']:
        spec['learning_rate'] = task.learning_rate
        if task.alg in ('DQN', 'QRDQN'):
            spec['clip_norm'] = 10.0  # Stable-Baselines3's default, which zoo's for an environment may not have
    return cls(**alg_params), env


def _flat(shape: tuple[int, ...], task: Task) -> Any:
    """Return dense layers on a flattened image."""
    import keras

    dense = [keras.layers.Dense(units, 'tanh') for units in task.net_arch]
    return keras.Sequential([keras.Input(shape), keras.layers.Flatten(), *dense])


def zoo_trainer(library: str, task: Task) -> Train:
    """Return training by zoo, or only stepping and acting."""
    agent, env = zoo_agent(library, task)
    from zoo.common.rollouts.collector import Collector

    if task.learns:
        learn = zoo_arguments(task)[1] | {'seed': None, 'verbose': 0, 'run_dir': False, 'average_window': 0.0}
        return lambda n: agent.learn(env, 'train', train_steps=n, **learn)
    collector = Collector(env, agent.action_adaptor)
    collector.reset(0)

    def collect(n: int) -> None:
        for _ in range(n // task.nenv):
            collector.step(agent.act(collector.obs))

    return collect


def peer_trainer(library: str, task: Task) -> Train:
    """Return the same by Stable-Baselines3 or SBX; on Atari both have the wrappers and Nature CNN of the former."""
    peer = importlib.import_module(PACKAGES[library])
    from stable_baselines3.common.env_util import make_atari_env, make_vec_env
    from stable_baselines3.common.vec_env import VecFrameStack

    if task.type == 'atari':
        import ale_py
        import gymnasium

        gymnasium.register_envs(ale_py)
        env = VecFrameStack(make_atari_env(task.env, task.nenv, seed=0), 4)
    else:
        env = make_vec_env(task.env, task.nenv)
    policy = 'CnnPolicy' if task.type == 'atari' else 'MlpLstmPolicy' if task.recurrent else 'MlpPolicy'
    alg = 'RecurrentPPO' if task.recurrent else task.alg
    model = getattr(peer, alg)(policy, env, **peer_arguments(library, task, env.action_space.shape))
    if task.learns:
        return lambda n: model.learn(n, reset_num_timesteps=False)
    env = model.get_env()
    state = {'obs': env.reset()}

    def collect(n: int) -> None:
        for _ in range(n // task.nenv):
            actions, _ = model.predict(state['obs'], deterministic=False)  # it runs the actor alone
            state['obs'], *_ = env.step(actions)

    return collect


def rejax_trainer(library: str, task: Task) -> Train:
    """Return the same by rejax, in one call that is compiled for the number of steps."""
    import jax
    import rejax

    given: dict[str, Any]
    if task.alg in ON_POLICY:
        given = {
            'num_steps': task.n_steps,
            'num_epochs': task.n_epochs,
            'num_minibatches': task.nenv * task.n_steps // task.batch_size,
            'agent_kwargs': {'activation': 'tanh', 'hidden_layer_sizes': task.net_arch},
        }
    else:
        assert task.train_freq == task.gradient_steps and task.net_arch == (64, 64)  # DQN and TD3 have these alone
        given = {
            'buffer_size': task.buffer_size,
            'fill_buffer': task.learning_starts,
            'batch_size': task.batch_size,
            'num_epochs': task.nenv,
        }
        parts = ('actor_kwargs', 'critic_kwargs') if task.alg == 'TD3' else ('agent_kwargs',)
        given |= {part: {'activation': 'relu'} for part in parts}
        if task.alg == 'DQN':
            given |= {'ddqn': task.double_q}
    given |= {'env': task.env, 'num_envs': task.nenv, 'learning_rate': task.learning_rate}
    algo = getattr(rejax, task.alg).create(**given, skip_initial_evaluation=True)
    algo = algo.replace(eval_callback=lambda *_: ())
    state = [algo.init_state(jax.random.PRNGKey(0))]

    @functools.cache
    def compiled(n: int) -> Callable[[Any], Any]:
        training = algo.replace(total_timesteps=n, eval_freq=n)
        return jax.jit(lambda state: training.train(train_state=state)[0])

    def train(n: int) -> None:
        state[0] = jax.block_until_ready(compiled(n)(state[0]))

    return train


TRAINERS = {
    'zoo': zoo_trainer,
    'zoo-bf16': zoo_trainer,
    'zoo-compiled': zoo_trainer,
    'sb3': peer_trainer,
    'contrib': peer_trainer,
    'sbx': peer_trainer,
    'rejax': rejax_trainer,
}
