"""Rollouts: steps collected from an environment, stored in their order, and evaluated.

Others use :class:`zoo.common.rollouts.collector.Collector`, :class:`zoo.common.rollouts.rollout_buffer.RolloutBuffer`,
:class:`zoo.common.rollouts.perturbed_play.PerturbedPlay`, and users :class:`zoo.common.rollouts.rollout.Rollout`.
"""
