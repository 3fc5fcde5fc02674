"""DQN and its variants computed again in NumPy with float64: networks with noise, targets and losses."""

from __future__ import annotations

from typing import Any

import numpy as np

from zoo.common.records import Batch

RELU, LINEAR = (lambda x: np.maximum(x, 0.0)), (lambda x: x)


def scaled(noise: np.ndarray) -> np.ndarray:
    """f of Fortunato et al. 2018, section 3.2."""
    return np.sign(noise) * np.sqrt(np.abs(noise))


class NumpyValues:
    """Dense layers of ReLU, and a head that may be dueling, noisy and distributional.

    Attributes:
        weights: The weights of the network in their order; they may be changed.
    """

    def __init__(self, network: Any, actions: int, dueling: bool, noisy: bool) -> None:
        self.weights = [np.float64(v.numpy()) for v in network.trainable_variables]
        self.actions, self.dueling, self.noisy = actions, dueling, noisy

    def _dense(self, x: np.ndarray, weights: list[np.ndarray], noise: np.ndarray | None) -> np.ndarray:
        kernel, bias, *deviations = weights
        if noise is not None:
            before, after = scaled(noise[: len(kernel)]), scaled(noise[len(kernel) :])
            kernel = kernel + deviations[0] * np.outer(before, after)
            bias = bias + deviations[1] * after
        return x @ kernel + bias

    def __call__(self, x: np.ndarray, noise: np.ndarray | None = None) -> np.ndarray:
        """Numbers of each action ``[B, actions, n]``, with one draw of the weights for all rows."""
        each = 4 if self.noisy else 2
        heads = 2 * each if self.dueling else each
        torso, head = self.weights[:-heads], self.weights[-heads:]
        x = np.float64(x)
        for kernel, bias in zip(torso[::2], torso[1::2], strict=True):
            x = np.maximum(x @ kernel + bias, 0.0)
        if not self.dueling:
            return self._dense(x, head, noise).reshape(len(x), self.actions, -1)
        cut = x.shape[1] + len(head[1])
        value = self._dense(x, head[:each], None if noise is None else noise[:cut])
        advantage = self._dense(x, head[each:], None if noise is None else noise[cut:])
        advantage = advantage.reshape(len(x), self.actions, -1)
        return np.stack([value + advantage[:, a] - advantage.mean(1) for a in range(self.actions)], 1)


def softmax(x: np.ndarray) -> np.ndarray:
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def means(agent: Any, numbers: np.ndarray) -> np.ndarray:
    """The value of each action."""
    if hasattr(agent, 'atoms'):
        return softmax(numbers) @ np.linspace(agent.v_min, agent.v_max, agent.atoms)
    return numbers.mean(-1)


def projected(moved: np.ndarray, probabilities: np.ndarray, v_min: float, v_max: float) -> np.ndarray:
    """The inner loop of algorithm 1 of Bellemare et al. 2017 for one transition."""
    count = len(moved)
    spacing, found = (v_max - v_min) / (count - 1), np.zeros(count)
    for z, p in zip(moved, probabilities, strict=True):
        b = (np.clip(z, v_min, v_max) - v_min) / spacing
        low = min(int(np.floor(b)), count - 2)
        found[low] += p * (low + 1 - b)
        found[low + 1] += p * (b - low)
    return found


def loss_of_one(agent: Any, numbers: np.ndarray, following: np.ndarray, reward: float, discount: float) -> Any:
    """The loss and the priority of one transition, from the numbers of its action and of the next one's."""
    if hasattr(agent, 'atoms'):
        atoms = np.linspace(agent.v_min, agent.v_max, agent.atoms)
        aim = projected(reward + discount * atoms, softmax(following), agent.v_min, agent.v_max)
        found = softmax(numbers)
        loss = sum(m * np.log(m / p) for m, p in zip(aim, found, strict=True) if m > 0)
        return loss, loss
    if hasattr(agent, 'quantiles'):
        loss, count = 0.0, agent.quantiles
        errors = np.array([[reward + discount * z - x for z in following] for x in numbers])
        for i in range(count):
            for u in errors[i]:
                huber = 0.5 * u * u if abs(u) <= agent.kappa else agent.kappa * (abs(u) - 0.5 * agent.kappa)
                loss += abs((2 * i + 1) / (2 * count) - (u < 0)) * huber / count
        return loss, np.abs(errors).mean()
    error = abs(numbers[0] - reward - discount * following[0])
    kappa = agent.kappa
    return (0.5 * error**2 if error <= kappa else kappa * (error - 0.5 * kappa)), error


def update_by_hand(
    agent: Any, network: NumpyValues, target: NumpyValues, data: Batch, noise: list[np.ndarray | None]
) -> tuple[Any, np.ndarray, np.ndarray]:
    """The weighted loss as a function of nothing, which reads ``network.weights``; the priorities; the next actions.

    Args:
        agent: Its parameters are used.
        network, target: its networks.
        data: with an action mask, or without.
        noise: of the loss, of the target and of the double Q-learner's choice.
    """
    is_masked = isinstance(data.obs, dict)
    x, next_x = (data.obs['x'], data.next_obs['x']) if is_masked else (data.obs, data.next_obs)
    rows = range(len(data.reward))
    next_numbers = target(next_x, noise[1])
    judged = network(next_x, noise[2]) if agent.double_q else next_numbers
    best = []
    for i, q in enumerate(means(agent, judged)):
        allowed = np.flatnonzero(data.next_obs['action_mask'][i]) if is_masked else np.arange(agent.actions)
        best.append(max(allowed if len(allowed) else np.arange(agent.actions), key=lambda a, q=q: q[a]))

    def each() -> list[tuple[float, float]]:
        numbers = network(x, noise[0])
        return [
            loss_of_one(agent, numbers[i, data.action[i]], next_numbers[i, best[i]], data.reward[i], data.discount[i])
            for i in rows
        ]

    return (
        lambda: sum(data.weight[i] * loss for i, (loss, _) in enumerate(each())) / len(rows),
        np.array([priority for _, priority in each()]),
        np.array(best),
    )
