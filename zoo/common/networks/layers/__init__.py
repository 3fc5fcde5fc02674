"""Layers that Keras does not have, one file each."""
