"""Pictures that people show, drawn without a display and without pyplot's global state."""

from zoo.common.plots.curves import learning_curve
from zoo.common.plots.diagrams import network_diagram
from zoo.common.plots.strips import evaluation_strip

__all__ = ['evaluation_strip', 'learning_curve', 'network_diagram']
