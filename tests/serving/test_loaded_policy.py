"""A loaded policy acts as the algorithm of its checkpoint does, in a process that has none of the trainer."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from serving_support import cartpole_rows, write_version

import rllib
from rllib import DDPGConfig, DQNConfig, PPOConfig, SACConfig, TD3Config
from rllib.algorithms.base.algorithm import Algorithm
from rllib.algorithms.pg import PG, PGConfig
from rllib.policy import Policy
from rllib.storage.checkpoint import CheckpointError, read_checkpoint, write_checkpoint
from tests.envs import BoundedAction, MaskedProbe, SampledEnv, StructuredProbe

ROOT = Path(__file__).parents[2]
CHECKPOINTS = ROOT / "tests" / "checkpoints"
PARTS = Dict(image=Box(0, 255, (2, 2), np.uint8), kind=Discrete(3, start=1), unread=Box(-1, 1, (2,), np.float32))
LSTM = {"use_lstm": True, "lstm_cell_size": 4, "lstm_use_prev_action": True, "lstm_use_prev_reward": True}


def on_policy(env, model=None, env_config=None, rollouts=None, **environment):
    config = PPOConfig().environment(env, env_config=env_config or {}, **environment)
    batches = {"train_batch_size": 32, "sgd_minibatch_size": 32, "num_sgd_iter": 1}
    config.training(**batches, model={"fcnet_hiddens": [8], **(model or {})})
    return config.rollouts(**(rollouts or {}))


def off_policy(config, env):
    settings = {"train_batch_size": 8, "num_steps_sampled_before_learning_starts": 8}
    config.training(**settings, **({"hiddens": []} if isinstance(config, DQNConfig) else {}))
    config.reporting(min_sample_timesteps_per_iteration=20, min_time_s_per_iteration=0)
    return config.environment(env).rollouts(rollout_fragment_length=4)


CASES = {
    "filter": lambda: on_policy("CartPole-v1", rollouts={"observation_filter": "MeanStdFilter"}),
    "memory, step before": lambda: on_policy("CartPole-v1", LSTM),
    "memory and filter": lambda: on_policy("CartPole-v1", LSTM, rollouts={"observation_filter": "MeanStdFilter"}),
    "attention": lambda: on_policy("CartPole-v1", {"use_attention": True, "attention_dim": 4, "attention_head_dim": 4}),
    "dict, ignored key": lambda: on_policy(SampledEnv, env_config={"space": PARTS}, ignore_observation_keys=["unread"]),
    "choices": lambda: on_policy(SampledEnv, env_config={"space": MultiDiscrete([2, 3])}),
    "one choice": lambda: on_policy(SampledEnv, env_config={"space": Discrete(5, start=-2)}),
    "mask in the observation": lambda: on_policy(MaskedProbe),
    "mask in the info": lambda: on_policy(MaskedProbe, env_config={"mask": "info"}, action_mask_from="info"),
    "parts of an action": lambda: on_policy(StructuredProbe),
    "normalised actions": lambda: on_policy(BoundedAction),
    "clipped actions": lambda: on_policy(BoundedAction, normalize_actions=False, clip_actions=True),
    "squashed actions": lambda: off_policy(SACConfig(), BoundedAction),
    "action values": lambda: off_policy(DQNConfig(), "CartPole-v1"),
}  # fmt: skip


def built(config):
    return config.rollouts(num_rollout_workers=0, num_envs_per_worker=1).debugging(seed=1).build()


@pytest.fixture(scope="module", params=CASES)
def trained(request, tmp_path_factory):
    """An algorithm restored from a checkpoint, the policy loaded from it, and observations with their masks."""
    path = tmp_path_factory.mktemp("case") / "checkpoint"
    with built(CASES[request.param]()) as algo:
        algo.train()
        algo.save(path)
    with Algorithm.from_checkpoint(path, {"num_rollout_workers": 0}, load_user_code=True) as algo:
        yield algo, rllib.load_policy(path), *seen_in(algo.config)


def seen_in(config) -> tuple[list, list | None]:
    """Observations of the environment itself with random actions, and their masks; None without."""
    from rllib.algorithms.base.wiring import playable_environment
    from rllib.env.factories.registry import EnvContext

    env = playable_environment(config).make(EnvContext(config.env_config))
    env.action_space.seed(1)
    observations, masks = [], []
    while len(observations) < 12:
        (observation, info), over = env.reset(seed=len(observations)), False
        while not over:
            observations.append(observation)
            masks.append(info.get("action_mask", np.ones(3, np.int8)))
            action = int(masks[-1].argmax()) if isinstance(env.unwrapped, MaskedProbe) else env.action_space.sample()
            observation, _, terminated, truncated, info = env.step(action)
            over = terminated or truncated
    env.close()
    return observations, masks if config.action_mask_from == "info" else None


def same(ours, theirs) -> bool:
    if isinstance(ours, dict):
        return ours.keys() == theirs.keys() and all(same(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, tuple | list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    return ours.dtype == theirs.dtype and np.array_equal(ours, theirs)


def test_a_loaded_policy_acts_as_the_algorithm_does(trained):
    algo, loaded, observations, masks = trained
    states = [loaded.get_initial_state() for _ in observations]
    assert same(states[0], algo.get_policy().get_initial_state())
    given = {"explore": False, "full_fetch": True, "action_masks": masks}
    ours, theirs = (each.compute_actions(observations, states, **given) for each in (loaded, algo))
    assert same(ours, theirs)


def test_it_plays_episodes_as_the_algorithm_does(trained):
    algo, loaded, observations, masks = trained
    ours, theirs = loaded.make_player(), algo.make_player()
    for step, observation in enumerate(observations):
        mask = None if masks is None else masks[step]
        assert same(*(player.act(observation, float(step), mask) for player in (ours, theirs)))


def test_it_explores_as_the_algorithm_does(trained):
    algo, loaded, observations, masks = trained
    states = [loaded.get_initial_state() for _ in observations]
    algo._inferences["default_policy"].rng = np.random.default_rng(5)
    loaded.seed(5)
    given = {"explore": True, "action_masks": masks}
    assert same(*(each.compute_actions(observations, states, **given) for each in (loaded, algo)))
    assert loaded._explored_by() == algo._explored_by()


def test_it_says_what_it_is(trained):
    algo, loaded, observations, _ = trained
    assert loaded.observation_space.contains(
        {key: observations[0][key] for key in loaded.observation_space.spaces}
        if isinstance(observations[0], dict)
        else observations[0]
    )
    assert loaded.action_space == algo.action_space
    assert loaded.policy_version == algo.num_updates > 0
    assert loaded.metadata["algorithm"] == type(algo).__name__ and loaded.metadata["env"]
    assert loaded.metadata["num_env_steps_sampled"] == algo.timesteps


@pytest.mark.parametrize("name", ["format_1_ppo", "format_1_appo"])
def test_checkpoints_of_earlier_versions_act(name):
    loaded = rllib.load_policy(CHECKPOINTS / name)
    with Algorithm.from_checkpoint(CHECKPOINTS / name, {"num_rollout_workers": 0}) as algo:
        rows = cartpole_rows(100)
        assert same(*(each.compute_actions(rows, explore=False) for each in (loaded, algo)))
    assert loaded.metadata["env"] == "CartPole-v1" and loaded.policy_version > 0


def changed(source: Path, target: Path, **changes) -> Path:
    """A checkpoint with other items in its policy.json; None leaves an item out."""
    tree = read_checkpoint(source, load_user_code=True)
    (name,) = (name for name in tree if name.endswith("policy.json"))
    tree[name] = {key: value for key, value in {**tree[name], **changes}.items() if value is not None}
    return write_checkpoint(target, tree)


def test_a_checkpoint_without_spaces_says_what_to_do(tmp_path):
    path = changed(CHECKPOINTS / "format_1_ppo", tmp_path / "old", observation_space=None)
    with pytest.raises(CheckpointError, match=r"does not say what the spaces are.*Algorithm\.from_checkpoint\(path\)"):
        rllib.load_policy(path)


def test_an_exported_policy_is_loaded(tmp_path):
    with built(CASES["squashed actions"]()) as algo:
        path = algo.export_policy_model(tmp_path / "policy")
        observation = np.zeros(1, np.float32)
        action = algo.compute_single_action(observation, explore=False)
    loaded = rllib.load_policy(path)
    assert same(loaded.compute_single_action(observation, explore=False), action)
    assert loaded.metadata["algorithm"] == "SAC"
    earlier = changed(path, tmp_path / "earlier", trained=None)
    with pytest.raises(CheckpointError, match=r"an earlier version has exported.*export_policy_model"):
        rllib.load_policy(earlier)


def test_of_a_run_the_newest_checkpoint_is_taken(tmp_path):
    for name, updates in (("checkpoint_000002", 2), ("checkpoint_1000001", 7), ("checkpoint_000010", 3)):
        write_version(tmp_path / name, updates)
    with pytest.raises(CheckpointError, match="no checkpoint"):
        rllib.load_policy(tmp_path / "elsewhere")
    assert rllib.load_policy(tmp_path / "checkpoint_000002").policy_version == 2
    assert rllib.load_policy(tmp_path).policy_version == 7


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.mkdir(), "is no checkpoint of this library"),
        (lambda path: path.write_text("weights"), "a checkpoint is a directory"),
        (lambda path: shutil.copytree(CHECKPOINTS / "format_1", path), "not one of a policy"),
        (lambda path: newer_format(path), "this rllib reads up to"),
        (lambda path: cut_off(path), "is damaged.*as if cut off"),
    ],
)  # fmt: skip
def test_what_is_no_checkpoint_of_a_policy_is_refused(make, message, tmp_path):
    make(tmp_path / "given")
    with pytest.raises(CheckpointError, match=message):
        rllib.load_policy(tmp_path / "given")


def newer_format(path: Path):
    shutil.copytree(CHECKPOINTS / "format_1_ppo", path)
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps(manifest | {"format_version": 99}))


def cut_off(path: Path):
    shutil.copytree(CHECKPOINTS / "format_1_ppo", path)
    weights = path / "policies" / "default_policy" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4])


class TwoPolicies(PG):
    """A second policy, of other weights."""

    def setup(self):
        self.policies["other"] = Policy(self.policy.spec, weights=-self.policy.weights)
        self.trainees["other"] = self.trainee_class(self, "other")


def test_of_several_policies_one_is_chosen(tmp_path):
    config = PGConfig(algo_class=TwoPolicies).environment("CartPole-v1")
    with built(config.training(model={"fcnet_hiddens": [4]})) as algo:
        path = algo.save(tmp_path / "two")
        rows = cartpole_rows(100)
        for policy_id in algo.policies:
            loaded = rllib.load_policy(path, policy_id)
            expected = algo.compute_actions(rows, explore=False, policy_id=policy_id)
            assert same(loaded.compute_actions(rows, explore=False), expected)
    assert rllib.load_policy(path).policy_id == "default_policy"
    with pytest.raises(CheckpointError, match=r"has no policy 'third'; it has default_policy, other"):
        rllib.load_policy(path, "third")


def test_code_of_the_users_runs_only_when_asked_for(tmp_path):
    source = "from rllib.models.dense.spec import Dense\nclass Own(Dense):\n    pass\n"
    (tmp_path / "own_network.py").write_text(source)
    tree = read_checkpoint(CHECKPOINTS / "format_1_ppo", load_user_code=True)
    policy = json.loads((CHECKPOINTS / "format_1_ppo" / "policies" / "default_policy" / "policy.json").read_text())
    path = tmp_path / "checkpoint"
    sys.path.insert(0, str(tmp_path))
    try:
        from own_network import Own

        tree["policies/default_policy/policy.json"] |= {"custom": {"class": Own}, "spec": policy["spec"]}
        write_checkpoint(path, tree)
        with pytest.raises(CheckpointError, match=r"code of yours \(class=own_network:Own\).*load_user_code=True"):
            rllib.load_policy(path)
        assert isinstance(rllib.load_policy(path, load_user_code=True).policy.spec.architecture, Own)
    finally:
        sys.path.remove(str(tmp_path))


def test_nothing_of_the_trainer_is_loaded():
    code = (
        "import sys, rllib\n"
        f"policy = rllib.load_policy({str(CHECKPOINTS / 'format_1_ppo')!r})\n"
        "print(policy.compute_single_action([0, 0, 0, 0], explore=False))\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = set(found.stderr.split())
    assert int(found.stdout) in (0, 1)
    others = {"torch", "runtime", "zmq", "psutil", "asyncio", "rllib.algorithms.base.algorithm", "rllib.learners"}
    assert not loaded & others


# ---------------------------------------------------------------------- in the form of Stable-Baselines3


def test_predict_takes_the_most_likely_action_if_asked(tmp_path):
    policy = rllib.load_policy(CHECKPOINTS / "format_1_ppo")
    rows = cartpole_rows(40)
    found = [policy.predict(row, deterministic=True) for row in rows]
    assert found == [(policy.compute_single_action(row, explore=False), None) for row in rows]
    assert {int(policy.predict(rows[0])[0]) for _ in range(200)} == {0, 1}
    with Algorithm.from_checkpoint(CHECKPOINTS / "format_1_ppo", {"num_rollout_workers": 0}) as algo:
        assert [algo.predict(row, deterministic=True) for row in rows] == found


def test_predict_hands_on_the_state_and_the_mask(tmp_path):
    config = on_policy(MaskedProbe, {"use_lstm": True, "lstm_cell_size": 4}, {"mask": "info"}, action_mask_from="info")
    with built(config) as algo:
        player, state = algo.make_player(), None
        for step, row in enumerate(np.eye(2, dtype=np.float32)):
            mask = np.eye(3, dtype=np.int8)[step]
            action, state = algo.predict(row, state, deterministic=True, action_masks=mask)
            assert action == player.act(row, action_mask=mask) == step
            assert [part.shape for part in state] == [(4,)] * 4 and np.any(state[0])


EPSILON = {"initial_epsilon": 0.8, "final_epsilon": 0.8}
EXPLORATIONS = {
    "epsilon-greedy": lambda: off_policy(DQNConfig(), "CartPole-v1").exploration(exploration_config=EPSILON),
    "softmax of values": lambda: off_policy(DQNConfig(), "CartPole-v1").exploration(
        exploration_config={"type": "SoftQ", "temperature": 2.0}
    ),
    "noise in the weights": lambda: off_policy(DQNConfig(), "CartPole-v1").exploration(
        exploration_config={"type": "ParameterNoise", "sub_exploration": {"type": "EpsilonGreedy", **EPSILON}}
    ),
    "normal noise": lambda: off_policy(TD3Config(), BoundedAction).exploration(
        exploration_config={"stddev": 0.5, "random_timesteps": 4}
    ),
    "correlated noise": lambda: off_policy(DDPGConfig(), BoundedAction).exploration(
        exploration_config={"type": "OrnsteinUhlenbeckNoise", "ou_base_scale": 0.5, "random_timesteps": 4}
    ),
    "squashed samples": lambda: off_policy(SACConfig(), BoundedAction),
    "samples": lambda: on_policy("CartPole-v1"),
}


@pytest.mark.parametrize("explore", [True, False])
@pytest.mark.parametrize("exploration", EXPLORATIONS)
def test_a_policy_explores_as_the_run_does_whichever_way_it_was_loaded(exploration, explore, tmp_path):
    with built(EXPLORATIONS[exploration]().exploration(explore=explore)) as algo:
        algo.train()
        held = algo.policy
        algo.save(tmp_path / "saved")
        algo.export_policy_model(tmp_path / "exported")
        held.export_checkpoint(tmp_path / "alone")
        rows = np.stack([np.asarray(algo.observation_space.sample(), np.float32) for _ in range(40)])
        wanted = algo._explored_by()
    with Algorithm.from_checkpoint(tmp_path / "saved", load_user_code=True) as restored:
        doors = {
            "held": held,
            "restored": restored.policy,
            "of an algorithm's checkpoint": Policy.from_checkpoint(tmp_path / "saved")["default_policy"],
            "its directory there": Policy.from_checkpoint(tmp_path / "saved" / "policies" / "default_policy"),
            "exported": Policy.from_checkpoint(tmp_path / "exported"),
            "written alone": Policy.from_checkpoint(tmp_path / "alone"),
            "load_policy": rllib.load_policy(tmp_path / "saved").policy,
        }
        assert {name: dict(door.exploration) for name, door in doors.items()} == dict.fromkeys(doors, wanted)
        for name, door in doors.items():
            drawn, greedy, usual = (
                door.compute_actions(rows, rng=np.random.default_rng(3), **how)[0]
                for how in ({"explore": True}, {"explore": False}, {})
            )
            assert (drawn != greedy).sum() > 3, name
            assert same(usual, drawn if explore else greedy), name
