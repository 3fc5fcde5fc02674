"""Trained agents by name, such as ``'TD3/Pendulum-v1'``: their cards, and where they lie.

``finding.py`` turns what a user gives for a saved agent into a path. ``card.py`` has what is known of a trained agent.
The agents themselves are data in ``trained/ALGORITHM/ENVIRONMENT``. This room loads no TensorFlow.
"""

from zoo.agents.card import Card as Card
from zoo.agents.finding import find as find
from zoo.agents.finding import list_agents as list_agents
