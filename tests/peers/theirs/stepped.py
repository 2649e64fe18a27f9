"""Runs of Stable-Baselines3 and sb3-contrib beside ours, step by step."""

import gymnasium
import numpy as np
import sb3_contrib
import stable_baselines3
import torch
from sb3_equal_updates import SQUASHED, as_ours, load, named, random_numbers
from stable_baselines3.common.noise import ActionNoise
from tasks import Watched


class GivenNoise(ActionNoise):
    """Summands of exploration, step by step."""

    def __init__(self, summands):
        super().__init__()
        self._next = iter(summands).__next__

    def __call__(self):
        return self._next()


def run(settings, actions, exploration, rows, **given):
    """Trains a model that is set onto our path in each step: the environment gets our action, and once the model has
    acted, it gets our weights.

    Args:
        settings: algorithm, environment, number of random steps, words of the constructor.
        actions: [T, size] of ours, in the environment's units; those of random steps are what the model draws.
        exploration: [T, size], what SAC's normal distributions and TD3's noise draw in each step. In random steps SAC
            draws nothing, and TD3's noise is 0: the library adds it to random actions too, we do not.
        rows: [U, B], places in the replay of each update's batch.
        given: random numbers of the updates [U, B, size], by the names of losses; our weights [T, ...], before each
            step, under the names of sb3_equal_updates.

    Returns:
        acted [T, size], in the environment's units; updates [U], numbers of steps after which they were made;
        weights.NAME [T + 1, ...], before each step and at the end; Adam's means.NAME and squares.NAME at the end; and
        the columns of the replay [T, ...].
    """
    torch.set_num_threads(1)
    algorithm, num_random, words = settings["algorithm"], settings["num_random"], dict(settings["words"])
    squashed, count = algorithm in SQUASHED, len(actions)
    seen, acted, updates = {}, [], []

    def note():
        for name, parts in tensors.items():
            whole = torch.cat([part.detach().clone() for part in parts])
            seen.setdefault(f"weights.{name}", []).append(whole.numpy())

    def before_step(action):
        step = len(acted)
        note()
        acted.append(np.array(action))
        load(tensors, {name: given[name][step] for name in tensors})
        return actions[step]

    environment = Watched(gymnasium.make(settings["environment"]), before_step)
    if not squashed:
        words["action_noise"] = GivenNoise([*np.zeros_like(exploration[:num_random]), *exploration[num_random:]])
    library = stable_baselines3 if hasattr(stable_baselines3, algorithm) else sb3_contrib
    model = getattr(library, algorithm)("MlpPolicy", environment, device="cpu", **words)
    tensors = named(model, algorithm)
    load(tensors, {name: given[name][0] for name in tensors})
    model.action_space.sample = iter(actions[:num_random]).__next__
    buffer, train, batches = model.replay_buffer, model.train, iter(rows)
    samples = buffer._get_samples
    buffer._get_samples = lambda places, env=None: samples(next(batches), env)
    # Drawn within an update, and by actions.
    arrays = given | {"rewards": rows, "actions": rows[..., None].astype(np.float32)}
    drawn = random_numbers(algorithm, arrays, getattr(model, "policy_delay", 1))
    of_actions, is_training = iter(exploration[num_random:, None]), False

    def trained(*args, **kwargs):
        nonlocal is_training
        updates.append(model.num_timesteps)
        is_training = True
        train(*args, **kwargs)
        is_training = False

    model.train = trained
    with as_ours(model, algorithm, lambda: next(drawn if is_training else of_actions)):
        model.learn(count)
    note()
    found = {name: np.stack(each) for name, each in seen.items()}
    memory = {**model.actor.optimizer.state, **model.critic.optimizer.state}
    memory |= model.ent_coef_optimizer.state if squashed else {}
    for name, parts in tensors.items():
        if parts[0] in memory:
            for kind, key in (("means", "exp_avg"), ("squares", "exp_avg_sq")):
                found[f"{kind}.{name}"] = torch.cat([memory[part][key] for part in parts]).numpy()
    ends = buffer.dones * (1 - buffer.timeouts)
    columns = {
        "obs": buffer.observations, "actions": buffer.actions, "rewards": buffer.rewards,
        "new_obs": buffer.next_observations, "discounts": np.float32(model.gamma) * (1 - ends),
    }  # fmt: skip
    stored = {name: each[:count, 0] for name, each in columns.items()}
    return {**found, **stored, "acted": np.stack(acted).reshape(actions.shape), "updates": np.array(updates)}
