"""Hyper-parameters that several algorithms share, each declared once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from gymnasium.spaces import Space

from zoo.common.schedules import Linear
from zoo.common.tools.params import Range, at_least, between

ObservationSpace = Annotated[Space, 'of the observations of one copy of the environment']
ActionSpace = Annotated[Space, 'of the actions in one copy of the environment']
NetList = Annotated[
    Sequence[Any] | None,
    'one entry for each network: a spec such as dict(hidden=[64, 64]), a torso or a complete network',
]
OptimizersList = Annotated[
    Sequence[Any] | None,
    "one entry for each optimizer: a spec such as dict(name='Adam', learning_rate=3e-4), or a Keras optimizer",
]
Gamma = Annotated[float, between(0, 1), 'discount of what follows a step']
Tau = Annotated[
    float, Range(0, 1, open_low=True), 'how far a target moves towards its network in an update; 1 copies it'
]
NormalizeObs = Annotated[
    bool, 'normalize vector observations by their running mean and standard deviation, and clip them at 10 of it'
]
BatchSize = Annotated[int, at_least(1), 'transitions in one gradient update']
#: Defaults of the next two. Kapturowski et al. 2019 have 80 and 40 for Atari, which is long for small tasks.
SEQUENCE_LENGTH, BURN_IN = 20, 10
SequenceLength = Annotated[int, at_least(1), 'steps in a row that recurrent networks learn from']
BurnIn = Annotated[int, at_least(0), 'steps before these that bring the state of recurrent networks up to date']
NStep = Annotated[int, at_least(1), 'steps whose rewards are summed before the target values what follows']
Prioritized = Annotated[bool, 'draw transitions by the size of their error when they were last drawn']
PriorityAlpha = Annotated[float, between(0, 1), 'exponent of the priorities; 0 draws uniformly']
PriorityBeta = Annotated[float | Linear, between(0, 1), 'exponent of the importance weights; 1 corrects in full']
UseSde = Annotated[
    bool,
    'state-dependent exploration (gSDE) of Box actions: the noise is a function of the state until it is drawn anew',
]
SdeSampleFreq = Annotated[
    int | None,
    at_least(1),
    'steps of one copy after which that function is drawn anew; None: only when an episode begins',
]
