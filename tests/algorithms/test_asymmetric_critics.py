"""The value reads keys of a Dict observation that the policy does not, and the policy acts where they are absent."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

from rllib import A2CConfig, APPOConfig, DQNConfig, IMPALAConfig, PPOConfig, TRPOConfig, load_policy
from rllib.models.architectures import spec_from_json
from rllib.models.catalog.catalog import policy_spec
from rllib.policy import Policy
from tests.algorithms.algorithm_support import learner_stats

# Whether the hidden keys come first, last or between the policy's, in the order of the space.
SPACE = Dict(
    [("arm", Box(-1, 1, (2,), np.float32)), ("friction", Box(0.5, 2, (3,), np.float32)), ("goal", Discrete(3)),
     ("mass", Discrete(2, start=1)), ("tip", Box(-1, 1, (1,), np.float32))]
)  # fmt: skip
HIDDEN = ["friction", "mass"]


class Simulator(gymnasium.Env):
    """An episode of three steps, whose reward is the hidden friction: no action changes it."""

    observation_space, action_space = SPACE, Discrete(2)

    def __init__(self, config=None):
        self._masked = bool(config and config.get("masked"))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        self._friction = self.np_random.uniform(0.5, 2, 3).astype(np.float32)
        return self._observation(), self._info()

    def step(self, action):
        self._steps += 1
        return self._observation(), float(self._friction[0]), self._steps == 3, False, self._info()

    def _info(self):
        return {"action_mask": np.array([1, 0], np.int8)} if self._masked else {}

    def _observation(self):
        part = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        hidden = {"friction": self._friction, "mass": int(self.np_random.integers(1, 3))}
        return {"arm": part[:2], "goal": int(self.np_random.integers(3)), "tip": part[2:], **hidden}


def config(kind=PPOConfig, hidden=HIDDEN, model=None, **environment):
    made = kind().environment(Simulator, critic_observation_keys=hidden, **environment)
    made.training(train_batch_size=64, model={"fcnet_hiddens": [8], "vf_share_layers": False, **(model or {})})
    if kind in (PPOConfig, TRPOConfig):
        made.training(sgd_minibatch_size=32)
    if kind is PPOConfig:
        made.training(num_sgd_iter=2, lr=0.01)
    return made.rollouts(num_rollout_workers=0, rollout_fragment_length=16, num_envs_per_worker=4).debugging(seed=0)


def rows(count=16):
    rng = np.random.default_rng(0)
    return rng.standard_normal((count, gymnasium.spaces.flatdim(SPACE))).astype(np.float32)


# Columns of the flat rows: arm 0:2, friction 2:5, goal 5:8, mass 8:10, tip 10:11.
OF_VALUE_ALONE = [2, 3, 4, 8, 9]


@pytest.mark.parametrize("model", [{}, {"vf_hiddens": [4, 4]}, {"layer_norm": True}], ids=["same", "own", "norm"])
@pytest.mark.parametrize("in_torch", [False, True])
def test_outputs_depend_on_what_is_read_and_on_nothing_else(model, in_torch):
    """By central differences of every column, in both forms of the network."""
    model = {"fcnet_hiddens": [8, 8], "vf_share_layers": False, **model}
    policy = Policy(policy_spec(SPACE, Discrete(2), model, critic_keys=HIDDEN), rng=np.random.default_rng(0))
    policy.weights[:] = np.random.default_rng(1).standard_normal(policy.weights.size) * 0.3

    def outputs(observations):
        inputs = policy.encode(observations, policy.new_inputs(len(observations)))
        if not in_torch:
            return [np.array(each) for each in policy.network.forward(inputs)]
        import torch

        flat = torch.from_numpy(policy.weights.copy())
        found = policy.spec.torch(policy.layout, flat, None)(torch.from_numpy(inputs))
        return [each.detach().numpy() for each in found]

    logits, values = outputs(rows())
    for column in range(11):
        changed = rows()
        changed[:, column] += 0.5
        new_logits, new_values = outputs(changed)
        if column in OF_VALUE_ALONE:
            np.testing.assert_array_equal(new_logits, logits)
        else:
            assert np.abs(new_logits - logits).max() > 1e-3
        assert np.abs(new_values - values).max() > 1e-4


def test_it_is_the_network_of_the_policys_columns():
    """Closed form: the policy's layers on the columns that are left, the value's on all of them."""
    settings = {"fcnet_hiddens": [8], "vf_share_layers": False}
    policy = Policy(policy_spec(SPACE, Discrete(2), settings, critic_keys=HIDDEN), rng=np.random.default_rng(0))
    named = policy.layout.named_parameters(policy.weights)
    observations = rows().astype(np.float64)
    read = np.delete(observations, OF_VALUE_ALONE, axis=1)

    def layers(head, inputs):
        hidden, last = (np.asarray(named[f"{head}.{part}.weight"], np.float64) for part in ("hidden_0", "head"))
        biases = [np.asarray(named[f"{head}.{part}.bias"], np.float64) for part in ("hidden_0", "head")]
        return np.tanh(inputs @ hidden.T + biases[0]) @ last.T + biases[1]

    logits, values = policy.network.forward(policy.encode(rows(), policy.new_inputs(16)))
    np.testing.assert_allclose(logits, layers("policy", read), atol=1e-5)
    np.testing.assert_allclose(values, layers("value", observations)[:, 0], atol=1e-5)


@pytest.mark.parametrize("kind", [PPOConfig, A2CConfig, IMPALAConfig, APPOConfig, TRPOConfig])
def test_all_actor_critics_train_with_them(kind):
    made = config(kind)
    if kind is not PPOConfig:
        made.reporting(min_time_s_per_iteration=0)
    with made.build() as algo:
        for _ in range(3):
            stats = learner_stats(algo.train())
        assert np.isfinite(stats["vf_loss"])
        assert algo.policy.spec.architecture.policy_columns == ((0, 2), (5, 8), (10, 11))


def test_the_value_learns_what_only_it_sees():
    explained = {}
    for hidden in (HIDDEN, ["mass"]):
        ignored = [key for key in HIDDEN if key not in hidden]
        made = config(hidden=hidden, ignore_observation_keys=ignored).training(num_sgd_iter=20, train_batch_size=256)
        with made.build() as algo:
            for _ in range(8):
                stats = learner_stats(algo.train())
            explained[len(hidden)] = stats["vf_explained_var"]
    # Where the value does not see friction, only the number of steps left would explain returns, and nobody sees it.
    assert explained[2] > 0.25 > explained[1] + 0.15


@pytest.mark.parametrize("where", ["plain", "filter", "mask", "ignored"])
def test_a_policy_is_served_without_the_keys(where, tmp_path):
    more, ignored = {}, []
    if where == "mask":
        more = {"env_config": {"masked": True}, "action_mask_from": "info"}
    if where == "ignored":
        more, ignored = {"ignore_observation_keys": ["arm"]}, ["arm"]
    made = config(**more)
    if where == "filter":
        made.rollouts(observation_filter="MeanStdFilter")
    env = Simulator()
    whole, _ = env.reset(seed=3)
    partial = {key: part for key, part in whole.items() if key not in HIDDEN}
    mask = {"action_mask": np.array([1, 1], np.int8)} if where == "mask" else {}
    with made.build() as algo:
        algo.train()
        path = algo.save(str(tmp_path))
        acting = [algo, load_policy(path)]
        for each in acting:
            how = {"explore": False, "full_fetch": True, **mask}
            action, _, fetches = each.compute_single_action(whole, **how)
            same, _, others = each.compute_single_action(partial, **how)
            assert action == same
            np.testing.assert_array_equal(fetches["action_dist_inputs"], others["action_dist_inputs"])
            # Nobody knows the value without them.
            assert "vf_preds" in fetches and "vf_preds" not in others
            batch = {key: np.stack([part, part]) for key, part in partial.items()}
            masks = [[1, 1], [1, 1]] if mask else None
            assert len(each.predict(batch, deterministic=True, action_masks=masks)[0]) == 2
    loaded = acting[1]
    assert list(loaded.observation_space.spaces) == [key for key in ("arm", "goal", "tip") if key not in ignored]
    with pytest.raises(ValueError, match="goal"):
        loaded.compute_single_action({key: part for key, part in partial.items() if key != "goal"}, **mask)
    with algo.config.build() as resumed:
        resumed.restore(path)
        np.testing.assert_array_equal(resumed.policy.weights, loaded.policy.weights)


def test_earlier_checkpoints_have_a_number_of_first_inputs():
    spec = policy_spec(SPACE, Discrete(2), {"vf_share_layers": False}, critic_keys=["tip"])
    data = spec.to_json()
    assert spec_from_json(data) == spec
    dense = data.pop("architecture")
    assert dense.pop("kind") == "dense" and dense.pop("policy_columns") == [[0, 10]]
    assert spec_from_json({**data, **dense, "policy_inputs": 10}) == spec
    assert spec_from_json({**data, **dense, "policy_inputs": None}).architecture.policy_columns is None


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: config(hidden=["torque"]), r"=\['torque'\] must be some of the keys .*'friction'"),
        (lambda: config(hidden=list(SPACE.spaces)), "leave the policy at least one"),
        (lambda: config(model={"vf_share_layers": True}), r"'vf_share_layers': True\} does not go with .*: False\}"),
        (lambda: config(model={"use_lstm": True}), r"'use_lstm': True\} does not go with"),
        (lambda: DQNConfig().environment(Simulator, critic_observation_keys=HIDDEN), "has no value function"),
        (lambda: config().multi_agent(centralized_critic=True), "both say what the value reads"),
    ],
)
def test_what_does_not_fit_is_refused(made, message):
    with pytest.raises(ValueError, match=message):
        made().build()


def test_a_custom_model_is_refused():
    with pytest.raises(ValueError, match=r"'custom_model': .* does not go with centralized_critic and critic_observ"):
        policy_spec(SPACE, Discrete(2), {"custom_model": object, "vf_share_layers": False}, critic_keys=HIDDEN)


def test_images_are_refused():
    space = Dict(camera=Box(0, 255, (84, 84, 3), np.uint8), mass=MultiBinary(2))
    with pytest.raises(ValueError, match="asks for convolutions"):
        policy_spec(space, Discrete(2), {"vf_share_layers": False}, critic_keys=["mass"])
