"""Updates of Stable-Baselines3 and sb3-contrib from given weights, batches and random numbers.

Reads what benchmarks/equal_updates.py wrote, and writes the weights after the updates under the same names.
"""

import argparse
import json
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from functools import partial, partialmethod
from unittest.mock import patch

import numpy as np
import sb3_contrib
import stable_baselines3
import torch
from stable_baselines3.common.logger import configure
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from torch import nn

SQUASHED = ("SAC", "TQC", "CrossQ")


def networks(model) -> dict[str, list[nn.Sequential]]:
    """Prefix -> the layers of each network, with what has parameters alone."""
    critics = {"critics": model.critic}
    if hasattr(model, "critic_target"):
        critics["target_critics"] = model.critic_target
    found = {"policy": [model.actor]}
    if hasattr(model, "actor_target"):
        found["target_policy"] = [model.actor_target]
    return found | {prefix: list(critic.q_networks) for prefix, critic in critics.items()}


def layers(network: nn.Module) -> list[nn.Module]:
    """The linear and the normalising layers, in the order of their registration, which is that of the computation."""
    return [part for part in network.modules() if isinstance(part, nn.Linear) or hasattr(part, "ra_mean")]


def named(model, algorithm: str) -> dict[str, list[torch.Tensor]]:
    """Name -> the tensors that stand one below the other in the array of that name; both heads of an actor in one."""
    found = {}
    for prefix, several in networks(model).items():
        for copy, network in enumerate(several):
            ordered = [[layer] for layer in layers(network)]
            if prefix == "policy" and algorithm in SQUASHED:
                ordered[-2:] = [ordered[-2] + ordered[-1]]
            for index, parts in enumerate(ordered):
                for name, _ in [*parts[0].named_parameters(), *parts[0].named_buffers()]:
                    if name != "steps":
                        found[f"{prefix}.{copy}.{index}.{name}"] = [getattr(part, name) for part in parts]
    if algorithm in SQUASHED:
        found["log_alpha"] = [model.log_ent_coef]
    return found


@torch.no_grad()
def load(tensors: dict[str, list[torch.Tensor]], arrays: dict) -> None:
    """Copies the arrays over the tensors."""
    for name, parts in tensors.items():
        first = 0
        for part in parts:
            array = torch.as_tensor(arrays[name][first : first + len(part)])
            part.copy_(array)
            first += len(part)


def batches(arrays: dict):
    """The batches, as a replay buffer gives them out."""
    for index in range(len(arrays["rewards"])):
        rows = {name: torch.as_tensor(arrays[name][index]) for name in ("obs", "actions", "new_obs")}
        rewards, discounts = (torch.as_tensor(arrays[name][index])[:, None] for name in ("rewards", "discounts"))
        ends = torch.zeros_like(rewards)
        yield ReplayBufferSamples(rows["obs"], rows["actions"], rows["new_obs"], ends, rewards, discounts)


def random_numbers(algorithm: str, arrays: dict, policy_delay: int):
    """The standard normal numbers, or summands of target actions, in the order in which the library draws them."""
    for index in range(len(arrays["rewards"])):
        if algorithm not in SQUASHED:
            yield arrays["target_noise"][index] if "target_noise" in arrays else np.zeros_like(arrays["actions"][index])
        elif algorithm == "CrossQ":
            yield arrays["next_noise"][index]
            if (index + 1) % policy_delay == 0:
                yield arrays["noise"][index]
        else:
            yield arrays["noise"][index]
            yield arrays["next_noise"][index]


@contextmanager
def as_ours(model, algorithm: str, draw: Callable[[], np.ndarray]):
    """Within it the library computes what we do, where it departs from the papers or in a factor.

    Args:
        model: of the algorithm; it is changed for good.
        draw: gives the random numbers that the library draws.
    """
    with ExitStack() as patches:
        if algorithm in SQUASHED:
            # The library adds 1e-6 within the logarithm of 1 - tanh(u)^2, the papers do not.
            model.actor.action_dist.epsilon = 0.0
            drawing = patch("torch.distributions.normal._standard_normal", lambda *_, **__: torch.as_tensor(draw()))
        else:
            # Its loss is the squared error, ours half of it; by Adam, epsilon alone makes that a difference.
            model.critic.optimizer.param_groups[0]["eps"] *= 2
            drawing = patch.object(torch.Tensor, "normal_", lambda self, *_: self.copy_(torch.as_tensor(draw())))
        patches.enter_context(drawing)
        if algorithm == "TQC":
            # Its loss is the mean over the critics, ours the sum; by Adam, epsilon alone makes that a difference.
            model.critic.optimizer.param_groups[0]["eps"] /= model.critic.n_critics
        if algorithm == "CrossQ":
            # The library divides the sum of squares by the number of rows less one, the paper by their number.
            patches.enter_context(patch.object(torch.Tensor, "var", partialmethod(torch.Tensor.var, correction=0)))
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("given", help="file of what to start from")
    parser.add_argument("results", help="file to write the weights to")
    files = parser.parse_args()
    torch.set_num_threads(1)
    arrays = dict(np.load(files.given))
    settings = json.loads(str(arrays["settings"]))
    algorithm, updates, rows = settings.pop("algorithm"), *arrays["rewards"].shape
    library = stable_baselines3 if hasattr(stable_baselines3, algorithm) else sb3_contrib
    environment = settings.pop("environment")
    model = getattr(library, algorithm)("MlpPolicy", environment, device="cpu", buffer_size=1, **settings)
    model.set_logger(configure(None, []))
    tensors = named(model, algorithm)
    load(tensors, arrays)
    model.replay_buffer.sample = partial(lambda given, *args, **kwargs: next(given), batches(arrays))
    drawn = random_numbers(algorithm, arrays, getattr(model, "policy_delay", 1))
    with as_ours(model, algorithm, partial(next, drawn)):
        model.train(updates, rows)
    found = {name: torch.cat([part.detach() for part in parts]) for name, parts in named(model, algorithm).items()}
    np.savez(files.results, **{name: tensor.numpy() for name, tensor in found.items()})
    print(json.dumps({"stable_baselines3": stable_baselines3.__version__, "sb3_contrib": sb3_contrib.__version__}))


if __name__ == "__main__":
    main()
