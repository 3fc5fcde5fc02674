"""Names in other libraries, above all Stable-Baselines3 and its zoo, and what stands for them here."""

from __future__ import annotations

from collections.abc import Iterable

_COPIES = 'copies belong to the environment, build_env(…, nenv=…)'
_NETWORKS = "networks are given by net_list, [dict(hidden=[64, 64], activation='tanh'), …]"
_RATE = "it belongs to the optimizers, optimizers_list=[dict(name='Adam', learning_rate=…), …]"
_EPSILON = (
    'it is a part of epsilon=Linear(1.0, 0.05, 0.1): first value, last value, and the part of the training between'
)
_HER = 'hindsight is a parameter, her=dict(k=4)'
_TWICE = 'it is twice num_directions, since each direction is tried both ways'
_FROM_DATA = 'it learns from its own steps alone; BC, IQL, CQL, TD3BC and AWAC learn from recorded episodes'

#: Arguments of ``build_env`` beside the environment's own.
OF_ENVIRONMENTS = (
    'max_episode_steps',
    'frame_stack',
    'hide_velocity',
    'render_mode',
    'reward_shaping',
    'pixels',
    'frame_size',
)

#: Name in other libraries → its names here, or a sentence that says what to do. An algorithm has one of the names.
HABITS: dict[str, str | tuple[str, ...]] = {
    'action_noise': ('explore_noise', 'noise'),
    'actor_lr': _RATE,
    'adam_eps': "it belongs to the optimizers, optimizers_list=[dict(name='Adam', epsilon=…), …]",
    'awac_lambda': 'lam',
    'batch': 'batch_size',
    'bc_trainer': 'DAgger is BC by itself: there is no trainer inside',
    'buffer': 'buffer_size',
    'buffer_size': 'it has no replay buffer; DQN, SAC, TD3 and others have one',
    'clip_epsilon': 'clip_range',
    'clip_coef': 'clip_range',
    'clip_range_vf': 'clip_range_value',
    'cql_alpha': 'conservative_weight',
    'cql_n_actions': 'n_actions',
    'critic_lr': _RATE,
    'delta_std': 'noise_std',
    'demo_batch_size': 'discriminator_batch',
    'dataset': _FROM_DATA,
    'demonstrations': 'dataset',
    'device': 'TensorFlow takes a GPU where it finds one, and CUDA_VISIBLE_DEVICES="" hides it',
    'disc_updates': 'discriminator_updates',
    'ent_coef': ('alpha', 'entropy_coef'),
    'entropy_coefficient': ('alpha', 'entropy_coef'),
    'eps': 'epsilon',
    'eval_episodes': 'test_episodes',
    'eval_freq': "tests are a callback, callbacks=[zoo.callbacks.KeepBest(every=…)], or zoo.train's evaluate",
    'expert_policy': 'expert',
    'expert_trajs': 'dataset',
    'exploration_final_eps': _EPSILON,
    'exploration_fraction': _EPSILON,
    'exploration_initial_eps': _EPSILON,
    'exploration_noise': ('explore_noise', 'noise'),
    'gae': 'gae_lambda',
    'gen_algo': 'GAIL moves its policy by PPO, and GAILTRPO by TRPO',
    'goal_selection_strategy': _HER,
    'gradient_steps': 'updates',
    'input_': 'dataset',
    'l2_weight': "it belongs to the optimizers, optimizers_list=[dict(name='AdamW', weight_decay=…), …]",
    'iql_tau': 'expectile',
    'lam': ('gae_lambda', 'q_lambda'),
    'lambda_': ('gae_lambda', 'q_lambda'),
    'learning_rate': _RATE,
    'learning_starts': 'explore_steps',
    'log_interval': 'log_every',
    'lr': _RATE,
    'min_q_weight': 'conservative_weight',
    'minibatch_size': 'batch_size',
    'monitor_wrapper': 'returns and lengths of all episodes are in monitor.csv of the run without it',
    'moving_average_sqd_adv_norm_update_rate': 'advantage_rate',
    'n_action_samples': 'n_actions',
    'n_delta': 'num_directions',
    'n_disc_updates_per_round': 'discriminator_updates',
    'n_envs': _COPIES,
    'n_epochs': 'epochs',
    'n_eval_episodes': 'test_episodes',
    'n_gradient_steps': 'train_updates',
    'n_minibatches': 'minibatches are given by their size, batch_size',
    'n_quantiles': 'quantiles',
    'n_sampled_goal': _HER,
    'n_steps': ('horizon', 'n_step', 'train_updates'),
    'n_steps_per_epoch': 'checkpoint_every and evaluate say how often something is done in between',
    'n_timesteps': 'train_steps',
    'n_top': 'top_directions',
    'nenv': _COPIES,
    'net_arch': _NETWORKS,
    'normalize': 'normalize_obs=True and normalize_reward=True are two parameters',
    'num_envs': _COPIES,
    'num_steps': 'horizon',
    'offline_data': 'dataset',
    'optimize_memory_usage': 'the replay buffer stores each observation once in any case',
    'policy_kwargs': _NETWORKS,
    'pop_size': _TWICE,
    'population_size': _TWICE,
    'prioritized_replay': 'prioritized',
    'progress': 'verbose',
    'recorded': _FROM_DATA,
    'recorded_share': _FROM_DATA,
    'replay_buffer_class': _HER,
    'replay_buffer_kwargs': 'the replay buffer has parameters of learn: buffer_size, her, compress',
    'reset_num_timesteps': 'agent.learn again trains on, and a new agent begins anew',
    'reward_net': 'the discriminator is an entry of net_list',
    'reward_scale': 'build_env(…, reward_shaping=lambda reward: reward * scale) scales rewards',
    'rollout_round_min_timesteps': 'horizon',
    'rollout_steps': 'horizon',
    'save_freq': 'checkpoint_every',
    'sigma': 'noise_std',
    'soft_q_backup': 'backup_entropy',
    'stats_window_size': 'the means in the log are over the last 100 episodes',
    'td_lambda': ('q_lambda', 'gae_lambda'),
    'target_network_update_freq': 'target_update_every',
    'target_policy_noise': 'target_noise',
    'target_noise_clip': 'noise_clip',
    'target_update_interval': ('target_update_every', 'targets move a little at every update, as tau says'),
    'tb_log_name': 'run_dir',
    'tensorboard_log': 'each run writes for TensorBoard into its own folder, which run_dir names',
    'timesteps': 'train_steps',
    'top_quantiles_to_drop_per_net': 'drop',
    'total_timesteps': 'train_steps',
    'train_batch_size': 'batch_size is the size of a minibatch, and horizon is the steps of each copy in one iteration',
    'train_batch_size_per_learner': 'batch_size is the size of a minibatch, and horizon is the steps of each copy',
    'train_episodes': 'a training is counted in environment steps, train_steps',
    'train_freq': 'update_every',
    'train_updates': _FROM_DATA,
    'update_epochs': 'epochs',
    'use_rms_prop': "the optimizer is given by optimizers_list, [dict(name='RMSprop', learning_rate=…), …]",
    'value_coefficient': 'value_coef',
    'vec_env': "copies run as build_env(…, nenv=…, vectorized='sync' or 'async') says",
    'vf_coef': 'value_coef',
    'weight_temp': 'beta',
    'weight_decay': "it belongs to the optimizers, optimizers_list=[dict(name='AdamW', weight_decay=…), …]",
}

#: Why an algorithm has no ``normalize_reward``, and what to do.
_SCALE = (
    'a replay buffer returns a reward many times while its running scale would move, so scale rewards by '
    'build_env(…, reward_shaping=lambda r: r / 10)'
)

#: Name in other libraries → a sentence, for the constructor of an algorithm alone.
OF_CONSTRUCTORS = {
    # Of the algorithms that do not have it; the others never ask here.
    'normalize_reward': _SCALE,
    'policy': 'networks follow from the spaces, and net_list changes them',
    'verbose': 'what a training prints is for learn to say, agent.learn(env, verbose=0)',
}

#: Name in other libraries → argument of ``zoo.train``, or a sentence.
OF_TRAIN = {
    'algo': 'alg',
    'callback': 'callbacks',
    'env': 'env_id',
    'env_kwargs': 'env_params',
    'eval_freq': 'tests are evaluate=zoo.callbacks.KeepBest(every=…)',
    'hidden': 'net',
    'lr': 'learning_rate',
    'n_envs': 'nenv',
    'normalize_reward': _SCALE,
    'net_arch': 'net',
    'num_envs': 'nenv',
    'policy': 'networks follow from the spaces, and net changes them',
    'policy_kwargs': 'net',
    'steps': 'train_steps',
    'vec_env': 'vectorized',
}

_ITS_RUN = 'a RUN says its algorithm and its environment, such as zoo test last'
_NO_EXPLORATION = 'zoo test plays without exploration in any case'
_STUDY = 'write --out FOLDER, which holds the study'
#: An option of other command lines, without dashes → what to write in the shell.
IN_SHELL = {
    **{name: f'write --env-set {name}=VALUE, since it belongs to the environment' for name in OF_ENVIRONMENTS},
    **dict.fromkeys(('algo', 'env', 'env_id'), _ITS_RUN),
    **dict.fromkeys(
        ('n_timesteps', 'total_timesteps', 'timesteps', 'num_timesteps', 'train_steps', 'max_steps', 'n'),
        'write --steps N',
    ),
    **dict.fromkeys(('n_envs', 'num_envs', 'n_env', 'num_env'), 'write --nenv N'),
    **dict.fromkeys(
        ('hyperparams', 'hyperparameters', 'params', 'param', 'hyperparam'),
        'write --set NAME=VALUE, such as --set gamma=0.98',
    ),
    **dict.fromkeys(('env_kwargs', 'eval_env_kwargs'), 'write --env-set NAME=VALUE'),
    **dict.fromkeys(('conf_file', 'config_file', 'conf', 'yaml_file', 'yaml', 'c'), 'write --config FILE'),
    **dict.fromkeys(('log_folder', 'log_dir', 'logdir', 'f', 'save_path', 'output_folder'), 'write --run-dir FOLDER'),
    **dict.fromkeys(
        ('trained_agent', 'i', 'load', 'pretrained', 'checkpoint'),
        '--resume RUN goes on with a run, and --from RUN begins another one with its weights',
    ),
    **dict.fromkeys(('wandb_project_name', 'wandb', 'wandb_project', 'wandb_entity'), 'write --track wandb:PROJECT'),
    **dict.fromkeys(('optimize', 'optimize_hyperparameters', 'optimize_hyperparams'), 'zoo tune searches parameters'),
    **dict.fromkeys(('study_name', 'storage'), _STUDY),
    **dict.fromkeys(('deterministic', 'stochastic'), _NO_EXPLORATION),
    **dict.fromkeys(('lr', 'learning_rate'), 'write --set learning_rate=1e-4'),
    **dict.fromkeys(
        ('policy', 'policy_kwargs', 'net_arch'), 'networks follow from the spaces, and --net 64,64 changes them'
    ),
    **dict.fromkeys(
        ('load_checkpoint', 'load_last_checkpoint'), 'the newest checkpoint is taken; --best takes the best'
    ),
    'load_best': 'write --best',
    'device': 'TensorFlow takes a GPU where it finds one, and CUDA_VISIBLE_DEVICES= before zoo hides it',
    'eval_episodes': 'write evaluate: {episodes: N} in a file for --config',
    'eval_freq': 'write --evaluate STEPS',
    'exp_id': 'a RUN is named by its folder, by its name in runs, or by last',
    'folder': 'a RUN is named by its folder, by its name in runs, or by last',
    'gym_packages': 'write the environment as package:Name-v0',
    'n_eval_envs': 'tests play in one copy of the environment',
    'n_eval_episodes': 'write evaluate: {episodes: N} in a file for --config',
    'n_jobs': 'write --jobs N',
    'n_seeds': 'write --seeds N',
    'n_trials': 'write --trials N',
    'no_render': 'zoo test plays without a window',
    'P': 'a progress bar is there without an option, and --quiet hides it',
    'progress': 'a progress bar is there without an option, and --quiet hides it',
    'progress_bar': 'a progress bar is there without an option, and --quiet hides it',
    'resume': '--resume RUN goes on with a run',
    'save_freq': 'write --set checkpoint_every=N',
    'tensorboard_log': 'each run writes for TensorBoard into its own folder in any case',
    'vec_env': 'write --set vectorized=async, or sync',
}

#: A command of other command lines → what to write in the shell.
COMMANDS = {
    **dict.fromkeys(('eval', 'evaluate', 'play'), 'zoo test RUN plays whole episodes, and zoo enjoy RUN shows them'),
    **dict.fromkeys(('learn', 'run', 'fit', 'ppo', 'dqn', 'sac', 'td3', 'a2c'), 'zoo train PPO CartPole-v1 trains'),
    **dict.fromkeys(('resume', 'continue'), 'zoo train --resume RUN goes on with a run'),
    **dict.fromkeys(('optimize', 'hyperopt', 'search'), 'zoo tune PPO CartPole-v1 searches parameters'),
    **dict.fromkeys(('benchmark', 'all_plots'), 'zoo compare PPO A2C --env CartPole-v1 compares'),
    **dict.fromkeys(
        ('algorithms', 'algos', 'envs', 'environments', 'runs', 'agents', 'ls'),
        'zoo list algorithms, environments, runs or agents lists',
    ),
    **dict.fromkeys(('video', 'record_video'), 'zoo film RUN films'),
    **dict.fromkeys(('tensorboard', 'logs'), 'tensorboard --logdir runs shows the logs, and zoo plot RUN draws curves'),
    'info': 'zoo describe PPO has the parameters of an algorithm, and zoo show RUN has a run',
}

_CALLBACK = 'write a subclass of zoo.callbacks.Callback, or a function of a Training'
_COPIES_OF = "write zoo.build_env(name, env_type, nenv=8, vectorized='sync' or 'async')"
_NORMALIZE = 'it is normalize_obs=True and normalize_reward=True of an algorithm'
_POLICY = 'networks follow from the spaces: zoo.train(alg, env_id, net=[64, 64]) changes them'
_NOISE = 'it is the parameter explore_noise of DDPG and TD3, or noise of DDPG'
#: A name of other packages → what to write here.
PLACES = {
    **dict.fromkeys(('BaseCallback', 'EventCallback'), _CALLBACK),
    **dict.fromkeys(
        ('make_vec_env', 'DummyVecEnv', 'SubprocVecEnv', 'VecEnv', 'AsyncVectorEnv', 'SyncVectorEnv'), _COPIES_OF
    ),
    **dict.fromkeys(('MlpPolicy', 'CnnPolicy', 'MultiInputPolicy', 'MlpLstmPolicy', 'ActorCriticPolicy'), _POLICY),
    **dict.fromkeys(('Monitor', 'VecMonitor'), 'returns and lengths of episodes are in monitor.csv of each run'),
    **dict.fromkeys(('HerReplayBuffer', 'ReplayBuffer', 'HER'), 'hindsight is the parameter her=dict(k=4) of learn'),
    **dict.fromkeys(('NormalActionNoise', 'OrnsteinUhlenbeckActionNoise', 'ActionNoise'), _NOISE),
    **dict.fromkeys(
        ('load_results', 'plot_results', 'results_plotter'), "write zoo.open_run('last') and zoo.plot_runs"
    ),
    **dict.fromkeys(('make', 'make_env', 'gym'), "write zoo.build_env('CartPole-v1', 'classic_control')"),
    **dict.fromkeys(('learn', 'fit'), "write zoo.train('PPO', 'CartPole-v1')"),
    'CallbackList': 'give a list, callbacks=[…]',
    'CheckpointCallback': 'write zoo.callbacks.Checkpoint, or checkpoint_every=… of learn',
    'EvalCallback': 'write zoo.callbacks.KeepBest(every=…), which also keeps the best agent',
    'EveryNTimesteps': 'a callback with the attribute every is called every so many steps',
    'ProgressBarCallback': 'a progress bar is there in any case',
    'StopTrainingOnMaxEpisodes': 'a callback ends the training by returning False',
    'StopTrainingOnNoModelImprovement': 'write zoo.callbacks.StopOnPlateau',
    'StopTrainingOnRewardThreshold': 'write zoo.callbacks.KeepBest(every=…, stop_at=…)',
    'VecFrameStack': 'write zoo.build_env(name, env_type, frame_stack=4)',
    'VecNormalize': _NORMALIZE,
    'VecTransposeImage': 'images are read in either order of their axes',
    'configure': 'a run writes progress.csv and TensorBoard events in any case',
    'enjoy': 'write zoo enjoy RUN in a shell',
    'evaluate_policy': "write agent.learn(env, 'test', test_episodes=10)",
    'make_atari_env': "write zoo.build_env('ALE/Pong-v5', 'atari', nenv=8)",
    'save': 'write agent.save(path)',
    'set_random_seed': 'give seed=… to zoo.build_env, zoo.call_default_params and learn, or to zoo.train',
    'test': "write agent.learn(env, 'test')",
}

_TRAINS, _TESTS = "write agent.learn(env, 'train')", "write agent.learn(env, 'test')"
#: An attribute that agents of others have → what to write here.
OF_AGENTS = {
    **dict.fromkeys(('train', 'fit', 'run', 'optimize'), _TRAINS),
    **dict.fromkeys(('test', 'evaluate', 'eval', 'play', 'evaluate_policy'), _TESTS),
    **dict.fromkeys(('act', 'choose_action', 'get_action', 'select_action', 'compute_single_action'), 'write predict'),
    **dict.fromkeys(('policy', 'actor', 'get_parameters', 'q_net'), 'networks are in agent.networks, by name'),
    'set_env': 'learn takes the environment',
    'replay_buffer': 'it is agent.replay',
    'num_timesteps': 'it is agent.steps',
}

#: An algorithm of others → what it is here.
ALGORITHMS = {
    'bctrainer': 'it is BC here',
    'bcconfig': 'it is BC here',
    'discretebc': 'it is BC here, which acts in every space',
    'daggertrainer': 'it is DAgger here',
    'simpledaggertrainer': 'it is DAgger here',
    'behavioralcloning': 'it is BC here',
    'behavior_cloning': 'it is BC here',
    'marwilconfig': 'it is MARWIL here',
    'airl': "it is not here; GAIL with reward_form='logit' has its reward, without a reward function to keep",
    'recurrentppo': "it is PPO with recurrent='lstm' here",
    'ppo_lstm': "it is PPO with recurrent='lstm' here",
    'ppolstm': "it is PPO with recurrent='lstm' here",
    'maskableppo': 'it is PPO here, which follows action masks in any case',
    'ppo_mask': 'it is PPO here, which follows action masks in any case',
    'her': 'it is the parameter her of DDPG, TD3, SAC and the other algorithms with a replay buffer',
    'ddqn': 'it is DQN with double_q=True here',
    'doubledqn': 'it is DQN with double_q=True here',
    'duelingdqn': 'it is DQN with dueling=True here',
    'td3+bc': 'it is called TD3BC here',
    'td3_bc': 'it is called TD3BC here',
    'td3plusbc': 'it is called TD3BC here',
    'discretecql': 'it is CQL here, which acts in Discrete spaces too',
    'rlpd': 'it is SAC with recorded=… and recorded_share=0.5 of learn',
    'reinforce': 'it is called VPG here',
    'qr-dqn': 'it is called QRDQN here',
    'redq': 'it is not here; CrossQ and TQC learn from as few steps',
    'droq': 'it is not here; CrossQ and TQC learn from as few steps',
}


def renamed(name: str, known: Iterable[str]) -> str | None:
    """Return the one of ``known`` that a name of other libraries stands for, or None."""
    habit, known = HABITS.get(name, ()), set(known)
    return next((other for other in ((habit,) if isinstance(habit, str) else habit) if other in known), None)


def advice(name: str) -> str | None:
    """Return the sentence that says what to do instead of a name of other libraries, or None."""
    habit = HABITS.get(name, '')
    last = habit if isinstance(habit, str) else habit[-1]
    return last if ' ' in last else None


def option_answer(option: str) -> str | None:
    """Return what to write in a shell instead of an option of another command line, or None."""
    name = option.lstrip('-').replace('-', '_')
    if name in IN_SHELL:
        return IN_SHELL[name]
    habit = HABITS.get(name, ())
    names = [other for other in ((habit,) if isinstance(habit, str) else habit) if ' ' not in other]
    return f'write {" or ".join(f"--set {other}=VALUE" for other in names)}' if names else None
