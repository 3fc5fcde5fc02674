"""``build_env`` and what belongs to it, under the import path of the RLzoo paper's Listing 1."""

from zoo.common.envs.about import env_name, env_type_of
from zoo.common.envs.build import VECTORIZED, build_env
from zoo.common.envs.names import TYPES, find_env_type, list_envs

__all__ = ['TYPES', 'VECTORIZED', 'build_env', 'env_name', 'env_type_of', 'find_env_type', 'list_envs']
