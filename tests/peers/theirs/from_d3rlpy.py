"""d3rlpy's updates from recorded data."""

import logging

import d3rlpy
import numpy as np
import structlog
import torch
from d3rlpy.dataset import TransitionMiniBatch
from d3rlpy.models.encoders import VectorEncoderFactory
from d3rlpy.optimizers import SGDFactory

structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))


def step(settings, obs, actions, rewards, next_obs, terminals, **weights):
    """One step of SGD from `weights`: the weights after it, under the same names.

    A name is MODULE/COPY/KIND/PLACE: the module as d3rlpy names it, the number of the critic, "weight" or "bias", and
    the layer's place.
    """
    torch.set_num_threads(1)
    encoder = VectorEncoderFactory(settings["hiddens"])
    words = {name: encoder if name.endswith("_factory") else word for name, word in settings["words"].items()}
    algo = getattr(d3rlpy.algos, settings["config"])(
        batch_size=len(obs), gamma=settings["gamma"], tau=settings["tau"],
        actor_learning_rate=settings["actor_lr"], critic_learning_rate=settings["critic_lr"],
        actor_optim_factory=SGDFactory(), critic_optim_factory=SGDFactory(),
        actor_encoder_factory=encoder, critic_encoder_factory=encoder,
        **words,
    ).create(device=False)  # fmt: skip
    algo.create_impl(obs.shape[1:], actions.shape[1])
    tensors = dict(_named(algo.impl._modules))
    with torch.no_grad():
        for name, array in weights.items():
            tensors[name].copy_(torch.as_tensor(array).reshape(tensors[name].shape))
        if (policy := algo.impl._modules.policy) and hasattr(policy, "_logstd"):
            # Its parameter is the logit of the place between bounds.
            low, high = policy._min_logstd, policy._max_logstd
            policy._logstd.fill_(torch.logit(torch.tensor((settings["log_std"] - low) / (high - low))))
    # The noise of target actions is left out on both sides.
    torch.randn_like = lambda tensor, **_: torch.zeros_like(tensor)
    batch = TransitionMiniBatch(
        obs, actions, rewards[:, None], next_obs, actions, terminals[:, None], np.ones_like(terminals)[:, None], []
    )
    algo.update(batch)
    return {name: tensors[name].detach().numpy().reshape(array.shape) for name, array in weights.items()}


def _named(modules):
    for module in ("policy", "targ_policy", "q_funcs", "targ_q_funcs", "value_func"):
        network = getattr(modules, module, None)
        if network is None:
            continue
        copies = list(network) if isinstance(network, torch.nn.ModuleList) else [network]
        for copy, part in enumerate(copies):
            layers = [layer for layer in part.modules() if isinstance(layer, torch.nn.Linear)]
            for place, layer in enumerate(layers):
                yield f"{module}/{copy}/weight/{place}", layer.weight
                yield f"{module}/{copy}/bias/{place}", layer.bias
