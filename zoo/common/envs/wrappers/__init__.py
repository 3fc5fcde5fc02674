"""Wrappers that every type of environment shares: masks, views, rewards, copies."""
