"""Rollouts: collected, stored in their order, evaluated."""
