"""RLBench: robot tasks in the simulator CoppeliaSim."""

from zoo.common.envs.kinds.rlbench.finding import ONE_PER_PROCESS, find
from zoo.common.envs.kinds.rlbench.tasks import ids

__all__ = ['ONE_PER_PROCESS', 'find', 'ids']
