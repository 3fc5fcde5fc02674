"""Training over the distributed layer: what ``agent.learn(env, roles=…)`` does in every rank.

:mod:`~zoo.distributed.training.train` gives each rank its part, :mod:`~zoo.distributed.training.plan` has what all of
them know, and each role has a file: learner, actor, server, buffer. The layer knows nothing of it.
"""
