"""Tools without reinforcement learning in them: declared parameters, errors, seeds, files, processes, compiled code."""
