"""Names that are almost those of a method to override, and keys that one dict has under two names."""

import pytest

from rllib import DQNConfig, PPOConfig, SACConfig
from rllib.callbacks.base import OVERRIDDEN, BaseCallback, callbacks_of
from rllib.core import FlattenObservations, MeanStdFilter, MultiRLModuleSpec, RLModuleSpec, TorchLearner, TorchRLModule
from rllib.core.learner.torch_learner import learner_problem
from rllib.core.metrics.metrics_logger import _KEYWORDS, MetricsLogger
from rllib.core.modules.rl_module import OVERRIDDEN as OF_MODULES
from rllib.did_you_mean import did_you_mean, misspelt_override
from rllib.models.model_settings import ModelSettings
from rllib.replay.replay_settings import ReplaySettings

BASES = [
    (BaseCallback, OVERRIDDEN),
    (TorchLearner, ("compute_loss_for_module", "build")),
    (TorchRLModule, OF_MODULES),
]


@pytest.mark.parametrize(
    ("given", "form", "expected"),
    [
        ("lefd", str, " Did you mean left?"),
        ("LEFT", repr, " Did you mean 'left'?"),
        ("agent_10", str, " Did you mean agent_1 or agent_0?"),
        ("agent_10", repr, " Did you mean 'agent_1' or 'agent_0'?"),
        (12, "{}://".format, " Did you mean 123://?"),
        (None, str, " There are two."),
        ("xyz", repr, " There are two."),
    ],
)
def test_similar_names_are_suggested_in_one_sentence(given, form, expected):
    known = ["left", "agent_0", "agent_1", 123]
    assert did_you_mean(given, known, form, otherwise="There are two.") == expected
    assert did_you_mean(given, known, form) == ("" if "There" in expected else expected)


def _slips(name: str) -> set[str]:
    """Names with one letter left out of the second half, twice, or at the end."""
    middle = len(name) // 2 + 1
    return {name[:middle] + name[middle + 1 :], name[:middle] + name[middle] + name[middle:], name + "s"}


@pytest.mark.parametrize(
    ("base", "name"), [(base, name) for base, names in BASES for name in names if len(name) > len("_forward")]
)
def test_a_slip_is_named(base, name):
    for slip in _slips(name):
        owner = type("Mine", (base,), {slip: lambda self, *args, **kwargs: None})
        assert f"Mine has {slip}, which nothing calls. Did you mean {name}?" in misspelt_override(
            owner, base, dict(BASES)[base]
        )
        both = type("Mine", (owner,), {name: getattr(base, name)})
        assert misspelt_override(both, base, dict(BASES)[base]) is None


def test_slips_are_refused_where_an_object_or_a_class_is_given():
    class Counter(BaseCallback):
        def _on_stp(self):
            return True

    with pytest.raises(TypeError, match=r"Counter has _on_stp.* _on_step\?"):
        callbacks_of(Counter())

    class Learner(TorchLearner):
        def compute_losses_for_module(self, **kwargs):
            return 0

    assert "Did you mean compute_loss_for_module?" in learner_problem(Learner)

    class Module(TorchRLModule):
        def _forward_explore(self, batch, **kwargs):
            return {}

    config = PPOConfig().environment("CartPole-v1").rl_module(rl_module_spec=RLModuleSpec(module_class=Module))
    with pytest.raises(Exception, match=r"_forward_explore, .* _forward_exploration\?"):
        config.build()


@pytest.mark.parametrize("given", ["train_batch_size_per_learner", "train_batch_size"])
@pytest.mark.parametrize("num_learners", [0, 1, 2])
@pytest.mark.parametrize("learners_first", [False, True])
def test_a_size_of_each_learner_is_told_where_there_are_several(given, num_learners, learners_first, caplog):
    config = PPOConfig().environment("CartPole-v1")
    size = 256 + 2 * num_learners + learners_first  # a notice is told once in a process
    if learners_first:
        config.learners(num_learners=num_learners).training(**{given: size})
    else:
        config.training(**{given: size}).learners(num_learners=num_learners)
    config.validate()
    is_told = f"train_batch_size={size * 2})" in caplog.text
    assert is_told == (num_learners == 2 and given == "train_batch_size_per_learner")


@pytest.mark.parametrize(
    ("config", "setting", "name", "key"),
    [
        (kind, setting, name, key)
        for kind, setting, keys in [
            (DQNConfig, "replay_buffer_config", ReplaySettings),
            (SACConfig, "replay_buffer_config", ReplaySettings),
            (PPOConfig, "model", ModelSettings),
        ]
        for name, key in keys.other_names.items()
    ],
)
def test_two_names_of_one_key(config, setting, name, key):
    with pytest.raises(TypeError, match=f"'{name}'.* and '{key}'.* are one key"):
        config().training(**{setting: {name: 0.5, key: 0.25}})
    same = config().training(**{setting: {name: 0.5, key: 0.5}})
    assert same[setting][name] == 0.5
    # Of two calls the later one counts, and what comes of them can be read again.
    later = config().training(**{setting: {name: 0.5}}).training(**{setting: {key: 0.25}})
    assert config.from_dict(later.to_dict())[setting] == later[setting]


@pytest.mark.parametrize("name", [name for name in _KEYWORDS if name != "reduce"])
def test_a_keyword_of_a_logged_value(name):
    for slip in _slips(name):
        with pytest.raises(TypeError, match=f"'{slip}'. Did you mean {name}"):
            MetricsLogger().log_value("x", 1.0, **{slip: 3})
    MetricsLogger().log_value("x", 1.0, throughput_ema_coeff=0.1, a_later_argument=3)


@pytest.mark.parametrize(("piece", "name"), [(MeanStdFilter, "clip_by_value"), (FlattenObservations, "keys_to_remove")])
def test_a_keyword_of_a_connector(piece, name):
    for slip in _slips(name):
        with pytest.raises(TypeError, match=f"'{slip}'. Did you mean {name}"):
            piece(**{slip: 3})
    with pytest.raises(ValueError, match="clip_by_value=-1"):
        MeanStdFilter(clip_by_value=-1)


@pytest.mark.parametrize("given", [[RLModuleSpec()], {"p0": TorchRLModule}, {"p0": None}, 3], ids=str)
def test_descriptions_of_several_modules(given):
    with pytest.raises(TypeError, match=r"rl_module_specs=.* must be a dict of policy id -> RLModuleSpec"):
        PPOConfig().rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=given))
