"""Names of parameters in other libraries."""

from __future__ import annotations

#: Name in other libraries → name here, or what to do instead.
HABITS = {
    'batch': 'batch_size',
    'delta_std': 'noise_std',
    'clip_epsilon': 'clip_range',
    'ent_coef': 'entropy_coef',
    'eps': 'epsilon',
    'exploration_fraction': 'epsilon',
    'exploration_final_eps': 'epsilon',
    'exploration_initial_eps': 'epsilon',
    'exploration_noise': 'explore_noise',
    'gradient_steps': 'updates',
    'lam': 'gae_lambda',
    'learning_rate': "it belongs to the optimizers, optimizers_list=[dict(name='Adam', learning_rate=…), …]",
    'learning_starts': 'explore_steps',
    'lr': "the learning rate is the optimizers', optimizers_list=[dict(name='Adam', learning_rate=…), …]",
    'minibatch_size': 'batch_size',
    'n_delta': 'num_directions',
    'n_envs': 'copies belong to the environment, build_env(…, nenv=…)',
    'n_epochs': 'epochs',
    'n_eval_episodes': 'test_episodes',
    'n_steps': 'horizon',
    'n_top': 'top_directions',
    'nenv': 'copies belong to the environment, build_env(…, nenv=…)',
    'num_envs': 'copies belong to the environment, build_env(…, nenv=…)',
    'pop_size': 'it is twice num_directions, since each direction is tried both ways',
    'policy_kwargs': "networks are given by net_list, [dict(hidden=[64, 64], activation='tanh'), …]",
    'population_size': 'it is twice num_directions, since each direction is tried both ways',
    'sigma': 'noise_std',
    'target_update_interval': 'target_update_every',
    'timesteps': 'train_steps',
    'total_timesteps': 'train_steps',
    'train_freq': 'update_every',
    'vf_coef': 'value_coef',
}
