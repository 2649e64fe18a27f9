"""The section .multi_agent: the forms it takes, and what is said of mistakes, before a worker starts."""

import functools
import threading

import pytest
from gymnasium.spaces import Box, Discrete

from rllib import Algorithm, DQNConfig, ESConfig, IMPALAConfig, Policy, PPOConfig
from rllib.algorithms.base.agents import ProbedEpisode
from rllib.config.conflicts import SettingsError
from rllib.env import register_env
from rllib.env.external import ExternalMultiAgentEnv
from rllib.env.multi_agent import make_multi_agent
from rllib.policies import PolicySpec

SPEAKER = "pettingzoo:mpe2.simple_speaker_listener_v4"
TWO = ["p0", "p1"]
BY_TABLE = {"0": "p0", "*": "p1"}


@pytest.fixture(autouse=True)
def _environment():
    register_env("two_poles", lambda config: make_multi_agent("CartPole-v1")(config))


def config(env="two_poles", base=PPOConfig, **multi_agent):
    made = base().environment(env, env_config={"num_agents": 2} if env == "two_poles" else {})
    made.rollouts(num_rollout_workers=0).training(model={"fcnet_hiddens": [4]})
    return made.multi_agent(**multi_agent)


def build(*args, **multi_agent):
    return config(*args, **multi_agent).build()


def mapped(algo, episode=0):
    return [algo.agents.mapping(agent, ProbedEpisode(episode)) for agent in algo.agents.environment.agents]


MAPPINGS = {
    "agent": lambda agent_id: f"p{agent_id}",
    "episode": lambda agent_id, episode: f"p{(agent_id + episode.episode_id) % 2}",
    "worker": lambda agent_id, episode, worker: f"p{agent_id}",
    "keywords": lambda agent_id, episode, **kwargs: f"p{agent_id}",
    "worker and keywords": lambda agent_id, episode, worker, **kwargs: f"p{agent_id}",
    "any": lambda agent_id, *args, **kwargs: f"p{agent_id}",
    "partial": functools.partial(lambda prefix, agent_id: f"{prefix}{agent_id}", "p"),
    "table": BY_TABLE,
    "globs": {"[0]": "p0", "?": "p1"},
    "ids": {0: "p0", 1: "p1"},
    "an id and a pattern": {1: "p1", "*": "p0"},
}


@pytest.mark.parametrize("mapping", MAPPINGS.values(), ids=MAPPINGS)
def test_forms_of_mappings(mapping):
    with build(policies=TWO, policy_mapping_fn=mapping) as algo:
        assert mapped(algo) == TWO


def test_a_mapping_may_depend_on_the_episode():
    with build(policies=TWO, policy_mapping_fn=MAPPINGS["episode"]) as algo:
        assert [mapped(algo, episode) for episode in (2, 3)] == [TWO, TWO[::-1]]


FORMS = {
    "ids": TWO,
    "set": set(TWO),
    "specs": {"p0": PolicySpec(config={"lr": 1e-3}), "p1": None},
    "settings": {"p0": PPOConfig.overrides(lr=1e-3), "p1": {}},
    "tuples": {"p0": (None, None, None, {"lr": 1e-3}), "p1": (None, None, None, {})},
}


@pytest.mark.parametrize("policies", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("style", ["method", "dict"])
def test_forms_of_policies(policies, style):
    given = {"policies": policies, "policy_mapping_fn": BY_TABLE, "policies_to_train": ["p0"]}
    made = config(**given) if style == "method" else config().update_from_dict({"multiagent": given})
    with made.build() as algo:
        assert list(algo.policies) == TWO and list(algo.learners) == ["p0"]
        if isinstance(policies, dict):
            assert (algo.config_of("p0").lr, algo.config_of("p1").lr) == (1e-3, algo.config.lr)


def test_shared_and_own():
    for policies, ids in ((None, ["default_policy"]), ("shared", ["shared"]), ("own", ["0", "1"])):
        with build(policies=policies) as algo:
            assert list(algo.policies) == ids and mapped(algo) == [ids[0], ids[-1]]


def _raises(agent_id, episode, **kwargs):
    raise RuntimeError("no such side")


UNKNOWN = r"the policy 'p3', but there are p0, p1.*Add it to .multi_agent\(policies=...\)"
MISTAKES = {
    "unknown policy": ({"policy_mapping_fn": lambda agent_id: "p3"}, f"gave agent 0 {UNKNOWN}"),
    "unknown in the table": ({"policy_mapping_fn": {"*": "p3"}}, f"names {UNKNOWN}"),
    "no string": ({"policy_mapping_fn": lambda agent_id: 3}, "the id of a policy, a string, but gave 3 for agent 0"),
    "empty table": ({"policy_mapping_fn": {}}, "policy_mapping_fn={} must be a function"),
    "no pattern among ids": ({"policy_mapping_fn": {0: "p0"}}, "no pattern for agent 1, only 0"),
    "no pattern": ({"policy_mapping_fn": {"0": "p0"}}, r"no pattern for agent 1, only 0. Add it, or '\*'"),
    "no argument": ({"policy_mapping_fn": lambda: "p0"}, r"must take \(agent_id\), \(agent_id, episode\)"),
    "too many": ({"policy_mapping_fn": lambda a, b, c, d: "p0"}, r"must take \(agent_id\), \(agent_id, episode\)"),
    "no mapping": ({"policy_mapping_fn": None}, "no policy_mapping_fn, and agent 0 has no policy of its name"),
    "no policy": ({"policies": []}, "policies is empty"),
    "no ids": ({"policies": 3}, "policies=3 must be ids, such as"),
    "no spec": ({"policies": {"p0": 5, "p1": None}}, r"policies\['p0'\]=5 must be None, a PolicySpec"),
    "a network's class": (
        {"policies": {"p0": PolicySpec(type("Mine", (Policy,), {})), "p1": None}},
        "Mine is derived from rllib.Policy.*Derive it from rllib.policies.HandWrittenPolicy",
    ),
    "setting of the run": (
        {"policies": {"p0": PolicySpec(config={"num_rollout_workers": 2}), "p1": None}},
        r"policies\['p0'\] sets num_rollout_workers, which belongs to the run.*can be .*gamma.*lr",
    ),
    "switches to train": (
        {"policies_to_train": {"p0": True, "p1": False}},
        "policies_to_train={'p0': True, 'p1': False} must be ids of policies, a function",
    ),
    "no batch": ({"policies_to_train": lambda policy_id: True}, r"must take \(policy_id, batch\)"),
    "a batch too many": ({"policies_to_train": lambda policy_id, batch, more: True}, r"must take \(policy_id, batch\)"),
    "unknown to train": ({"policies_to_train": ["p00"]}, "names 'p00', but there are p0, p1. Did you mean 'p0'"),
    **{
        f"id {given!r}": ({"policies": [given]}, f"can be the name of a directory.* but {given!r} was given")
        for given in ("", "a/b", "a.", 1)
    },
    **{
        f"id {given[:6]!r}": ({"policies": [given]}, "can be the name of a directory")
        for given in ("x\0y", "a\n", "\x1b[2J", "\ud800", "a" * 201, "ü" * 101)
    },
    "id of all": ({"policies": ["__all_modules__"]}, "results have the counts of all policies"),
}


@pytest.mark.parametrize(("given", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes(given, message):
    with pytest.raises(ValueError, match=message):
        build(**{"policies": TWO, "policy_mapping_fn": BY_TABLE, **given})


def test_a_mistake_in_what_learns_is_no_warning(caplog):
    with pytest.raises(ValueError, match="names 'p2'"):
        build(policies=TWO, policy_mapping_fn=BY_TABLE, policies_to_train=["p2"])
    assert "nothing is trained" not in caplog.text


def test_a_table_of_ids_is_in_checkpoints(tmp_path):
    with build(policies=TWO, policy_mapping_fn={0: "p1", 1: "p0"}) as algo:
        path = algo.save(tmp_path)
    with Algorithm.from_checkpoint(path) as algo:
        assert mapped(algo) == TWO[::-1]


def test_an_unknown_policy_is_a_key_that_is_missing():
    with pytest.raises(KeyError, match=r"Did you mean 'p0'\?"):
        build(policies=TWO, policy_mapping_fn={"*": "p00"})


def test_what_a_mapping_raises_names_agent_and_episode():
    with pytest.raises(RuntimeError, match="no such side") as raised:
        build(policies=TWO, policy_mapping_fn=_raises)
    assert raised.value.__notes__ == ["policy_mapping_fn was asked for agent 0 in a probed episode, number 0"]


class Unknown(ExternalMultiAgentEnv):
    """Says in its episodes alone who acts."""

    def __init__(self, config=None):
        super().__init__(Discrete(2), Box(-1, 1, (2,)))

    def run(self):
        pass


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"policies": "own"}, "does not say which agents there are"),
        ({"policies": []}, "policies is empty"),
        ({"policies": ["p/0"]}, "the name of a directory"),
        ({"policies": TWO, "policy_mapping_fn": 3}, "policy_mapping_fn"),
    ],
)
def test_remedies_fit_environments_whose_agents_are_unknown(given, message):
    """There is no policy for each agent of these."""
    made = config(Unknown, **given)
    with pytest.raises(SettingsError, match=message) as raised:
        made.build()
    (remedy,) = raised.value.mistakes[0].remedies
    made.apply(remedy).build().stop()


def test_mistakes_in_the_settings_of_a_policy_name_it():
    with pytest.raises(TypeError, match=r"no setting 'lrr'.* These are settings of the policy 'p0'\."):
        build(policies={"p0": {"lrr": 1}})


def test_what_ends_a_mistake_in_the_settings_of_a_policy_changes_its_own():
    with pytest.raises(SettingsError, match=r"clip_param=-1.* These are settings of the policy 'p1'\.") as raised:
        build(policies={"p0": {"lr": 0.1}, "p1": {"clip_param": -1, "lr": 0.2}}, policy_mapping_fn={"*": "p0"})
    (mistake,) = raised.value.mistakes
    (remedy,) = mistake.remedies
    assert mistake.names == ("policies", "clip_param")
    assert remedy["policies"]["p0"] == {"lr": 0.1}
    assert remedy["policies"]["p1"].config == {"clip_param": 0.3, "lr": 0.2}
    with build(**remedy, policy_mapping_fn={"*": "p0"}) as algo:
        assert algo.config_of("p1").clip_param == 0.3


def same_loss(loss, minibatch, outputs, model):
    return loss


@pytest.mark.parametrize(
    "base, own, message",
    [
        (PPOConfig, {"torch_autocast": "bfloat16"}, "torch_autocast='bfloat16' does not reach"),
        (PPOConfig, {"learner": "numpy", "custom_loss": same_loss}, "learner='numpy' computes gradients"),
        (DQNConfig, {"torch_autocast": "bfloat16", "adam_epsilon": 0.1}, "torch_autocast='bfloat16' does not reach"),
        (DQNConfig, {"replay_buffer_config": {"frame_stack_axis": 0}}, "frame_stack_axis=0"),
    ],
)
def test_what_a_part_of_a_policys_training_refuses_is_ended_in_its_own_settings(base, own, message):
    """By each remedy, which leaves the run's settings as they are."""

    def made():
        return config(base=base, policies={"p0": own, "p1": None}, policy_mapping_fn=BY_TABLE)

    with pytest.raises(SettingsError, match=message) as raised:
        made().build()
    (mistake,) = raised.value.mistakes
    assert mistake.remedies
    for remedy in mistake.remedies:
        with made().apply(remedy).build() as algo:
            assert algo.config.torch_autocast is None


def test_remedies_in_a_dict_of_a_policy_add_up():
    """Each changes keys, and keeps those that the one before has set; else they would go round in circles."""
    own = {"replay_buffer_config": {"type": "ReplayBuffer", "n_sampled_goal": 2, "capacity": 50}, "lr": 0.2}
    made = config(base=DQNConfig, policies={"p0": own, "p1": None}, policy_mapping_fn=BY_TABLE)
    with pytest.raises(SettingsError, match="n_sampled_goal=2 and type='ReplayBuffer'") as raised:
        made.build()
    found = [remedy["policies"]["p0"].config for remedy in raised.value.mistakes[0].remedies]
    assert [each["replay_buffer_config"] for each in found] == [
        {"type": "ReplayBuffer", "n_sampled_goal": 4, "capacity": 50},
        {"type": "HindsightReplayBuffer", "n_sampled_goal": 2, "capacity": 50},
    ]
    assert all(each["lr"] == 0.2 for each in found)


def test_a_setting_of_the_run_may_be_repeated_for_a_policy():
    own = PPOConfig.overrides(framework_str="torch", lr=1e-3)
    with build(policies={"p0": own, "p1": None}, policy_mapping_fn=BY_TABLE) as algo:
        assert algo.config_of("p0").lr == 1e-3
        assert algo.agents.overrides == {"p0": {"lr": 1e-3}}


def test_agents_with_different_spaces():
    different = r"'shared' is mapped to agents with different observation spaces: 'speaker_0' Box.*'listener_0' Box"
    with pytest.raises(ValueError, match=different):
        build(SPEAKER, policies="shared")
    by_role = {"speaker_0": "p0", "*": "p1"}
    with pytest.raises(ValueError, match="policy 'p9' has no agent in 32 probed episodes: give its spaces"):
        build(SPEAKER, policies=[*TWO, "p9"], policy_mapping_fn=by_role)


def test_environments_with_one_agent_and_algorithms_for_one():
    with pytest.raises(ValueError, match=r"CartPole-v1 has one agent.*make_multi_agent\('CartPole-v1'\)"):
        build("CartPole-v1", policies=TWO)
    with pytest.raises(ValueError, match=r"ES does not train policies of several agents, and two_poles has 2\."):
        build("two_poles", ESConfig)


def test_a_mapping_that_cannot_be_sent_names_what_it_holds():
    lock = threading.Lock()

    def mapping(agent_id, episode, **kwargs):
        with lock:
            return f"p{agent_id}"

    with build(policies=TWO, policy_mapping_fn=mapping) as algo:
        algo.train()
    with pytest.raises(ValueError, match=r"policy_mapping_fn \(captures lock\) is a _thread.lock, which cannot"):
        config(policies=TWO, policy_mapping_fn=mapping).rollouts(num_rollout_workers=1).build()


def test_nothing_to_train_is_one_warning(caplog):
    with build(policies=TWO, policy_mapping_fn=BY_TABLE, policies_to_train=[]) as algo:
        before = algo.get_weights()
        result = algo.train()
    told = [record.getMessage() for record in caplog.records]
    assert told.count("policies_to_train is empty: nothing is trained") == 1
    assert result["num_agent_steps_trained"] == 0 < result["num_agent_steps_sampled"]
    assert all((before[policy_id] == weights).all() for policy_id, weights in algo.get_weights().items())


@pytest.mark.timeout(60)
@pytest.mark.parametrize("base", [DQNConfig, PPOConfig])
@pytest.mark.parametrize("none", [[], ["p1"]], ids=["no policy learns", "no agent's policy learns"])
def test_iterations_wait_for_no_training_where_nobody_learns(base, none, caplog):
    """min_train_timesteps_per_iteration would be waited for without an end."""
    made = config(base=base, policies=TWO, policy_mapping_fn="p0")
    with (
        made.reporting(min_time_s_per_iteration=0, min_train_timesteps_per_iteration=1)
        .training(train_batch_size=128)
        .build() as algo
    ):
        assert algo.train()["num_agent_steps_trained"] > 0
        algo.set_policies_to_train(none)
        assert "nothing is trained" in caplog.text
        before = algo.timesteps
        algo.train()
        assert algo.timesteps > before
        algo.set_policies_to_train(["p0"])
        assert algo.train()["num_agent_steps_trained_this_iter"] > 0


@pytest.mark.timeout(60)
@pytest.mark.parametrize("base", [DQNConfig, PPOConfig, IMPALAConfig])
def test_iterations_wait_for_no_training_that_a_function_refuses(base):
    answers = {"p0": False}
    made = config(base=base, policies=TWO, policy_mapping_fn="p0", policies_to_train=lambda i, batch: answers[i])
    made.reporting(min_time_s_per_iteration=0, min_train_timesteps_per_iteration=1)
    with made.training(train_batch_size=128).build() as algo:
        assert algo.train()["num_agent_steps_trained"] == 0 < algo.timesteps
        answers["p0"] = True
        assert algo.train()["num_agent_steps_trained_this_iter"] > 0


def test_the_dict_of_earlier_releases_can_be_read():
    config = PPOConfig().multi_agent(policies={"left", "right"}, policies_to_train=["left"])
    assert config["multiagent"] == {
        "policies": {"left", "right"},
        "policies_to_train": ["left"],
        "policy_mapping_fn": None,
        "count_steps_by": "env_steps",
    }
