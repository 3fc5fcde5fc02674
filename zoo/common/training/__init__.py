"""Training: the agent's contract, the loops, experience, checkpoints, logs."""
