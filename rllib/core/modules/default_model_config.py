"""Settings of the built-in networks as a dataclass, by the names of RLlib's new API stack."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class DefaultModelConfig:
    """The `model` settings as RLlib's new API stack spells them: `.rl_module(model_config=DefaultModelConfig(...))`.

    `head_fcnet_hiddens` is `post_fcnet_hiddens`, `fcnet_use_layernorm` is `layer_norm`, and `fcnet_kernel_initializer`
    is `fcnet_weights_initializer`, by its name in torch.nn.init or as its function: `xavier_uniform_`; None: the
    algorithm's own. Attributes that have no counterpart have to keep their defaults.
    """

    fcnet_hiddens: list[int] = field(default_factory=lambda: [256, 256])
    fcnet_activation: str = "tanh"
    fcnet_kernel_initializer: str | Callable | None = None
    fcnet_kernel_initializer_kwargs: dict | None = None
    fcnet_bias_initializer: str | Callable | None = None
    fcnet_bias_initializer_kwargs: dict | None = None
    fcnet_use_layernorm: bool = False
    conv_filters: list | None = None
    conv_activation: str = "relu"
    conv_kernel_initializer: str | Callable | None = None
    conv_kernel_initializer_kwargs: dict | None = None
    conv_bias_initializer: str | Callable | None = None
    conv_bias_initializer_kwargs: dict | None = None
    head_fcnet_hiddens: list[int] = field(default_factory=list)
    head_fcnet_activation: str = "relu"
    head_fcnet_kernel_initializer: str | Callable | None = None
    head_fcnet_kernel_initializer_kwargs: dict | None = None
    head_fcnet_bias_initializer: str | Callable | None = None
    head_fcnet_bias_initializer_kwargs: dict | None = None
    head_fcnet_use_layernorm: bool = False
    free_log_std: bool = False
    log_std_clip_param: float = 20.0
    vf_share_layers: bool = True
    use_lstm: bool = False
    max_seq_len: int = 20
    lstm_cell_size: int = 256
    lstm_use_prev_action: bool = False
    lstm_use_prev_reward: bool = False
    lstm_kernel_initializer: str | Callable | None = None
    lstm_kernel_initializer_kwargs: dict | None = None
    lstm_bias_initializer: str | Callable | None = None
    lstm_bias_initializer_kwargs: dict | None = None
    fusionnet_hiddens: list[int] = field(default_factory=lambda: [256, 256])
    fusionnet_activation: str = "tanh"
    fusionnet_kernel_initializer: str | Callable | None = None
    fusionnet_kernel_initializer_kwargs: dict | None = None
    fusionnet_bias_initializer: str | Callable | None = None
    fusionnet_bias_initializer_kwargs: dict[str, Any] | None = None
