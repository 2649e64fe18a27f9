"""Updates of discrete SAC in plain torch, from given weights and batches.

The update is CleanRL's (sac_atari.py, commit 004f8a0), written anew for fully connected networks: no class of CleanRL
can be imported. Reads what benchmarks/equal_updates.py wrote, and writes the weights after the updates under the same
names.

Losses differ from ours by constant factors, which Adam takes away except for its epsilon: that of the critics is the
squared error, ours half of it; those of actor and temperature are means over rows and actions, ours over rows. The
temperature is learned by its logarithm, as in the authors' code and in Stable-Baselines3; CleanRL multiplies that
gradient by the temperature, a factor that changes.
"""

import argparse
import copy
import json

import numpy as np
import torch
from torch import nn
from torch.nn import functional


def network(arrays: dict, prefix: str) -> nn.Sequential:
    """Layers of the given weights, with ReLU between them."""
    layers = []
    while f"{prefix}.{len(layers) // 2}.weight" in arrays:
        weight, bias = (torch.as_tensor(arrays[f"{prefix}.{len(layers) // 2}.{kind}"]) for kind in ("weight", "bias"))
        layer = nn.Linear(weight.shape[1], weight.shape[0])
        layer.weight.data, layer.bias.data = weight, bias
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class DiscreteSAC:
    """Actor, two critics, their target copies, the temperature and Adam for each."""

    def __init__(self, arrays: dict, settings: dict):
        self.tau, self.target_entropy = settings["tau"], settings["target_entropy"]
        self.actor = network(arrays, "policy.0")
        self.critics = nn.ModuleList(network(arrays, f"critics.{copy}") for copy in range(2))
        self.targets = copy.deepcopy(self.critics)
        self.log_alpha = nn.Parameter(torch.as_tensor(arrays["log_alpha"]))
        num_actions = self.actor[-1].out_features
        lr, epsilon = settings["learning_rate"], 1e-8
        # Epsilon times the factor of the loss.
        self.of_critics = torch.optim.Adam(self.critics.parameters(), lr, eps=2 * epsilon)
        self.of_actor = torch.optim.Adam(self.actor.parameters(), lr, eps=epsilon / num_actions)
        self.of_alpha = torch.optim.Adam([self.log_alpha], lr, eps=epsilon / num_actions)

    def policy(self, observations: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Probabilities of the actions and their logarithms."""
        logits = self.actor(observations)
        return logits.softmax(1), logits.log_softmax(1)

    def update(self, obs, actions, rewards, discounts, new_obs) -> None:
        """The critics, then the actor, the temperature, and the target copies."""
        alpha = self.log_alpha.detach().exp()
        with torch.no_grad():
            p, log_p = self.policy(new_obs)
            smaller = torch.minimum(*(target(new_obs) for target in self.targets))
            goal = rewards + discounts * (p * (smaller - alpha * log_p)).sum(1)
        taken = [critic(obs).gather(1, actions[:, None])[:, 0] for critic in self.critics]
        self.descend(self.of_critics, sum(functional.mse_loss(values, goal) for values in taken))
        with torch.no_grad():
            smaller = torch.minimum(*(critic(obs) for critic in self.critics))
        p, log_p = self.policy(obs)
        self.descend(self.of_actor, (p * (alpha * log_p - smaller)).mean())
        p, log_p = p.detach(), log_p.detach()
        self.descend(self.of_alpha, (-self.log_alpha * p * (log_p + self.target_entropy)).mean())
        with torch.no_grad():
            for target, critic in zip(self.targets.parameters(), self.critics.parameters()):
                target.copy_(self.tau * critic + (1 - self.tau) * target)

    @staticmethod
    def descend(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def weights(self) -> dict[str, np.ndarray]:
        """By the names of the given ones."""
        found = {"log_alpha": self.log_alpha}
        several = {"policy": [self.actor], "critics": self.critics, "target_critics": self.targets}
        for prefix, networks in several.items():
            for number, layers in enumerate(networks):
                for index, layer in enumerate(layers[::2]):
                    found |= {f"{prefix}.{number}.{index}.{kind}": part for kind, part in layer.named_parameters()}
        return {name: part.detach().numpy() for name, part in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("given", help="file of what to start from")
    parser.add_argument("results", help="file to write the weights to")
    files = parser.parse_args()
    torch.set_num_threads(1)
    arrays = dict(np.load(files.given))
    model = DiscreteSAC(arrays, json.loads(str(arrays["settings"])))
    columns = [torch.as_tensor(arrays[name]) for name in ("obs", "actions", "rewards", "discounts", "new_obs")]
    for batch in zip(*columns):
        model.update(*batch)
    np.savez(files.results, **model.weights())
    print(json.dumps({"torch": torch.__version__}))


if __name__ == "__main__":
    main()
