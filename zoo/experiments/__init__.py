"""Experiments: one training, many side by side, comparisons, searches for hyper-parameters."""
