"""Training with roles: what ``agent.learn(env, roles=…)`` does in every rank.

``train`` gives each rank its part. ``planning`` makes the ``plan``, which has what all ranks need to know; ``messages``
is what they send each other. Each role has a file: ``learner``, ``actor``, ``server``, ``buffer`` (with ``shards``, the
learner's view of all its buffers); ``evaluations`` has both ends of an evolution strategy. ``role_metrics`` is what is
logged of the roles. The layer below knows nothing of this room.
"""
