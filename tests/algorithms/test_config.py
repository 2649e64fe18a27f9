"""AlgorithmConfig through its public door, by the example of a small config of our own."""

import copy
import dataclasses
import inspect
import re
import subprocess
import sys
from typing import Annotated, Self

import cloudpickle
import numpy as np
import pytest

from rllib.algorithms.base.config import AlgorithmConfig
from rllib.algorithms.dqn import DQNConfig
from rllib.algorithms.ppo import PPOConfig
from rllib.algorithms.r2d2 import R2D2Config
from rllib.config.config_object import relation
from rllib.config.conflicts import Mistake
from rllib.config.sections import above, section


class FakeAlgorithm:
    def __init__(self, config):
        self.config = config


class FakePPOConfig(AlgorithmConfig):
    """How an algorithm declares its own settings."""

    algo_class = FakeAlgorithm
    on_policy = True

    @section
    def rollouts(self, *, num_rollout_workers=2, rollout_fragment_length="auto") -> Self:
        """Who samples."""

    @section
    def training(
        self,
        *,
        lr=5e-5,
        train_batch_size=4000,
        sgd_minibatch_size: Annotated[int, "rows per gradient step", above(0)] = 128,
        num_sgd_iter: Annotated[int, "epochs", above(0)] = 30,
        lambda_: Annotated[float, "GAE's lambda"] = 1.0,
        clip_param: Annotated[float | list, "how far the ratio may leave 1", above(0)] = 0.3,
        entropy_coeff: Annotated[float | list, "of the entropy"] = 0.0,
        entropy_coeff_schedule: Annotated[list | None, "the same"] = None,
    ) -> Self:
        """Settings of the fake PPO."""

    @relation("clip_param", "lambda_")
    def _check_example(self):
        if self.lambda_ == 0.123:
            names = "clip_param", "lambda_"
            return Mistake("lambda_=0.123 is the example of a relation.", names, ({"lambda_": 1.0},))


def config(**training) -> FakePPOConfig:
    return FakePPOConfig().environment("CartPole-v1").training(**training)


def message_of(broken: AlgorithmConfig) -> str:
    with pytest.raises(ValueError) as raised:
        broken.validate()
    return str(raised.value)


# ---------------------------------------------------------------------- setting


def test_sections_set_only_what_is_given_and_chain():
    changed = (
        FakePPOConfig()
        .environment("FrozenLake-v1", env_config={"is_slippery": False})
        .framework("torch")
        .rollouts(num_rollout_workers=4, num_envs_per_worker=2)
        .resources(num_gpus=0)
        .training(model={"fcnet_hiddens": [32, 32]})
    )
    assert isinstance(changed, FakePPOConfig)
    assert (changed.env, changed.env_config) == ("FrozenLake-v1", {"is_slippery": False})
    assert (changed.num_rollout_workers, changed.num_envs_per_worker) == (4, 2)
    assert changed.model["fcnet_hiddens"] == [32, 32]
    assert (changed.lr, changed.train_batch_size, changed.gamma) == (5e-5, 4000, 0.99)


def test_a_subclass_adds_settings_and_changes_defaults_for_itself_alone():
    assert FakePPOConfig().sgd_minibatch_size == 128
    assert AlgorithmConfig().lr == 0.001
    assert "sgd_minibatch_size" not in AlgorithmConfig()
    assert FakePPOConfig().adam_epsilon == AlgorithmConfig().adam_epsilon


def test_an_inherited_setting_with_another_default_keeps_type_and_rules():
    assert "lr=-1.0 must be a number >= 0" in message_of(config(lr=-1))


def test_a_subclass_of_a_subclass_inherits_both():
    class Child(FakePPOConfig):
        @section
        def training(self, *, lr=1e-4, extra: Annotated[int, "of the child"] = 7) -> Self:
            """Settings of the child."""

    child = Child().training(extra=8, clip_param=0.1, gamma=0.9)
    assert (child.lr, child.extra, child.clip_param, child.gamma) == (1e-4, 8, 0.1, 0.9)
    assert FakePPOConfig().lr == 5e-5


def test_help_and_completion_show_inherited_settings_too():
    signature = inspect.signature(FakePPOConfig().training)
    assert {"gamma", "lr", "clip_param", "model"} <= signature.parameters.keys()
    assert signature.parameters["lr"].default == 5e-5
    assert signature.parameters["gamma"].kind is inspect.Parameter.KEYWORD_ONLY
    documentation = inspect.getdoc(FakePPOConfig.training)
    assert "Settings of the fake PPO." in documentation
    assert "gamma (float, default 0.99): discount" in documentation
    assert "sgd_minibatch_size (int, default 128): rows per gradient step" in documentation
    assert "num_env_runners" in inspect.signature(FakePPOConfig().env_runners).parameters


def test_completion_lists_settings_as_attributes():
    assert {"lr", "clip_param", "training", "build"} <= set(dir(FakePPOConfig()))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: c.training(clip_parm=0.1), r"no setting 'clip_parm'. Did you mean .training\(clip_param=...\)"),
        (lambda c: c.training(minibatch_siz=1), r"Did you mean .training\(minibatch_size=...\)"),
        (lambda c: c.training(learning_rate=1), r"Did you mean .training\(lr=...\)\?"),
        (lambda c: c.training(num_rollout_workers=1), r"is a setting of .rollouts\(\), not of .training\(\)"),
        (lambda c: c.training(num_workers=1), r"Use .rollouts\(num_rollout_workers=...\)"),
        (lambda c: c.training(xyzzy=1), "has no setting 'xyzzy'"),
        (lambda c: c.training(0.1), r".training\(\) takes its settings by name only, but got 0.1"),
        (lambda c: c.environment("a", "b"), r"takes env by position, but got 'a', 'b'"),
        (lambda c: c.environment("a", env="b"), "got env twice"),
        (lambda c: c.update_from_dict({"gama": 1, "lambada": 2}), "'gama'(.|\n)*'lambada'"),
        (lambda c: c.update_from_dict({"training": {"clip_parm": 1}}), "clip_param"),
        (lambda c: c.update_from_dict({5: 1}), "has no setting 5"),
        (lambda c: c.update_from_dict({"training": {5: 1}}), "has no setting 5"),
        (lambda c: c.update_from_dict({"training": 5}), "training=5 must be a dict: training is a section"),
        (lambda c: c.training(rollouts=None), "has no setting 'rollouts'"),
    ],
)
def test_unknown_and_misplaced_names_are_refused_at_once(call, message):
    fresh = config()
    before = fresh.to_dict()
    with pytest.raises(TypeError, match=message):
        call(fresh)
    assert fresh.to_dict() == before


@pytest.mark.parametrize("section", ["training", "env_runners", "framework"])
def test_an_empty_section_of_a_file_sets_nothing(section):
    assert PPOConfig.from_dict({section: None, "lr": 0.5}).changes().keys() - {"framework"} == {"lr"}


def test_values_in_a_dict_are_those_that_the_config_would_take():
    size, rest = {"buffer_size": 100}, {"replay_buffer_config": {"prioritized_replay_alpha": 0.3}, "num_epochs": 30}
    for given in ({**size, **rest}, {**rest, **size}, {"training": size, **rest}):
        values, taken = DQNConfig().values_in(given), DQNConfig().update_from_dict(given)
        assert values == {"replay_buffer_config": {"capacity": 100, "prioritized_replay_alpha": 0.3}}
        assert taken.replay_buffer_config == {**DQNConfig().replay_buffer_config, **values["replay_buffer_config"]}


def test_one_unknown_name_leaves_the_whole_call_without_effect():
    fresh = config()
    with pytest.raises(TypeError):
        fresh.training(gamma=0.5, gama=0.5)
    assert fresh.gamma == 0.99


def test_dicts_of_a_section_are_merged_and_assignment_replaces_them():
    changed = config(model={"fcnet_hiddens": [8]}).training(model={"vf_share_layers": True})
    assert changed.model == {"fcnet_hiddens": [8], "vf_share_layers": True}
    changed.model = {"fcnet_activation": "relu"}
    assert changed.model == {"fcnet_activation": "relu"}


def test_defaults_that_are_dicts_belong_to_one_config_alone():
    first = FakePPOConfig()
    first.env_config["size"] = 5
    first.model["fcnet_hiddens"] = [1]
    assert FakePPOConfig().env_config == FakePPOConfig().model == {}


def test_what_is_handed_over_is_copied():
    env_config = {"sizes": [1, 2]}
    changed = config().environment(env_config=env_config)
    env_config["sizes"].append(3)
    assert changed.env_config == {"sizes": [1, 2]}


def test_attributes_and_items_read_and_set_the_same():
    changed = config()
    changed.lr = 0.5
    changed["gamma"] = 0.5
    assert (changed["lr"], changed.get("gamma"), changed.get("nothing", 7)) == (0.5, 0.5, 7)
    assert ("lr" in changed, "nothing" in changed) == (True, False)
    assert dict(changed.items()) == dict(changed) == changed.to_dict()
    assert len(changed) == len(list(changed.keys())) == len(list(changed.values()))


def test_unknown_attributes_and_items_are_refused():
    with pytest.raises(AttributeError, match=r"no setting or section 'trainin'. Did you mean .training\(\)"):
        config().trainin(lr=1)
    with pytest.raises(AttributeError, match="clip_param"):
        config().clip_parm = 0.1
    with pytest.raises(KeyError, match="clip_param"):
        config()["clip_parm"]
    with pytest.raises(TypeError, match=r"policies"):
        config().multi_agent(policys={"a", "b"})


def test_a_name_that_some_algorithms_lack_is_asked_for_without_a_search_for_similar_ones(monkeypatch):
    """Algorithms ask for schedules in each iteration, of which most have none: the search takes milliseconds."""
    monkeypatch.delattr("rllib.config.config_object.nearest")
    assert config().get("lr_schedule_of_others") is None and config().get("nothing", 7) == 7


def test_numbers_arrive_in_the_settings_own_type():
    changed = config(lr=1, train_batch_size=np.int64(64), clip_param=np.float64(0.25), gamma=np.float32(0.5))
    changed.training(sgd_minibatch_size=6.4e1, entropy_coeff=((0, 0.1), (10, 0)))
    changed.validate()
    assert type(changed.lr) is float
    assert type(changed.train_batch_size) is int
    assert type(changed.sgd_minibatch_size) is int
    assert type(changed.clip_param) is float
    assert changed.gamma == 0.5
    assert changed.entropy_coeff == [[0, 0.1], [10, 0]]


# ---------------------------------------------------------------------- checking


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"train_batch_size": "4000"}, "must be an integer >= 1, not text; write 4000 without quotes. Use"),
        (
            {"train_batch_size": 4000.5},
            "train_batch_size=4000.5 must be an integer >= 1. Use .training(train_batch_size=4000)",
        ),
        ({"train_batch_size": True}, "train_batch_size=True must be an integer"),
        ({"train_batch_size": None}, "train_batch_size=None must be an integer"),
        ({"train_batch_size": 0}, "train_batch_size=0 must be an integer >= 1 (environment steps per update)"),
        ({"lr": "5e-5"}, "not text; write 5e-05 without quotes (YAML takes 5e-5 for text, and 5.0e-5 for a number)"),
        ({"lr": "fast"}, "lr='fast' must be a number >= 0 or a schedule"),
        ({"lr": True}, "lr=True must be a number"),
        ({"lr": float("nan")}, "lr=nan must be a number"),
        ({"lr": [[0, 0.1], [10, -0.1]]}, "must be a number >= 0 or a schedule"),
        ({"lr": [[5, 0.1], [10, 0.1]]}, "must start at timestep 0, not at 5. Use .training(lr=[[0, "),
        ({"lr_schedule": 0.1}, "lr_schedule=0.1 must be a schedule [[timestep, value], ...] or None"),
        ({"gamma": 1.1}, "gamma=1.1 must be a number >= 0 and <= 1"),
        ({"grad_clip": 0}, "grad_clip=0.0 must be a number > 0 or None"),
        ({"grad_clip_by": "norms"}, "must be 'global_norm' or 'norm' or 'value'"),
        ({"learner": "jax"}, "learner='jax' must be 'auto' or 'numpy' or 'torch'"),
        ({"sgd_minibatch_size": 5000}, "must be at most train_batch_size=4000. Use .training(sgd_minibatch_size=4000)"),
        ({"lambda_": 0.123}, "lambda_=0.123 is the example of a relation"),
    ],
)
def test_a_wrong_value_is_told_with_the_rule_and_what_to_do(training, message):
    assert message in message_of(config(**training))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.rollouts(num_rollout_workers=-1), "must be an integer >= 0 (processes that sample"),
        (lambda c: c.rollouts(num_envs_per_worker=0), "must be an integer >= 1"),
        (lambda c: c.rollouts(rollout_fragment_length="automatic"), "must be an integer >= 1 or 'auto'"),
        (lambda c: c.rollouts(batch_mode="complete"), "'truncate_episodes' or 'complete_episodes'"),
        (lambda c: c.rollouts(observation_filter="Kalman"), "'NoFilter' or 'MeanStdFilter'"),
        (lambda c: c.framework("tf2"), "framework='tf2' is not available: networks run on torch and numpy"),
        (lambda c: c.framework(None), "framework=None must be a string"),
        (lambda c: c.environment(clip_rewards=-1), "clip_rewards=-1.0 must be"),
        (lambda c: c.environment(env_config={1: 2}), "env_config must have strings as keys, but has 1"),
        (lambda c: c.environment(render_env=True), "render_env=True is not available yet"),
        (lambda c: c.callbacks(FakeAlgorithm), "must be a class derived from DefaultCallbacks"),
        (lambda c: c.learners(num_learners=-1), "num_learners=-1 must be an integer >= 0"),
        (lambda c: c.resources(num_gpus=2), "num_gpus=2.0 must be a number >= 0 and <= 1"),
        (
            lambda c: c.resources(num_gpus=1).training(learner="numpy"),
            "Use .training(learner='torch'), or leave num_gpus out.",
        ),
        (lambda c: c.evaluation(evaluation_interval=-1), "must be an integer >= 1 or None"),
        (lambda c: c.evaluation(evaluation_duration="auto"), "needs evaluation_parallel_to_training, but"),
        (
            lambda c: c.evaluation(evaluation_parallel_to_training=True),
            "Use .evaluation(evaluation_num_workers=1)",
        ),
        (lambda c: c.evaluation(evaluation_duration_unit="hours"), "must be 'episodes' or 'timesteps'"),
        (lambda c: c.evaluation(evaluation_config={"explor": True}), "Did you mean .exploration(explore=...)"),
        (lambda c: c.evaluation(evaluation_config={"lr": 1}), "but not lr. Leave lr out of it."),
        (
            lambda c: c.evaluation(evaluation_config={"exploration_config": {"type": "EpsilonGreedy"}}),
            "evaluation_config: exploration_config",
        ),
        (lambda c: c.evaluation(evaluation_config={"explore": 1}), "explore=1 must be True or False"),
        (
            lambda c: c.exploration(exploration_config={"type": "EpsilonGreedy"}),
            "this algorithm explores by StochasticSampling (EpsilonGreedy: it chooses among actions by",
        ),
        (lambda c: c.environment(render_env=True), "is not available yet"),
        (lambda c: c.debugging(seed=-1), "seed=-1 must be an integer >= 0 or None"),
        (lambda c: c.debugging(log_level="LOUD"), "'DEBUG' or 'INFO'"),
        (lambda c: c.reporting(metrics_num_episodes_for_smoothing=0), "must be an integer >= 1"),
    ],
)
def test_every_section_is_checked(change, message):
    assert message in message_of(change(config()))


@dataclasses.dataclass
class ModelConfig:
    fcnet_hiddens: list = dataclasses.field(default_factory=lambda: [8])
    vf_share_layers: bool = True


def test_a_dict_that_adds_to_the_one_there_may_be_a_dataclass():
    changed = config().rl_module(model_config=ModelConfig()).rl_module(model_config={"vf_share_layers": False})
    assert changed.model["fcnet_hiddens"] == [8] and changed.model["vf_share_layers"] is False


@pytest.mark.parametrize(
    "value", [[64, 64], None, object(), ModelConfig, "nature"], ids=lambda value: type(value).__name__
)
@pytest.mark.parametrize("name", ["model", "env_config"])
def test_what_is_no_dict_cannot_add_to_the_one_there(name, value):
    changed = config()
    with pytest.raises(ValueError, match=f"FakePPOConfig: {name}=.* must be a dict"):
        changed.update_from_dict({"lr": 0.5, name: value})
    assert changed.lr != 0.5
    with pytest.raises(ValueError, match=r"model=.* must be a dict"):
        changed.rl_module(model_config=value)


def test_the_environment_must_not_be_missing():
    assert "there is no environment. Use .environment('CartPole-v1')" in message_of(FakePPOConfig())


def test_build_tells_every_mistake_at_once_a_line_each():
    broken = FakePPOConfig().framework("tf").training(lr=-1, gamma=2).rollouts(num_envs_per_worker=0)
    with pytest.raises(ValueError) as raised:
        broken.build()
    first, *lines = str(raised.value).splitlines()
    assert first == "FakePPOConfig has 5 mistakes:"
    assert len(lines) == 5
    assert all(line.startswith("- ") and "Use ." in line for line in lines)


@pytest.mark.parametrize("model", [None, 1, "lstm", []])
def test_a_check_that_reads_a_wrong_setting_does_not_hide_what_is_wrong(model):
    """R2D2's check of the replay reads `model` by way of a property."""
    with pytest.raises(ValueError, match=f"model={re.escape(repr(model))}"):
        R2D2Config().environment("CartPole-v1").training(model=model).build()


def test_an_attribute_that_fails_says_why():
    class Own(PPOConfig):
        @property
        def computed(self):
            return self.lr.missing

    with pytest.raises(AttributeError, match="'missing'"):
        getattr(Own(), "computed")  # noqa: B009


def test_a_single_mistake_is_a_single_line():
    message = message_of(config(gamma=2))
    assert message.startswith("FakePPOConfig: gamma=2.0 must be")
    assert "\n" not in message


TOO_OLD = (
    "The NVIDIA driver on your system is too old (found version 11040).\nPlease update your GPU driver or install "
    "a PyTorch version that has been compiled with your version of the CUDA driver."
)


@pytest.mark.parametrize(
    ("built_for", "error", "visible", "reason"),
    [
        (None, None, None, "is built for CPUs: install a CUDA build, on a machine with a GPU. Use .resources(num_g"),
        (
            "12.8",
            TOO_OLD,
            None,
            "is built for CUDA 12.8 and finds no device: The NVIDIA driver on your system is too old (found version "
            "11040). Please update your GPU driver or install a PyTorch version that has been compiled with your "
            "version of the CUDA driver. Use .resources(num_gpus=0)",
        ),
        ("12.8", "No CUDA GPUs are available", "", "no device (CUDA_VISIBLE_DEVICES=''): No CUDA GPUs are available."),
        ("12.8", None, None, "finds no device: is its driver new enough?"),
    ],
)
def test_a_gpu_that_is_not_there_is_refused(built_for, error, visible, reason, monkeypatch):
    no_cuda(monkeypatch, built_for, error)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert reason in message_of(config().resources(num_gpus=1))


def no_cuda(monkeypatch, built_for, error=None):
    """Lets torch find no CUDA device, for this reason."""
    torch = pytest.importorskip("torch")

    def init():
        if error is not None:
            raise RuntimeError(error)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "init", init)
    monkeypatch.setattr(torch.version, "cuda", built_for)


def test_gpus_of_no_worker_are_refused():
    message = message_of(config().rollouts(num_rollout_workers=0).resources(num_gpus_per_worker=1))
    assert "num_gpus_per_worker=1.0 needs num_rollout_workers or evaluation_num_workers" in message
    config().rollouts(num_rollout_workers=0).evaluation(evaluation_num_workers=1, evaluation_interval=1).resources(
        num_gpus_per_worker=1
    ).validate()


@pytest.mark.parametrize(
    ("fragment", "size", "fits"),
    [
        (250, 1000, True),
        (300, 1000, False),
        (270, 1000, True),
        (1000, 1000, True),
        (1100, 1000, True),
        (1101, 1000, False),
    ],
)
def test_the_train_batch_must_be_made_of_fragments_within_ten_percent(fragment, size, fits):
    checked = config(train_batch_size=size).rollouts(num_rollout_workers=0, rollout_fragment_length=fragment)
    if fits:
        checked.validate()
    else:
        assert f"train_batch_size={size} must be a multiple of rollout_fragment_length={fragment}" in message_of(
            checked
        )


def test_the_proposed_train_batch_size_is_accepted():
    checked = config(train_batch_size=1000).rollouts(
        num_rollout_workers=2, num_envs_per_worker=3, rollout_fragment_length=100
    )
    message = message_of(checked)
    assert "rollout_fragment_length=100 x 2 workers x 3 envs = 600" in message
    assert "train_batch_size=1200" in message
    checked.training(train_batch_size=1200).validate()
    checked.training(train_batch_size=1000).rollouts(rollout_fragment_length="auto").validate()


def test_fragments_of_an_off_policy_algorithm_and_of_whole_episodes_are_free():
    AlgorithmConfig().environment("CartPole-v1").training(train_batch_size=32).validate()
    config(train_batch_size=1000).rollouts(rollout_fragment_length=300, batch_mode="complete_episodes").validate()


def test_validating_imports_neither_torch_nor_the_runtime():
    code = (
        "import sys\n"
        "from rllib.algorithms.base.config import AlgorithmConfig\n"
        "AlgorithmConfig().environment('CartPole-v1').resources(num_gpus=0).validate()\n"
        "print(sorted({'torch', 'runtime'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


# ---------------------------------------------------------------------- values that follow


@pytest.mark.parametrize(
    ("size", "workers", "envs", "lengths"),
    [
        (2456, 4, 3, [205, 205, 204, 204]),
        (4000, 3, 2, [667, 667, 666]),
        (2500, 4, 3, [209, 208, 208, 208]),
        (4000, 2, 2, [1000, 1000]),
        (4000, 0, 1, [4000]),
        (2, 4, 1, [1, 1, 1, 1]),
    ],
)
def test_an_automatic_fragment_length_divides_the_train_batch_among_all_environments(size, workers, envs, lengths):
    divided = config(train_batch_size=size).rollouts(num_rollout_workers=workers, num_envs_per_worker=envs)
    assert [divided.get_rollout_fragment_length(index) for index in range(1, len(lengths) + 1)] == lengths
    assert divided.get_rollout_fragment_length() == lengths[0]
    assert divided.total_train_batch == sum(lengths) * envs
    assert divided.min_train_batch == min(size, sum(lengths) * envs)


def test_a_fixed_fragment_length_is_what_it_is():
    fixed = config(train_batch_size=4000).rollouts(rollout_fragment_length=300, num_rollout_workers=2)
    assert fixed.get_rollout_fragment_length(1) == 300
    assert fixed.total_train_batch == 4200


def test_schedules_come_from_the_value_or_from_the_older_setting_beside_it():
    assert config(lr=[[0, 1.0], [10, 0.0]]).get_schedule("lr")(5) == 0.5
    assert config(lr_schedule=[[0, 1.0], [10, 0.0]]).get_schedule("lr")(5) == 0.5
    assert config(entropy_coeff_schedule=[[0, 1.0], [10, 0.0]]).get_schedule("entropy_coeff")(5) == 0.5
    assert config(clip_param=0.1).get_schedule("clip_param")(5) == 0.1


def test_the_evaluation_config_is_the_config_with_its_changes():
    base = config().evaluation(evaluation_config={"explore": False}).freeze()
    assert base.get_evaluation_config_object().explore is False
    assert base.explore is True


# ---------------------------------------------------------------------- building, freezing, copying


def test_build_hands_a_frozen_copy_to_the_algorithm():
    original = config()
    algorithm = original.build(env="FrozenLake-v1")
    assert type(algorithm) is FakeAlgorithm
    assert algorithm.config.env == "FrozenLake-v1"
    assert algorithm.config.is_frozen
    assert not original.is_frozen
    assert original.env == "CartPole-v1"
    assert type(original.build_algo()) is FakeAlgorithm


def test_a_config_without_an_algorithm_says_so():
    with pytest.raises(ValueError, match="AlgorithmConfig belongs to no algorithm"):
        AlgorithmConfig().build(env="CartPole-v1")
    assert type(AlgorithmConfig(algo_class=FakeAlgorithm).build(env="CartPole-v1")) is FakeAlgorithm


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.training(lr=1),
        lambda c: c.update_from_dict({"lr": 1}),
        lambda c: setattr(c, "lr", 1),
        lambda c: c.__setitem__("lr", 1),
    ],
)
def test_a_frozen_config_refuses_changes_and_names_the_way_out(change):
    frozen = config().freeze()
    with pytest.raises(AttributeError, match=r"cannot set lr: .* is frozen.*copy\(copy_frozen=False\)"):
        change(frozen)
    thawed = frozen.copy(copy_frozen=False)
    change(thawed)
    assert (thawed.lr, frozen.lr) == (1, 5e-5)
    assert frozen.copy().is_frozen
    assert config().copy(copy_frozen=True).is_frozen


def test_copies_share_no_dicts_with_the_original():
    original = config(model={"fcnet_hiddens": [8, 8]})
    for copied in (original.copy(), copy.deepcopy(original), copy.copy(original.copy())):
        copied.model["fcnet_hiddens"].append(9)
        copied.lr = 1.0
    assert original.model == {"fcnet_hiddens": [8, 8]}
    assert original.lr == 5e-5


def test_a_dict_of_all_settings_gives_the_same_config_again():
    original = config(lr=[[0, 1.0], [10, 0.0]], model={"fcnet_hiddens": [8]}).rollouts(num_envs_per_worker=5)
    assert FakePPOConfig.from_dict(original.to_dict()).to_dict() == original.to_dict()


def test_a_dict_may_hold_sections():
    changed = FakePPOConfig.from_dict({"training": {"lr": 0.5, "model": {"fcnet_hiddens": [8]}}, "env": "CartPole-v1"})
    assert (changed.lr, changed.model, changed.env) == (0.5, {"fcnet_hiddens": [8]}, "CartPole-v1")


def test_a_config_with_a_local_environment_class_can_be_pickled():
    class LocalEnv:
        pass

    back = cloudpickle.loads(cloudpickle.dumps(config().environment(LocalEnv).freeze()))
    assert back.env.__name__ == "LocalEnv"
    assert back.is_frozen
    assert back.lr == 5e-5


def test_the_repr_shows_what_differs_from_the_defaults():
    assert repr(config(lr=0.5)) == "FakePPOConfig(env='CartPole-v1', lr=0.5)"


def test_describe_has_a_row_for_every_setting_with_a_meaning():
    rows = FakePPOConfig().describe()
    assert {row.name for row in rows} == set(FakePPOConfig().keys())
    assert all(row.meaning and row.type and row.section for row in rows)
    by_name = {row.name: row for row in rows}
    assert by_name["lr"] == ("training", "lr", "float | list", 5e-5, AlgorithmConfig.settings["lr"].meaning)
    assert by_name["rollout_fragment_length"].type == "int | 'auto'"


def test_every_default_is_a_right_value():
    for class_ in (AlgorithmConfig, FakePPOConfig):
        class_().environment("CartPole-v1").validate()


def test_a_config_in_the_old_style_sets_its_defaults_in_init():
    class OldStyle(FakePPOConfig):
        def __init__(self, algo_class=None):
            super().__init__(algo_class=algo_class or FakeAlgorithm)
            self.lr = 0.25
            self.num_rollout_workers = 0

    assert OldStyle().lr == 0.25
    assert OldStyle().build(env="CartPole-v1").config.num_rollout_workers == 0


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("def training(self, *, new=1): 'x'", "needs an annotation"),
        ("def training(self, *, new: int = 1): 'x'", "must be annotated as Annotated"),
        ("def training(self, *, new: Annotated[int, 'x']): 'x'", "without a default"),
        ("def rollouts(self, *, lr: Annotated[int, 'x'] = 1): 'x'", r"already declared in .training\(\)"),
    ],
)
def test_a_wrong_declaration_is_refused_when_the_class_is_made(body, message):
    source = f"class Wrong(AlgorithmConfig):\n    @section\n    {body}"
    with pytest.raises(TypeError, match=message):
        exec(source, {"AlgorithmConfig": AlgorithmConfig, "section": section, "Annotated": Annotated})


def test_a_frozen_config_is_read_without_looking_settings_up():
    config = PPOConfig().training(lr=1e-3).freeze()
    assert vars(config)["lr"] == config.lr == config["lr"] == 1e-3
    changed = config.copy(copy_frozen=False).training(lr=2e-3)
    assert (config.lr, changed.lr, changed["lr"]) == (1e-3, 2e-3, 2e-3)
    again = changed.freeze().copy()
    assert (again.lr, again.is_frozen) == (2e-3, True)
    assert again.model is again["model"] and again.model is not changed.model
