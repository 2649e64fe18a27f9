"""Recurrent policies by the names of sb3-contrib's RecurrentPPO: "MlpLstmPolicy" and its keywords."""

from collections.abc import Mapping
from typing import Any

# Name of a recurrent policy -> name of the same policy without its recurrent cell.
WITHOUT_MEMORY = {
    "MlpLstmPolicy": "MlpPolicy",
    "CnnLstmPolicy": "CnnPolicy",
    "MultiInputLstmPolicy": "MultiInputPolicy",
}
# Defaults of RecurrentPPO where they differ from PPO's.
_DEFAULTS = {"n_steps": 128, "batch_size": 128}
_CELL_SIZE = 256


def words_without_memory(algorithm: str, words: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Divides the words of a recurrent policy.

    Args:
        algorithm: name of the algorithm.
        words: words with the name of such a policy.

    Returns:
        the words of the policy without its memory, and settings of `model` for the memory.

    Raises:
        ValueError: for another algorithm than PPO, or a memory that this library does not have.
    """
    if algorithm != "PPO":
        raise ValueError(
            f"policy={words['policy']!r} is a policy of PPO. DQN with a memory is R2D2 (docs/guide/networks.md)."
        )
    words = {**_DEFAULTS, **words, "policy": WITHOUT_MEMORY[words["policy"]]}
    network = dict(words.get("policy_kwargs") or {})
    shares, has_own = network.pop("shared_lstm", False), network.pop("enable_critic_lstm", True)
    size, further = network.pop("lstm_hidden_size", _CELL_SIZE), network.pop("lstm_kwargs", None)
    if further:
        raise ValueError(f"policy_kwargs: lstm_kwargs={further!r:.60} cannot be used: a cell is torch's, unchanged.")
    if not (shares or has_own):
        raise ValueError(
            "policy_kwargs: enable_critic_lstm=False cannot be used without shared_lstm=True: the value has its own "
            "memory, or reads the policy's."
        )
    memory = {"use_lstm": True, "lstm_cell_size": size, "vf_share_memory": shares, "max_seq_len": words["n_steps"]}
    return {**words, "policy_kwargs": network}, memory


def with_memory(model: Mapping[str, Any], memory: Mapping[str, Any]) -> dict[str, Any]:
    """The setting `model` of a policy with its memory: hidden layers stand behind the cell, as there."""
    model = dict(model)
    if "conv_filters" not in model:
        behind = {"post_lstm_hiddens": model["fcnet_hiddens"], "post_lstm_activation": model["fcnet_activation"]}
        model |= {"fcnet_hiddens": [], **behind}
    return model | memory
