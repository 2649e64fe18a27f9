"""Networks written as RLModules: the same numbers as the built-in network, and what is refused."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from rllib import A2CConfig, DQNConfig, PPOConfig
from rllib.core import (
    Columns,
    DefaultModelConfig,
    MultiRLModuleSpec,
    QNetAPI,
    RLModule,
    RLModuleSpec,
    TorchCategorical,
    TorchDiagGaussian,
    TorchMultiCategorical,
    TorchRLModule,
    ValueFunctionAPI,
)
from rllib.core.modules.acting_module import ActingModule
from rllib.core.modules.action_distribution import distribution_class, is_that_of
from rllib.hand_written import choose
from rllib.models.model_settings import ModelSettings
from tests.multi_agent import MultiAgentCartPole, NameTheSignal


class Mlp(TorchRLModule, ValueFunctionAPI):
    """The built-in network with one hidden layer for policy and value together."""

    def setup(self):
        width = self.model_config["width"]
        self.hidden = nn.Linear(self.observation_space.shape[0], width)
        self.policy = nn.Linear(width, self.action_space.n)
        self.value = nn.Linear(width, 1)

    def _forward(self, batch, **kwargs):
        embeddings = torch.tanh(self.hidden(batch[Columns.OBS]))
        return {Columns.ACTION_DIST_INPUTS: self.policy(embeddings), Columns.EMBEDDINGS: embeddings}

    def compute_values(self, batch, embeddings=None):
        if embeddings is None:
            embeddings = torch.tanh(self.hidden(batch[Columns.OBS]))
        return self.value(embeddings).squeeze(-1)


class Lstm(TorchRLModule, ValueFunctionAPI):
    """One LSTM cell, over a time axis."""

    def setup(self):
        size = self.size = self.model_config.get("size", 4)
        self.lstm = nn.LSTM(self.observation_space.shape[0], size, batch_first=True)
        self.policy, self.value = nn.Linear(size, self.action_space.n), nn.Linear(size, 1)

    def get_initial_state(self):
        return {"h": np.zeros(self.size, np.float32), "c": np.zeros(self.size, np.float32)}

    def _forward(self, batch, **kwargs):
        state = batch[Columns.STATE_IN]
        embeddings, (h, c) = self.lstm(batch[Columns.OBS], (state["h"][None], state["c"][None]))
        return {
            Columns.ACTION_DIST_INPUTS: self.policy(embeddings),
            Columns.STATE_OUT: {"h": h[0], "c": c[0]},
            Columns.EMBEDDINGS: embeddings,
        }

    def compute_values(self, batch, embeddings=None):
        return self.value(embeddings).squeeze(-1)


def small(config_class=PPOConfig, env="CartPole-v1"):
    config = config_class().environment(env).rollouts(num_rollout_workers=0, num_envs_per_worker=2)
    return config.training(train_batch_size=64).debugging(seed=0)


def quick(config):
    return config.training(sgd_minibatch_size=32, num_sgd_iter=2)


def test_a_module_gives_the_actions_and_values_of_the_built_in_network_with_its_weights():
    spec = RLModuleSpec(module_class=Mlp, model_config={"width": 8})
    own = quick(small()).rl_module(rl_module_spec=spec)
    native = quick(small()).training(model={"fcnet_hiddens": [8], "vf_share_layers": True}, learner="torch")
    with own.build() as mine, native.build() as theirs:
        theirs.get_policy().set_weights(dict(zip(theirs.get_policy().parameters(), _in_native_order(mine, theirs))))
        observations = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
        mine_out, theirs_out = (
            algo.get_policy().compute_actions(observations, explore=False) for algo in (mine, theirs)
        )
        np.testing.assert_array_equal(mine_out[0], theirs_out[0])
        for name in ("action_dist_inputs", "vf_preds"):
            np.testing.assert_allclose(mine_out[2][name], theirs_out[2][name], atol=1e-6)
        # One update on the same rows moves both alike.
        for algo in (mine, theirs):
            algo.train()
        after = [algo.get_policy().compute_actions(observations, explore=False)[2] for algo in (mine, theirs)]
        for name in ("action_dist_inputs", "vf_preds"):
            np.testing.assert_allclose(after[0][name], after[1][name], atol=2e-4)


def _in_native_order(mine, theirs) -> list[np.ndarray]:
    """The module's parameters in the order and form of the built-in network's."""
    named = mine.get_module().get_state()
    names = {"shared.hidden_0": "hidden", "policy.head": "policy", "value.head": "value"}
    found = []
    for name in theirs.get_policy().parameters():
        layer, _, kind = name.rpartition(".")
        found.append(named[f"{names[layer]}.{kind}"])
    return found


def test_a_module_with_a_memory_learns_from_whole_sequences_what_it_computes_step_by_step():
    config = quick(small()).rl_module(rl_module_spec=RLModuleSpec(module_class=Lstm, model_config={"max_seq_len": 5}))
    with config.build() as algo:
        policy = algo.get_policy()
        assert policy.state_size == 8
        assert policy.spec.architecture.max_seq_len == 5
        rng = np.random.default_rng(0)
        observations, lengths = rng.normal(size=(9, 4)).astype(np.float32), np.array([2, 4, 3])
        states = rng.normal(size=(3, 8)).astype(np.float32)
        whole = policy.dist_inputs(observations, lengths, states)
        at = 0
        for length, state in zip(lengths, states):
            state = state[None].copy()
            for _ in range(length):
                following = np.empty_like(state)
                step = policy.network.step(policy.encode(observations[at : at + 1]), state, following)
                np.testing.assert_allclose(whole[at], step[0], atol=1e-6)
                state, at = following, at + 1
        result = algo.train()
        assert np.isfinite(result["info"]["learner"]["default_policy"]["learner_stats"]["total_loss"])
        action, state, _ = algo.compute_single_action(np.zeros(4, np.float32), policy.get_initial_state())
        assert action in (0, 1) and len(state) == 2


def test_exploration_acts_and_training_learns_by_their_own_passes():
    called = set()

    class Passes(Mlp):
        def _forward_exploration(self, batch, **kwargs):
            called.add("exploration")
            return self._forward(batch)

        def _forward_train(self, batch, **kwargs):
            called.add("train")
            return self._forward(batch)

    with quick(small()).rl_module(rl_module_spec=RLModuleSpec(Passes, model_config={"width": 4})).build() as algo:
        called.clear()
        algo.workers.sample(algo.snapshots())
        assert called == {"exploration"}
        algo.train()
        assert called == {"exploration", "train"}


MEMORIES = {
    "lstm": {"use_lstm": True, "lstm_cell_size": 4},
    "lstm of policy and value": {"use_lstm": True, "lstm_cell_size": 4, "vf_share_layers": True},
    "attention": {
        "use_attention": True,
        "attention_dim": 8,
        "attention_head_dim": 8,
        "attention_memory_inference": 3,
        "attention_memory_training": 3,
    },
}


@pytest.mark.parametrize("kind", MEMORIES)
def test_a_built_in_network_with_a_memory_computes_by_its_states(kind):
    """Step by step, and sequences at once, what the policy acts by."""
    with quick(small()).rl_module(model_config={"fcnet_hiddens": [4], **MEMORIES[kind]}).build() as algo:
        module, policy = algo.get_module(), algo.get_policy()
        policy.set_weights(np.random.default_rng(0).normal(size=policy.weights.shape).astype(np.float32))
        observations = torch.randn(2, 3, 4)
        begins = {key: torch.as_tensor(part)[None].repeat_interleave(2, 0) for key, part in
                  module.get_initial_state().items()}  # fmt: skip
        state, parts, logits = begins, [np.asarray(part) for part in begins.values()], []
        for t in range(3):
            batch = {"obs": observations[:, t], "state_in": state}
            found = module.forward_inference(batch)
            _, parts, fetches = policy.compute_actions(observations[:, t].numpy(), parts, explore=False)
            np.testing.assert_allclose(found["action_dist_inputs"], fetches["action_dist_inputs"], atol=1e-5)
            np.testing.assert_allclose(module.compute_values(batch), fetches["vf_preds"], atol=1e-5)
            state = found["state_out"]
            logits.append(found["action_dist_inputs"])
        whole = module.forward_inference({"obs": observations, "state_in": begins})
        torch.testing.assert_close(whole["action_dist_inputs"], torch.stack(logits, 1))
        for key, part in whole["state_out"].items():
            torch.testing.assert_close(part, state[key])
        with pytest.raises(KeyError, match="state_in"):
            module.forward_inference({"obs": observations})
        with pytest.raises(ValueError, match="the state must be a list"):
            module.forward_inference({"obs": observations, "state_in": {0: torch.zeros(2, 1)}})


def test_a_built_in_network_is_a_module_with_tensors_to_save(tmp_path):
    with quick(small()).rl_module(model_config={"fcnet_hiddens": [4]}).build() as algo:
        module = algo.get_module().eval()
        assert isinstance(module, RLModule) and isinstance(module, TorchRLModule)
        torch.save(module.state_dict(), tmp_path / "weights.pt")
        kept = algo.get_policy().weights.copy()
        algo.get_policy().set_weights(kept + 1)
        module.load_state_dict(torch.load(tmp_path / "weights.pt"))
        np.testing.assert_array_equal(algo.get_policy().weights, kept)
        with pytest.raises(AttributeError, match="state_dict"):
            module.parameters()


def test_a_module_without_a_class_is_a_built_in_network():
    config = small().rl_module(rl_module_spec=RLModuleSpec(model_config=DefaultModelConfig(fcnet_hiddens=[7])))
    assert ModelSettings(config.model)["fcnet_hiddens"] == [7]
    config = small().rl_module(model_config=DefaultModelConfig(
        head_fcnet_hiddens=[5], head_fcnet_activation="tanh", fcnet_use_layernorm=True,
        fcnet_kernel_initializer="orthogonal_", fcnet_kernel_initializer_kwargs={"gain": 0.5},
    ))  # fmt: skip
    settings = ModelSettings(config.model)
    assert (settings["post_fcnet_hiddens"], settings["post_fcnet_activation"]) == ([5], "tanh")
    assert settings["layer_norm"] is True
    assert (settings["fcnet_weights_initializer"], settings["orthogonal_gains"]) == ("orthogonal", {"hidden": 0.5})
    assert ModelSettings({"fcnet_kernel_initializer": nn.init.orthogonal_})["fcnet_weights_initializer"] == "orthogonal"


def test_action_values_of_a_module():
    class Q(TorchRLModule, QNetAPI):
        def setup(self):
            self.q = nn.Linear(4, int(self.action_space.n))

        def compute_q_values(self, batch):
            return {"qf_preds": self.q(batch[Columns.OBS])}

    config = DQNConfig().environment("CartPole-v1").training(dueling=False, double_q=False, train_batch_size=8)
    config.rl_module(rl_module_spec=RLModuleSpec(Q)).training(num_steps_sampled_before_learning_starts=8)
    with config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=32).build() as algo:
        algo.train()
        module, observation = algo.get_module(), np.ones(4, np.float32)
        best = int(module.compute_q_values({"obs": torch.from_numpy(observation)[None]})["qf_preds"].argmax())
        assert algo.compute_single_action(observation, explore=False) == best


def test_modules_of_several_policies():
    specs = {"a": RLModuleSpec(Mlp, model_config={"width": 3}), "b": RLModuleSpec(model_config={"fcnet_hiddens": [6]})}
    config = quick(small(env=NameTheSignal)).environment(env_config={"sizes": (3, 3)})
    config.multi_agent(policies={"a", "b"}, policy_mapping_fn={"first": "a", "second": "b"})
    config.rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=specs))
    with config.build() as algo:
        assert algo.get_module("a").hidden.out_features == 3
        assert algo.get_policy("b").spec.hiddens == (6,)
        algo.train()
    with pytest.raises(ValueError, match="settings of a network for 'c', but no such policy"):
        config.copy().rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs={"c": specs["a"]})).build()


def test_the_module_of_a_policy_has_its_present_weights():
    with quick(small()).rl_module(rl_module_spec=RLModuleSpec(Mlp, model_config={"width": 4})).build() as algo:
        module = algo.get_module()
        assert isinstance(module, Mlp)
        observation = torch.ones(1, 4)
        before = module.forward_inference({"obs": observation})["action_dist_inputs"]
        algo.train()
        after = module.forward_inference({"obs": observation})["action_dist_inputs"]
        assert not torch.equal(before, after)
        inputs = algo.get_policy().compute_actions(observation.numpy())[2]["action_dist_inputs"]
        np.testing.assert_allclose(after.numpy(), inputs, atol=1e-6)
        assert algo.get_module("nobody") is None


def test_the_module_of_a_built_in_network():
    with quick(small()).training(model={"fcnet_hiddens": [8]}).build() as algo:
        module, observations = algo.get_module(), torch.randn(3, 4)
        logits = module.forward_inference({Columns.OBS: observations})[Columns.ACTION_DIST_INPUTS]
        actions, _, fetches = algo.get_policy().compute_actions(observations.numpy(), explore=False)
        np.testing.assert_allclose(logits.numpy(), fetches["action_dist_inputs"], atol=1e-6)
        distribution = module.get_inference_action_dist_cls().from_logits(logits)
        assert distribution.to_deterministic().sample().tolist() == actions.tolist()
        assert distribution.logp(torch.from_numpy(actions)).shape == (3,)
        assert set(distribution.sample().tolist()) <= {0, 1}
        named = algo.learner_group.get_weights()["default_policy"]
        algo.learner_group.set_weights({"default_policy": {name: 0 * part for name, part in named.items()}})
        assert not algo.get_policy().weights.any()
        assert algo.env_runner == algo.workers.local_worker()
        assert algo.env_runner_group.foreach_env_runner(lambda worker: worker.worker_index) == [0]
        with pytest.raises(AttributeError, match=r"algo\.learners are the learners|algo\.learners, \{policy id"):
            algo.learner_group.foreach_learner(print)


def test_a_checkpoint_brings_a_module_back(tmp_path):
    with quick(small()).rl_module(rl_module_spec=RLModuleSpec(Mlp, model_config={"width": 4})).build() as algo:
        algo.train()
        algo.save(str(tmp_path))
        weights = algo.get_policy().weights.copy()
    with type(algo).from_checkpoint(tmp_path, load_user_code=True) as again:
        np.testing.assert_array_equal(again.get_policy().weights, weights)
        assert isinstance(again.get_module(), Mlp)


class NoValues(TorchRLModule):
    def setup(self):
        self.policy = nn.Linear(4, 2)

    def _forward(self, batch, **kwargs):
        return {Columns.ACTION_DIST_INPUTS: self.policy(batch[Columns.OBS])}


class Draws(NoValues):
    def _forward(self, batch, **kwargs):
        return {Columns.ACTIONS: torch.zeros(len(batch[Columns.OBS]))}


class ReadsActions(NoValues):
    def _forward(self, batch, **kwargs):
        return {Columns.ACTION_DIST_INPUTS: self.policy(batch[Columns.ACTIONS])}


class Greedy(Mlp):
    def _forward_inference(self, batch, **kwargs):
        return {Columns.ACTION_DIST_INPUTS: 2 + self._forward(batch)[Columns.ACTION_DIST_INPUTS]}


class Named(Mlp):
    """Names Ray's class of the distribution that its actions have anyway."""

    distribution = TorchCategorical

    def setup(self):
        super().setup()
        self.action_dist_cls = self.distribution

    def get_inference_action_dist_cls(self):
        return self.distribution


class NamesAnother(Named):
    distribution = TorchDiagGaussian


class OwnDistribution(Mlp):
    def setup(self):
        super().setup()
        self.action_dist_cls = dict


class OwnTraining(Mlp):
    def get_train_action_dist_cls(self):
        return dict


class NotTorch(RLModule):
    pass


class WithCatalog(NoValues):
    def setup(self):
        self.encoder = self.catalog.build_encoder()


def test_a_module_may_name_the_distribution_that_its_actions_have_anyway():
    with quick(small()).rl_module(rl_module_spec=RLModuleSpec(Named, model_config={"width": 4})).build() as algo:
        algo.train()
        module = algo.get_module()
        logits = module.forward_inference({"obs": torch.zeros(3, 4)})["action_dist_inputs"]
        drawn = module.get_inference_action_dist_cls().from_logits(logits)
        assert drawn.sample().shape == drawn.entropy().shape == (3,)


@pytest.mark.parametrize(
    ("kind", "space", "more"),
    [
        (TorchCategorical, spaces.Discrete(3), {}),
        (TorchDiagGaussian, spaces.Box(-1, 1, (2,)), {}),
        (TorchMultiCategorical, spaces.MultiDiscrete([2, 3]), {"input_lens": (2, 3)}),
    ],
)
def test_rays_distributions_by_name_are_those_of_the_spaces(kind, space, more):
    own = distribution_class(None, space)
    logits = torch.arange(2.0 * own.description.num_inputs).reshape(2, -1) / 8
    ours, named = own.from_logits(logits), kind.from_logits(logits, **more)
    actions = named.to_deterministic().sample()
    np.testing.assert_array_equal(actions, ours.to_deterministic().sample())
    torch.testing.assert_close(named.logp(actions), ours.logp(actions))
    torch.testing.assert_close(named.entropy(), ours.entropy())
    assert is_that_of(kind, own.description) and is_that_of(own, own.description)


@pytest.mark.parametrize(
    ("module", "says"),
    [
        (NoValues, "NoValues has no values.*ValueFunctionAPI"),
        (Draws, "must return 'action_dist_inputs', but returned \\['actions'\\].*custom_action_dist"),
        (ReadsActions, "has obs, but no 'actions'"),
        (Greedy, "_forward_inference gives other action_dist_inputs than _forward_train"),
        (OwnDistribution, "its action_dist_cls names its own action distribution. Use .*custom_action_dist"),
        (NamesAnother, "its action_dist_cls names its own action distribution"),
        (OwnTraining, "its get_train_action_dist_cls names its own action distribution"),
        (NotTorch, "NotTorch is no torch.nn.Module, and cannot learn. Derive it from rllib.core.TorchRLModule"),
        (WithCatalog, "there are no catalogs"),
    ],
)
def test_a_module_that_cannot_be_used_is_refused_with_the_way(module, says):
    spec = RLModuleSpec(module_class=module, model_config={"width": 4})
    with pytest.raises(Exception, match=says):
        small(A2CConfig).rl_module(rl_module_spec=spec).build()


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (5, "must be an RLModuleSpec"),
        (RLModuleSpec(Mlp, catalog_class=int), "there are no catalogs"),
        (RLModuleSpec(Mlp, load_state_path="x"), r"algo\.set_weights"),
        (MultiRLModuleSpec(multi_rl_module_class=int), "share no layers"),
    ],
)
def test_a_description_that_cannot_be_used_is_refused_with_the_way(spec, says):
    with pytest.raises(TypeError, match=says):
        PPOConfig().rl_module(rl_module_spec=spec)


def test_a_setting_of_the_default_networks_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="is not available; there are orthogonal"):
        ModelSettings({"fcnet_kernel_initializer": "sparse_"})
    with pytest.raises(ValueError, match="lstm_kernel_initializer"):
        ModelSettings({"lstm_kernel_initializer": "xavier_uniform_"})


def test_settings_of_all_networks_go_with_those_of_single_policies():
    specs = MultiRLModuleSpec(rl_module_specs={"a": RLModuleSpec(), "b": RLModuleSpec(model_config={"dim": 42})})
    config = PPOConfig().rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[8]), rl_module_spec=specs)
    assert config.model["fcnet_hiddens"] == [8] and config.model["of_policies"] == {"a": {}, "b": {"dim": 42}}


def test_a_module_can_be_built_alone():
    module = RLModuleSpec(
        module_class=Lstm,
        observation_space=gymnasium.spaces.Box(-1, 1, (3,)),
        action_space=gymnasium.spaces.Discrete(2),
        model_config={"size": 6},
    ).build()
    assert module.is_stateful()
    state = {name: torch.zeros(5, 6) for name in "hc"}
    found = module.forward_train({Columns.OBS: torch.zeros(5, 7, 3), Columns.STATE_IN: state})
    assert found[Columns.ACTION_DIST_INPUTS].shape == (5, 7, 2)


def test_a_run_without_modules_loads_none():
    import subprocess
    import sys

    code = (
        "import sys; from rllib import PPOConfig\n"
        "algo = PPOConfig().environment('CartPole-v1').training(train_batch_size=32, sgd_minibatch_size=32).build()\n"
        "algo.train(); algo.stop()\n"
        "assert not [name for name in sys.modules if name.startswith('rllib.core')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_module_reads_further_settings_of_the_section():
    config = small().rl_module(rl_module_spec=RLModuleSpec(Mlp), model_config={"width": 5})
    with quick(config).build() as algo:
        assert algo.get_module().hidden.out_features == 5


# ---------------------------------------------------------------------- modules that act, and do not learn


class Drawing(RLModule):
    """Draws from its action space."""

    def _forward(self, batch, **kwargs):
        return {Columns.ACTIONS: np.array([self.action_space.sample() for _ in batch[Columns.OBS]])}


class Alternating(RLModule):
    """Acts by its memory: 0, 1, 0, ..."""

    def get_initial_state(self):
        return {"taken": np.zeros(1, np.float32)}

    def _forward(self, batch, **kwargs):
        taken = batch[Columns.STATE_IN]["taken"]
        return {Columns.ACTIONS: taken[:, 0].astype(int) % 2, Columns.STATE_OUT: {"taken": taken + 1}}


def of_two(module_class):
    specs = {"learns": RLModuleSpec(), "acts": RLModuleSpec(module_class=module_class)}
    return (
        PPOConfig()
        .environment(MultiAgentCartPole, env_config={"num_agents": 2})
        .rollouts(num_rollout_workers=0)
        .training(train_batch_size=64, sgd_minibatch_size=32, num_sgd_iter=1)
        .debugging(seed=1)
        .multi_agent(
            policies=["learns", "acts"],
            policy_mapping_fn=lambda agent, episode: "acts" if agent == 0 else "learns",
            policies_to_train=["learns"],
        )
        .rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=specs))
    )


@pytest.mark.parametrize("module_class", [Drawing, Alternating])
def test_a_module_without_parameters_acts_among_several_agents(module_class):
    with of_two(module_class).build() as algo:
        assert algo.train()["training_iteration"] == 1 and list(algo.policies) == ["learns"]


def test_states_and_draws_of_an_acting_module():
    given = {"module_class": Alternating, "model_config": {}}
    policy, state = ActingModule(None, spaces.Discrete(2), given), None
    taken = []
    for _ in range(3):
        actions, state = choose(policy, [np.zeros(2)] * 2, state)
        taken.append(actions)
    assert taken == [[0, 0], [1, 1], [0, 0]]
    seeded = {"module_class": Drawing, "model_config": {}, "seed": 3}
    draws = [ActingModule(None, spaces.Discrete(100), seeded).compute_actions([np.zeros(2)] * 5) for _ in range(2)]
    assert draws[0] == draws[1]


def test_a_module_without_actions_says_so():
    class Silent(RLModule):
        def _forward(self, batch, **kwargs):
            return {}

    policy = ActingModule(None, spaces.Discrete(2), {"module_class": Silent, "model_config": {}})
    with pytest.raises(ValueError, match=r"Silent._forward_exploration must return \{'actions'"):
        policy.compute_actions([np.zeros(2)])
