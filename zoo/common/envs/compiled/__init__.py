"""Environments as pure functions, whose steps are compiled together with the policy.

Others use :class:`zoo.common.envs.compiled.copies.Copies`, :class:`zoo.common.envs.compiled.env.CompiledEnv` and
:class:`zoo.common.envs.compiled.env.CompiledVectorEnv`.
"""
