"""Training with roles: what ``agent.learn(env, roles=…)`` does in every rank.

``roles`` gives each rank its part. ``planning`` makes the ``plan``: what all ranks need to know. ``exchanges`` is what
they send each other. Each role has a file: ``learner``, ``actor``, ``server`` and ``buffer``. ``shards`` is a learner's
view of its buffers; ``evaluations`` has both ends of an evolution strategy; ``role_metrics`` is what is logged.
"""
