"""Teachers of policies where several agents act: each policy learns from its own, or from none."""

import shutil
import threading

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from rllib import A2CConfig, APPOConfig, DAggerConfig, DistillationConfig, IMPALAConfig, PPOConfig, load_policy, tune
from rllib import sample_batch as sb
from rllib.algorithms.base.algorithm import Algorithm
from rllib.algorithms.families.taught import TaughtConfig
from rllib.cli.checkpoints import acting_algorithm
from rllib.env.multi_agent import MultiAgentEnv
from rllib.policies import PolicySpec
from rllib.storage.checkpoint import CheckpointError
from tests.algorithms.taught_worlds import GRU, Secretive, answers, by_rule, made_teacher, played, whole

STYLES = ("all", "turns", "dying", "late")
MAPPING = {"agent_0": "first", "agent_*": "others"}
TAUGHT = sb.TEACHER_ACTIONS, sb.TEACHER_DIST_INPUTS


class Agents(MultiAgentEnv):
    """Three agents with the observations of Secretive, whose first number tells environments and agents apart.

    Config:
        style: "all" act in each step; "turns": one after another; "dying": each ends before the one in front of it;
            "late": each comes a step after the one in front of it.
        actions: of the agents other than the first, an action space.
    """

    possible_agents = ("agent_0", "agent_1", "agent_2")

    def __init__(self, config=None):
        super().__init__()
        self._style, other = (config or {}).get("style", "all"), (config or {}).get("actions", Discrete(2))
        self.observation_spaces = dict.fromkeys(self.possible_agents, Secretive.observation_space)
        self.action_spaces = dict(zip(self.possible_agents, (Discrete(2), other, other)))
        self._serial = self._episode = -1

    def _seen(self):
        living = [i for i in range(3) if self._comes(i) <= self._t < self._goes(i)]
        acting = living[self._t % 3 :][:1] if self._style == "turns" else living
        return {f"agent_{i}": self._observation(i) for i in acting}

    def _comes(self, i):
        return i if self._style == "late" else 0

    def _goes(self, i):
        return 8 - 2 * i if self._style == "dying" else 8

    def _observation(self, i):
        return whole([self._serial * 3 + i, self._episode, self._t])

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self._serial = seed % 997
        self._episode, self._t = self._episode + 1, 0
        return self._seen(), {}

    def step(self, action_dict):
        self._t += 1
        over = self._t == 8
        ended = [i for i in range(3) if self._t == self._goes(i)]
        seen = {**self._seen(), **{f"agent_{i}": self._observation(i) for i in ended}}
        flags = {f"agent_{i}": True for i in ended} | {"__all__": over}
        return seen, dict.fromkeys(action_dict, 1.0), flags, {"__all__": False}, {}


class Watching(Agents):
    """Agents with a picture in addition."""

    def __init__(self, config=None):
        super().__init__(config)
        seen = Dict({**Secretive.observation_space.spaces, "view": Box(0, 1, (2, 2), np.float32)})
        self.observation_spaces = dict.fromkeys(self.possible_agents, seen)

    def _observation(self, i):
        return {**super()._observation(i), "view": np.ones((2, 2), np.float32)}


class Strangers(MultiAgentEnv):
    """Agents that the environment does not name before: more of them in each episode, six steps each."""

    def get_observation_space(self, agent_id):
        return Secretive.observation_space

    def get_action_space(self, agent_id):
        return Discrete(2)

    def __init__(self, config=None):
        super().__init__()
        self._serial = self._episode = -1

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self._serial = seed % 97
        self._episode, self._t, self._came = self._episode + 1, 0, {}
        return self._join(), {}

    def _join(self):
        new = [10 * self._t + i for i in range(1 + self._episode % 4)]
        self._came |= dict.fromkeys(new, self._t)
        return {self._name(i): self._seen(i) for i in new}

    def _name(self, i):
        return f"{self._episode}_{i}"

    def _seen(self, i):
        return whole([100 * self._serial + i, self._episode, self._t - self._came[i]])

    def step(self, action_dict):
        self._t += 1
        seen = {self._name(i): self._seen(i) for i in self._came}
        gone = [i for i, came in self._came.items() if self._t == came + 6]
        for i in gone:
            del self._came[i]
        flags = {**{self._name(i): True for i in gone}, "__all__": self._t == 9}
        return {**seen, **self._join()}, dict.fromkeys(action_dict, 1.0), flags, {"__all__": False}, {}


def opposite(observations):
    """What `by_rule` does not do."""
    return 1 - by_rule(observations)


def config(first, others, kind=DistillationConfig, style="all", envs=2, keys=("secret",), **settings):
    """A run whose policies "first" and "others" have these settings of their own."""
    made = kind().environment(Agents, env_config={"style": style}, teacher_observation_keys=list(keys))
    made.rollouts(num_rollout_workers=0, num_envs_per_worker=envs, rollout_fragment_length=10)
    made.multi_agent(policies={"first": first, "others": others}, policy_mapping_fn=MAPPING)
    given = {"train_batch_size": 10 * envs, "model": {"fcnet_hiddens": [8]}, "lr": 0.01}
    small = {"sgd_minibatch_size": 10, "num_sgd_iter": 1}
    given |= {name: value for name, value in small.items() if name in made.settings}
    return made.training(**given).update_from_dict(settings).debugging(seed=0)


def own(teacher, **more):
    return {"teacher": teacher, "teacher_coeff": 1.0, **more}


def sampled(made, rounds=3):
    """Policy id -> the rows of some fragments, in the order of time for each agent."""
    with made.build() as algo:
        return in_order(algo, rounds)


def in_order(algo, rounds):
    worker = algo.workers.local_worker()
    worker.load_snapshots(algo.snapshots())
    parts = [worker.sample()[0].policy_batches for _ in range(rounds)]
    joined = {i: sb.SampleBatch.concat([part[i] for part in parts if i in part]) for i in set().union(*parts)}
    return {i: _steps(rows) for i, rows in joined.items()}


def _steps(rows):
    """The columns of a batch, without rows that are no steps."""
    is_step = rows[sb.LOSS_MASK] if sb.LOSS_MASK in rows else np.ones(rows.count, bool)
    return {name: rows[name][is_step] for name in (sb.OBS, sb.ACTIONS, *TAUGHT) if name in rows}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("kind", [DistillationConfig, PPOConfig, A2CConfig, IMPALAConfig, APPOConfig])
def test_each_policy_has_the_labels_of_its_teacher(kind, style):
    """The keys of the teacher reach no policy, and a policy without a teacher has no labels."""
    rows = sampled(config(own(by_rule), own(opposite, beta=1.0), kind, style))
    for policy_id, rule in (("first", by_rule), ("others", opposite)):
        assert rows[policy_id][sb.OBS].shape[1:] == (3,) and len(rows[policy_id][sb.OBS]) > 5
        np.testing.assert_array_equal(rows[policy_id][sb.TEACHER_ACTIONS], answers(rule, rows[policy_id][sb.OBS]))
    np.testing.assert_array_equal(rows["others"][sb.ACTIONS], rows["others"][sb.TEACHER_ACTIONS])
    assert (rows["first"][sb.ACTIONS] != rows["first"][sb.TEACHER_ACTIONS]).any()
    if kind is not DistillationConfig:
        alone = sampled(config({}, own(opposite), kind, style), rounds=1)
        assert sb.TEACHER_ACTIONS not in alone["first"] and sb.TEACHER_ACTIONS in alone["others"]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("batch_mode", ["truncate_episodes", "complete_episodes"])
@pytest.mark.parametrize("student", [{}, GRU], ids=["plain", "gru"])
def test_a_teacher_remembers_each_agent(teacher_with_memory, style, batch_mode, student):
    """By its own filter, over the steps in which the agent acts."""
    made = config(own(by_rule), own(teacher_with_memory), style=style, batch_mode=batch_mode).training(model=student)
    rows = sampled(made, rounds=4)["others"]
    order = np.lexsort(rows[sb.OBS].T[::-1])  # by agent, episode and step
    assert len(order) > 20
    actions, inputs = played(teacher_with_memory, rows[sb.OBS][order])
    np.testing.assert_array_equal(rows[sb.TEACHER_ACTIONS][order], actions)
    np.testing.assert_allclose(rows[sb.TEACHER_DIST_INPUTS][order], inputs, atol=1e-5)


def test_a_function_is_asked_for_the_agents_that_act():
    """Slots without an agent hold no observation."""
    asked = []

    def teach(observations):
        asked.append(len(observations["place"]))
        assert (observations["place"][:, 0] >= 0).all() and np.any(observations["secret"], axis=-1).all()
        return by_rule(observations)

    sampled(config(own(teach), own(teach), style="dying"))
    assert set(asked) == {2, 4}  # agents of two environments, of which the last one dies after four steps


@pytest.mark.parametrize("observation_filter", ["NoFilter", "MeanStdFilter"])
@pytest.mark.parametrize("keys", [[], ["secret"]], ids=["all", "hidden"])
def test_a_teacher_gets_what_the_environment_gives(teacher, observation_filter, keys):
    """Not what the policy's filter makes of it."""
    seen = []

    def teach(observations):
        seen.extend(zip(observations["place"].tolist(), observations["secret"].tolist()))
        return by_rule(observations)

    made = config(own(teach), own(teacher), keys=keys).rollouts(observation_filter=observation_filter)
    sampled(made, rounds=1)
    for place, secret in seen:
        np.testing.assert_allclose(whole(place)["secret"], secret)


@pytest.mark.parametrize("of_teacher", [by_rule, "network"], ids=["function", "network"])
@pytest.mark.parametrize("change", ["comes", "begins to learn"])
def test_the_first_teacher_may_come_in_the_middle_of_a_run(teacher, of_teacher, change, tmp_path):
    """It reads the keys that no policy does, which the environments give from the beginning."""
    taught = own(teacher if of_teacher == "network" else of_teacher)
    comes = change == "comes"
    made = config({}, {} if comes else taught, PPOConfig).multi_agent(policies_to_train=["first"])
    with made.build() as algo:
        algo.train()
        if comes:
            algo.remove_policy("others", policy_mapping_fn={"agent_*": "first"})
            algo.add_policy("others", config=taught, policy_mapping_fn=MAPPING)
        algo.set_policies_to_train(["first", "others"])
        stats = algo.train()["info"]["learner"]
        path = algo.save(tmp_path)
        assert algo.evaluate(1)["episodes_this_iter"] == 1
    assert (
        "teacher_agreement" in stats["others"]["learner_stats"]
        and "teacher_coeff" not in stats["first"]["learner_stats"]
    )
    with Algorithm.from_checkpoint(path, load_user_code=True) as algo:
        rows = in_order(algo, rounds=2)
    labels = (
        answers(by_rule, rows["others"][sb.OBS])
        if of_teacher is by_rule
        else played(teacher, rows["others"][sb.OBS])[0]
    )
    np.testing.assert_array_equal(rows["others"][sb.TEACHER_ACTIONS], labels)
    assert sb.TEACHER_ACTIONS not in rows["first"]


def test_a_teacher_of_a_policy_that_nobody_acts_by_yet(teacher):
    """It reads what agents alike are given."""
    with config({}, {}, PPOConfig).build() as algo:
        algo.add_policy("new", config=own(teacher))
        algo.set_policy_mapping_fn({"agent_0": "first", "agent_1": "others", "agent_2": "new"})
        assert algo.train()["info/learner/new/learner_stats/teacher_coeff"] == 1


@pytest.mark.parametrize("batch_mode", ["truncate_episodes", "complete_episodes"])
def test_a_teacher_remembers_agents_that_nobody_has_named(teacher_with_memory, batch_mode):
    """Also where a policy gets more slots."""
    place = Dict({"place": Secretive.observation_space["place"]})
    made = config({}, own(teacher_with_memory, beta=0.5), PPOConfig, batch_mode=batch_mode).environment(Strangers)
    spec = PolicySpec(observation_space=place, action_space=Discrete(2), config=own(teacher_with_memory, beta=0.5))
    made.multi_agent(policies={"others": spec}, policy_mapping_fn=lambda agent, episode, worker, **more: "others")
    with made.build() as algo:
        rows = in_order(algo, rounds=4)["others"]
    order = np.lexsort(rows[sb.OBS].T[::-1])
    assert len(order) > 100 and len({tuple(place[:2]) for place in rows[sb.OBS]}) > 20
    actions, inputs = played(teacher_with_memory, rows[sb.OBS][order])
    np.testing.assert_array_equal(rows[sb.TEACHER_ACTIONS][order], actions)
    np.testing.assert_allclose(rows[sb.TEACHER_DIST_INPUTS][order], inputs, atol=1e-5)


@pytest.mark.parametrize("of_policy", [False, True], ids=["run", "policy"])
def test_a_trial_finds_teachers_from_the_directory_of_its_script(teacher, of_policy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(teacher, "results/teacher")
    taught = own(tune.grid_search(["results/teacher", teacher]))
    made = config(taught if of_policy else {}, {}, PPOConfig)
    space = {**made.to_dict(), **({} if of_policy else taught)}
    done = tune.run("PPO", config=space, stop={"training_iteration": 1}, storage_path=tmp_path / "tune", verbose=0)
    assert all("teacher_agreement" in trial.last_result["info/learner/first/learner_stats"] for trial in done.trials)


@pytest.mark.parametrize("ids", [False, True])
def test_a_critic_of_all_agents_does_not_read_what_teachers_do(ids):
    """Whatever kind of observation that is, and wherever it would stand."""
    made = config({}, {}, PPOConfig, keys=("secret", "view")).environment(Watching)
    made.multi_agent(policies=None, policy_mapping_fn=None, centralized_critic=True, agent_id_in_observation=ids)
    with made.training(**own(by_rule)).build() as algo:
        rows = algo.workers.local_worker().sample()[0].policy_batches["default_policy"]
        places = rows[sb.OBS][:, 3 * ids : 3 * ids + 3]
        joint = rows[sb.OBS][:, 3 * ids + 3 :].reshape(-1, 3, 4)
        np.testing.assert_array_equal(joint[:, 0], np.pad(places, ((0, 0), (0, 1)), constant_values=1))
        np.testing.assert_array_equal(rows[sb.TEACHER_ACTIONS], answers(by_rule, places))
        assert algo.evaluate(1)["episodes_this_iter"] == 1


def test_evaluation_workers_get_no_teacher():
    """After a change of policies neither: it may be large, or nothing that another process can be sent."""
    lock = threading.Lock()

    def teach(observations):
        with lock:
            return by_rule(observations)

    made = config(own(teach), {}, PPOConfig).evaluation(evaluation_num_workers=1)
    with made.build() as algo:
        algo.set_policies_to_train(["first"])
        assert algo.evaluate(1)["episodes_this_iter"] == 1


# ------------------------------------------------------------------ learning


@pytest.mark.slow
@pytest.mark.parametrize("style", ["turns", "dying"])
def test_bits_do_not_depend_on_the_division_among_workers(teacher_with_memory, style):
    """Nor do turns of a teacher, which are drawn for each agent."""
    found = []
    for workers, envs in ((0, 4), (2, 2), (1, 4)):
        made = config(own(by_rule, beta=0.5), own(teacher_with_memory, beta=0.5), PPOConfig, style, envs)
        made.rollouts(num_rollout_workers=workers).training(train_batch_size=40)
        made.reporting(min_time_s_per_iteration=0)
        with made.build() as algo:
            for _ in range(2):
                algo.train()
            found.append({policy_id: policy.weights.copy() for policy_id, policy in algo.policies.items()})
    for others in found[1:]:
        for policy_id, weights in found[0].items():
            np.testing.assert_array_equal(others[policy_id], weights)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [DistillationConfig, DAggerConfig, PPOConfig, IMPALAConfig])
def test_policies_learn_opposite_rules(kind):
    made = config(own(by_rule), own(opposite), kind, style="turns", envs=4, keys=(), lr=0.02)
    made.environment(ignore_observation_keys=["place"])
    made.reporting(min_sample_timesteps_per_iteration=2000, min_time_s_per_iteration=0)
    with made.build() as algo:
        for _ in range(4):
            result = algo.train()
    stats = result["info"]["learner"]
    assert all(stats[each]["learner_stats"]["teacher_agreement"] > 0.9 for each in ("first", "others"))


def test_the_teacher_of_the_run_is_that_of_all_policies():
    made = config({}, {"teacher": opposite})
    rows = sampled(made.training(teacher=by_rule))
    for policy_id, rule in (("first", by_rule), ("others", opposite)):
        np.testing.assert_array_equal(rows[policy_id][sb.TEACHER_ACTIONS], answers(rule, rows[policy_id][sb.OBS]))


def test_a_policy_that_comes_learns_from_its_teacher(tmp_path):
    """So does one that was frozen at first, and both in a run that goes on from a checkpoint."""
    made = config(own(by_rule), own(opposite), PPOConfig, keys=()).multi_agent(policies_to_train=["first"])
    with made.build() as algo:
        algo.train()
        mapping = {"agent_0": "first", "agent_1": "others", "agent_2": "new"}
        algo.add_policy("new", config=own(opposite, beta=1.0), policy_mapping_fn=mapping)
        algo.set_policies_to_train(["first", "others", "new"])
        stats = algo.train()["info"]["learner"]
        path = algo.save(tmp_path)
    assert [stats[each]["learner_stats"]["beta"] for each in ("first", "new", "others")] == [0, 1, 0]
    with Algorithm.from_checkpoint(path, load_user_code=True) as algo:
        stats = algo.train()["info"]["learner"]
    assert [stats[each]["learner_stats"]["beta"] for each in ("first", "new", "others")] == [0, 1, 0]


def test_a_checkpoint_knows_the_teacher_of_each_policy(teacher, other_teacher, tmp_path):
    """It acts without them."""
    moved = tmp_path / "moved"
    shutil.copytree(teacher, moved)
    with config(own(str(moved)), own(by_rule), PPOConfig).build() as algo:
        algo.train()
        path = algo.save(tmp_path / "run")
    policies = {"first": own(other_teacher), "others": own(by_rule)}
    with pytest.raises(ValueError, match="another teacher") as caught:
        Algorithm.from_checkpoint(path, {"policies": policies})
    (remedy,) = caught.value.mistakes[0].remedies
    assert PolicySpec.of(remedy["policies"]["first"], "first").config["teacher"] == str(moved)
    shutil.rmtree(moved)
    with pytest.raises(CheckpointError, match="moved"):
        Algorithm.from_checkpoint(path, load_user_code=True)
    with acting_algorithm(path, load_user_code=True) as algo:
        assert algo.evaluate(2)["episodes_this_iter"] == 2
    policies["first"] = own(teacher)
    with Algorithm.from_checkpoint(path, {"policies": policies}) as algo:
        assert algo.train()["info"]["learner"]["first"]["learner_stats"]["teacher_coeff"] == 1


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("forms", ["network, function", "function, network"])
def test_a_run_does_not_go_on_with_a_teacher_of_another_form(teacher, forms, several, tmp_path):
    """The remedy is the saved one; a function is not called with the settings for that."""
    before, after = (own(teacher if form == "network" else by_rule) for form in forms.split(", "))
    made, changes = config(before, {}, PPOConfig, keys=()), {"policies": {"first": after, "others": {}}}
    if not several:
        made, changes = PPOConfig().environment(Secretive).rollouts(num_rollout_workers=0).training(**before), after
    with made.build() as algo:
        path = algo.save(tmp_path)
    with pytest.raises(ValueError, match="another teacher") as caught:
        Algorithm.from_checkpoint(path, changes, load_user_code=True)
    (remedy,) = (caught.value.mistakes[0] if several else caught.value.mistake).remedies
    given = PolicySpec.of(remedy["policies"]["first"], "first").config if several else remedy
    assert given["teacher"] == before["teacher"]


# ------------------------------------------------------------------ what is refused


def refusal(made):
    with pytest.raises(ValueError) as caught:
        made.build().stop()
    return caught.value


def test_a_policy_without_a_teacher(teacher):
    """Where the algorithm learns from nothing else; one that is frozen needs none."""
    made = config(own(teacher), {})
    assert "'others' has none" in str(refusal(made))
    assert "'first'" in str(refusal(config({}, {})))
    with made.multi_agent(policies_to_train=["first"]).build() as algo:
        algo.train()


def test_a_path_that_is_no_teacher_s(tmp_path):
    """The policy is named, and where there are several policies, they are."""
    with config(own(by_rule), {}, PPOConfig).build() as algo:
        several = str(algo.save(tmp_path / "several"))
    for path, reason in ((str(tmp_path / "nothing"), "nothing"), (several, "it has first, others")):
        error = refusal(config(own(by_rule), own(path)))
        assert isinstance(error, CheckpointError) and not getattr(error, "__notes__", None)
        assert f"teacher={path!r} of the policy 'others'" in str(error) and reason in str(error)
    with config(own(by_rule), own(load_policy(several, "others"))).build() as algo:
        algo.train()


@pytest.mark.parametrize(
    "given",
    [
        {"teacher": lambda observations: observations["nothing"]},
        {"teacher": lambda observations: 3},
        {"teacher": {"a": by_rule}, "teacher_mapping_fn": lambda observation: "nobody"},
    ],
    ids=["key", "answer", "name"],
)
@pytest.mark.parametrize("style", STYLES)
def test_a_teacher_that_fails_is_named(given, style):
    """By its policy and an agent, and with the keys that there are."""
    made = config(own(by_rule), {**given, "teacher_coeff": 1.0}, style=style)
    with made.build() as algo, pytest.raises((KeyError, ValueError)) as caught:
        algo.train()
    said = "".join([str(caught.value), *caught.value.__notes__])
    assert "policy 'others'" in said and any(f"agent 'agent_{i}'" in said for i in (1, 2))
    assert "'place', 'secret'" in said or "teacher_mapping_fn" in said


def test_a_teacher_of_other_actions(teacher):
    numbers = Box(-1, 1, (1,), np.float32)
    made = config(own(by_rule), own(teacher)).environment(env_config={"style": "all", "actions": numbers})
    error = refusal(made)
    assert "action space" in str(error) and "'others'" in str(error)


def test_a_teacher_of_observations_that_are_not_there(tmp_path):
    other = made_teacher(tmp_path / "teacher", "CartPole-v1")
    error = refusal(config(own(by_rule), own(other)))
    assert "'others'" in str(error) and "reads" in str(error)


def test_what_belongs_to_the_run(teacher):
    for name, value in (("teacher_observation_keys", ["place"]), ("evaluate_teacher", True)):
        assert "belongs to the run" in str(refusal(config(own(teacher, **{name: value}), own(teacher))))
    error = refusal(config(own(teacher), own(teacher), evaluate_teacher=True))
    assert error.mistakes[0].remedies == ({"evaluate_teacher": False},) and "policy 'first'" not in str(error)


def test_mistakes_in_a_policy_s_own_settings(teacher):
    """Their remedies are of these settings."""
    made = config(own(by_rule, distillation_loss="kl"), own(teacher), PPOConfig)
    error = refusal(made)
    (remedy, *_) = error.mistakes[0].remedies
    spec = PolicySpec.of(remedy["policies"]["first"], "first")
    assert spec.config["distillation_loss"] == "auto"
    with made.apply(remedy).build() as algo:
        assert np.isfinite(algo.train()["info/learner/first/learner_stats/distillation_loss"])
    for given in (3, PPOConfig, {"a": teacher}):
        assert "'first'" in str(refusal(config(own(given), own(teacher))))


def test_novelty_beside_a_teacher_of_a_policy():
    """All policies explore by it, or none does: the remedy is the run's."""
    made = config(own(by_rule), {}, PPOConfig, exploration_config={"type": "RND"})
    error = refusal(made)
    assert list(error.mistakes[0].remedies[0]) == ["exploration_config"]
    made.apply(error.mistakes[0].remedies[0]).build().stop()


def test_settings_of_a_teacher_are_those_of_policies():
    """But for what environments give, and the episodes that a teacher plays alone."""
    settings = TaughtConfig.settings
    of_teacher = {name for name, each in settings.items() if each.only_with and "teacher" in str(each.only_with)}
    of_teacher |= {name for name in settings if name.startswith("teacher")}
    of_policy = {name for name in of_teacher if settings[name].of_policy}
    assert of_teacher - of_policy == {"teacher_observation_keys", "evaluate_teacher"}
