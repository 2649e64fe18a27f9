"""A module of the smallest size, written for RLlib's new API stack."""

import torch
from torch import nn

from rllib.core import TorchRLModule, ValueFunctionAPI


class Small(TorchRLModule, ValueFunctionAPI):
    def setup(self):
        width = self.model_config["width"]
        self.hidden, self.policy, self.value = nn.Linear(1, width), nn.Linear(width, 2), nn.Linear(width, 1)

    def _forward(self, batch, **kwargs):
        return {"action_dist_inputs": self.policy(torch.tanh(self.hidden(batch["obs"])))}

    def compute_values(self, batch, embeddings=None):
        return self.value(torch.tanh(self.hidden(batch["obs"]))).squeeze(-1)
