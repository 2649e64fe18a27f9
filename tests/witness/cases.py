"""Named cases beside the grid: one feature each, on scripted episodes, with all of its numbers computed again."""

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Iterator
from unittest.mock import patch

import numpy as np

import rllib
from rllib import sample_batch as sb
from rllib.policy import Policy
from tests.witness import grid, test_external
from tests.witness.checks import Steps, check_counters, check_on_policy, check_stored, following
from tests.witness.checks.costs import check_costs, check_episode_costs, check_stored_costs
from tests.witness.checks.filters import Unfiltered, check_statistics, observed
from tests.witness.checks.memory import (
    Remembered,
    check_bootstraps,
    check_learned_sequences,
    check_replayed_sequences,
    check_sequences,
)
from tests.witness.checks.priorities import check_priorities
from tests.witness.checks.rows import check_advantages, check_rows
from tests.witness.checks.scaling import ReturnsOfEpisodes, check_moments
from tests.witness.checks.steps import reward_of
from tests.witness.checks.vtrace import check_vtrace
from tests.witness.doors.external import ExternalSingle
from tests.witness.doors.scripted import Continuous, Several, Single
from tests.witness.reader import reading
from tests.witness.script import (
    ACTION_REWARD,
    BOTH,
    CRASHED,
    OBSERVATION_SIZE,
    TERMINATED,
    TRUNCATED,
    Family,
    decoded,
    observation,
)

GAMMA, LAMBDA = grid.GAMMA, grid.LAMBDA
ENDS = (TERMINATED, TRUNCATED, BOTH)
ONE, THREE = Family(ends=ENDS), Family(ends=ENDS, num_agents=3)
FAILING = Family(ends=(TERMINATED, TRUNCATED, CRASHED))
THREE_FAILING = Family(ends=(TERMINATED, TRUNCATED, CRASHED), num_agents=3)
DENSE = {"fcnet_hiddens": [8]}
GRU = {**DENSE, "use_gru": True, "lstm_cell_size": 4, "max_seq_len": 5}
MEMORIES = {
    "gru": GRU,
    "lstm": {**DENSE, "use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 5},
    "attention": {
        **DENSE,
        "use_attention": True,
        "attention_num_transformer_units": 1,
        "attention_dim": 4,
        "attention_head_dim": 4,
        "attention_num_heads": 1,
        "attention_memory_inference": 3,
        "attention_memory_training": 3,
        "max_seq_len": 5,
    },
}
PPO = {"sgd_minibatch_size": 8, "num_sgd_iter": 1, "standardize_advantages": False, "lambda_": LAMBDA}


def config_of(algorithm: str, kind, family: Family, *, envs=2, workers=0, quorum=1.0, fragment=7, **settings):
    """The config of a case: one fragment of each environment is a train batch, and weights stay as they are.

    Args:
        algorithm, kind, family: names the algorithm, the environment and its scripts.
        envs, workers, fragment: environments of each worker, workers, and steps of a fragment.
        quorum: share of the workers that a round waits for.
        settings: of training(); "environment" and "rollouts" are those of these methods.
    """
    more = {name: settings.pop(name, {}) for name in ("environment", "rollouts")}
    config = getattr(rllib, f"{algorithm}Config")()
    config.environment(kind, env_config={"family": family}, **more["environment"])
    if CRASHED in family.ends:
        config.fault_tolerance(restart_failed_sub_environments=True)
    if quorum < 1:
        more["rollouts"] = {**more["rollouts"], "sample_quorum": quorum}
    config.rollouts(
        num_rollout_workers=workers,
        num_envs_per_worker=envs,
        rollout_fragment_length=fragment,
        **more["rollouts"],
    )
    rows = fragment * envs * config.workers_per_round
    if algorithm in ("PPO", "GAIL", "AIRL", "A2C", "IMPALA", "APPO", "TRPO", "PG"):
        settings.setdefault("train_batch_size", rows)
    if "sgd_minibatch_size" in settings:
        settings["sgd_minibatch_size"] = min(settings["sgd_minibatch_size"], rows)
    config.debugging(seed=1).training(**{"gamma": GAMMA, "lr": 0.0, "model": DENSE, **settings})
    return config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=60)


def trained(config, tmp_path=None, *, parts=1, iterations=2) -> Iterator[tuple]:
    """Trains; from the second part on by an algorithm that was restored. Gives (algorithm, what was read, result)."""
    with contextlib.ExitStack() as stack:
        algorithm = stack.enter_context(config.build())
        for part in range(parts):
            if part:
                path = algorithm.save(tmp_path)
                algorithm = stack.enter_context(config.copy().build())
                algorithm.restore(path)
            with reading(algorithm) as read:
                result = [algorithm.train() for _ in range(iterations)][-1]
            yield algorithm, read, result


def by_policy(config, policies: Callable[[int], str]):
    """Several policies that all learn."""
    ids = {policies(agent) for agent in range(3)}
    return config.multi_agent(policies=ids, policy_mapping_fn=lambda agent, *_, **__: policies(agent))


def family_of(door, fails: bool = False) -> Family:
    """The scripts of an environment; `fails`: whether it fails now and then."""
    if fails:
        return FAILING if door is not Several else THREE_FAILING
    return ONE if door is not Several else THREE


def even_or_odd(agent: int) -> str:
    return "odd" if agent % 2 else "even"


def values_of(policy: Policy) -> Callable:
    """The function that gives a policy's values of steps."""
    return lambda places: policy.values(_seen(places))


def no_values(places) -> np.ndarray:
    """Values of a policy that has none: returns are summed up to the end of a fragment alone."""
    return np.zeros(len(places))


def only(_agent: int) -> str:
    return "p"


# ------------------------------------------------------------------ rows


def rows(tmp_path, **case) -> None:
    """A run of the grid."""
    grid.run(case, tmp_path)


def policies(tmp_path, algorithm="PPO", parts=1, **settings) -> None:
    """Two policies, each of which gets the rows of its own agents."""
    more = PPO if algorithm == "PPO" else REPLAYED
    config = by_policy(config_of(algorithm, Several, THREE, **more, **settings), even_or_odd)
    steps, stored = Steps(), []
    for algorithm_, read, result in trained(config, tmp_path, parts=parts):
        for policy_id, columns in [*read.learned, *read.stored]:
            for agent in {decoded(seen)[2] for seen in columns[sb.OBS]}:
                assert even_or_odd(agent) == policy_id, f"the policy {policy_id!r} gets rows of agent {agent}"
        if algorithm == "PPO":
            for policy_id, columns in read.learned:
                values = algorithm_.get_policy(policy_id).values
                check_on_policy(columns, THREE, steps, values, GAMMA, LAMBDA)
        stored += [columns for _, columns in read.stored]
        last = result
    check_stored(stored, THREE, steps, GAMMA, settings.get("n_step", 1))
    assert steps.check_complete(THREE, num_open=1) > 5
    if algorithm == "PPO":
        owners = {step[:3]: even_or_odd(step[2]) for step in steps.counts}
        check_counters(last, THREE, steps, owners)


def renewed_policy(tmp_path, algorithm: str, **settings) -> None:
    """A policy with the id of one that was removed, and other agents; fragments of the former are on the way."""
    more = REPLAYED if algorithm == "DQN" else {}
    config = by_policy(config_of(algorithm, Several, THREE, workers=1, **more, **settings), even_or_odd)
    with config.build() as trainer:
        trainer.train()
        trainer.remove_policy("odd", policy_mapping_fn="even")
        trainer.add_policy("odd", policy_mapping_fn={"0": "odd", "*": "even"})
        with reading(trainer) as read:
            for _ in range(3):
                trainer.train()
    found = {
        decoded(seen)[2] for each, columns in [*read.learned, *read.stored] if each == "odd" for seen in columns[sb.OBS]
    }
    assert found == {0}, f"the policy gets rows of the agents {sorted(found)}"


# Settings of algorithms that learn from the newest steps.
NEWEST = {
    "PPO": PPO,
    "A2C": {"lambda_": LAMBDA},
    "TRPO": {"lambda_": LAMBDA, "standardize_advantages": False, "sgd_minibatch_size": 8},
}


def newest_steps(
    tmp_path, algorithm: str, door=Single, lambda_=LAMBDA, has_values=True, fails=False, **settings
) -> None:
    """Rows of one fragment of each environment, as an algorithm that learns from the newest steps gets them."""
    family = family_of(door, fails)
    config = config_of(algorithm, door, family, **NEWEST.get(algorithm, {}), **settings)
    if door is Several:
        by_policy(config, only)
    steps = Steps()
    for trainer, read, result in trained(config, tmp_path):
        assert read.learned, "nothing was learned"
        for policy_id, columns in read.learned:
            found = check_rows(columns, family, steps)
            if sb.LOSS_MASK in columns:
                check_bootstraps(columns, family)
            if sb.ADVANTAGES in columns:
                values = values_of(trainer.get_policy(policy_id)) if has_values else no_values
                check_advantages(columns, found, family, values, GAMMA, lambda_)
        last = result
    assert steps.check_complete(family, num_open=1) > 5
    if algorithm not in ("IMPALA", "APPO"):
        check_counters(last, family, steps)


REPLAYED = {
    "train_batch_size": 16,
    "num_steps_sampled_before_learning_starts": 50,
    "replay_buffer_config": {"capacity": 5000, "type": "ReplayBuffer"},
}


# ------------------------------------------------------------------ memories


def memory(tmp_path, kind="gru", max_seq_len=5, door=Single, algorithm="PPO", parts=1, fails=False, **settings) -> None:
    """A policy with a memory, on policy: its states, its sequences, and advantages by its values."""
    family = family_of(door, fails)
    more = PPO if algorithm == "PPO" else {"lambda_": LAMBDA} if algorithm == "A2C" else {}
    model = {**MEMORIES[kind], "max_seq_len": max_seq_len}
    config = config_of(algorithm, door, family, model=model, **more, **settings)
    if door is Several:
        by_policy(config, only)
    steps, in_the_middle = Steps(), 0
    for algorithm_, read, result in trained(config, tmp_path, parts=parts):
        for policy_id, columns in read.learned:
            remembered = Remembered(algorithm_.get_policy(policy_id))
            if sb.LOSS_MASK in columns:
                check_bootstraps(columns, family)
            in_the_middle += check_sequences(columns, family, remembered, max_seq_len)
            found = check_rows(columns, family, steps)
            remembered.check_outputs(columns, found)
            if sb.ADVANTAGES in columns:
                check_advantages(columns, found, family, remembered.values, GAMMA, LAMBDA)
        last = result
    assert in_the_middle, "no sequence began in the middle of an episode"
    assert steps.check_complete(family, num_open=1) > 5
    if algorithm != "IMPALA":
        check_counters(last, family, steps)


def previous_steps(tmp_path, kind="gru", **settings) -> None:
    """Observations with the action and the reward of the step before."""
    model = {**MEMORIES[kind], "lstm_use_prev_action": True, "lstm_use_prev_reward": True}
    config = config_of("PPO", Single, ONE, model=model, **PPO, **settings)
    steps = Steps()
    decode = lambda row: decoded(row[:OBSERVATION_SIZE])  # noqa: E731

    def seen(step):
        previous = np.zeros(3, np.float32)
        if step[3]:
            before = (*step[:3], step[3] - 1)
            action = steps.actions[before]
            previous[int(action)] = 1
            previous[2] = reward_of(ONE, before, action)
        return np.concatenate([observation(*step), previous])

    for algorithm, read, _ in trained(config, tmp_path):
        for policy_id, columns in read.learned:
            found = check_rows(columns, ONE, steps, decode=decode)
            for step, row in found.items():
                given, wanted = columns[sb.OBS][row], seen(step)
                assert np.array_equal(given, wanted), f"{step}: observation {given}, not {wanted}"
            remembered = Remembered(algorithm.get_policy(policy_id), seen)
            check_sequences(columns, ONE, remembered, 5, decode)
            remembered.check_outputs(columns, found)
            check_advantages(columns, found, ONE, remembered.values, GAMMA, LAMBDA)
    assert steps.check_complete(ONE) > 5


def replayed_sequences(
    tmp_path, burn_in=2, n_step=1, max_seq_len=3, zero_init_states=False, door=Single, fails=False, **settings
):
    """R2D2's sequences: in the replay, and as they are learned from."""
    family = family_of(door, fails)
    config = config_of(
        "R2D2",
        door,
        family,
        model={**GRU, "max_seq_len": max_seq_len},
        n_step=n_step,
        zero_init_states=zero_init_states,
        train_batch_size=12,
        num_steps_sampled_before_learning_starts=30,
        training_intensity=1,
        replay_buffer_config={"capacity": 5000, "replay_burn_in": burn_in},
        **settings,
    )
    if door is Several:
        by_policy(config, only)
    steps, before, stored = Steps(), 0, []
    for algorithm, read, _ in trained(config, tmp_path):
        for policy_id, columns in read.stored:
            remembered = None if zero_init_states else Remembered(algorithm.get_policy(policy_id))
            before += check_replayed_sequences(columns, remembered, max_seq_len, burn_in, n_step)
            stored.append(columns)
        assert read.learned, "nothing was learned"
        for policy_id, columns in read.learned:
            remembered = None if zero_init_states else Remembered(algorithm.get_policy(policy_id))
            check_learned_sequences(columns, remembered, max_seq_len)
    check_stored(stored, family, steps, GAMMA, n_step)
    assert steps.check_complete(family, num_open=1) > 5
    assert before or not burn_in


# ------------------------------------------------------------------ V-trace


def vtrace(tmp_path, algorithm="IMPALA", door=Single, fragment=20, fails=False, **settings) -> None:
    """V-trace of weights that move: the second update on a batch is off its policy."""
    family = family_of(door, fails)
    config = config_of(
        algorithm, door, family, fragment=fragment, lr=0.03, num_sgd_iter=3, standardize_advantages=False, **settings
    )
    if door is Several:
        by_policy(config, only)
    largest = 0.0
    for trainer, read, _ in trained(config, tmp_path, iterations=1):
        assert read.traced, "no V-trace"
        for traced in read.traced:
            judge = Policy(next(iter(trainer.policies.values())).spec, traced.weights)
            if algorithm == "APPO":  # it corrects to the target network's policy, whose outputs the batch has
                inputs_of = functools.partial(_target_inputs, traced.columns)
            else:
                inputs_of = functools.partial(_inputs, judge)
            given = {name: getattr(traced, name) for name in ("log_rho", "values", "targets", "advantages")}
            largest = max(
                largest,
                check_vtrace(
                    traced.columns,
                    given,
                    family,
                    values_of(judge),
                    inputs_of,
                    **traced.settings,
                    corrected=settings.get("vtrace", True),
                ),
            )
    assert algorithm == "APPO" or largest > 1e-3, "no policy but the one that acted"


def _seen(places) -> np.ndarray:
    return np.stack([observation(*step) for step in places])


def _inputs(policy: Policy, places) -> np.ndarray:
    return policy.dist_inputs(_seen(places))


def _target_inputs(columns, places) -> np.ndarray:
    rows = {decoded(columns[sb.OBS][row]): row for row in np.flatnonzero(columns[sb.LOSS_MASK])}
    return np.stack([columns[sb.TARGET_DIST_INPUTS][rows[step]] for step in places])


# ------------------------------------------------------------------ replays


def q_errors(policy: Policy, columns) -> np.ndarray:
    """Absolute TD errors of rows, by one network for values and targets, in float64."""
    every = np.arange(len(columns[sb.OBS]))
    now, after = (
        np.asarray(policy.action_values(columns[name]).q_values(), np.float64) for name in (sb.OBS, sb.NEXT_OBS)
    )
    targets = columns[sb.REWARDS] + columns[sb.DISCOUNTS] * after[every, after.argmax(1)]
    return np.abs(now[every, columns[sb.ACTIONS]] - targets)


def priorities(tmp_path, capacity=5000, n_step=1, fails=False, **settings) -> None:
    """Prioritised replay of DQN: draws, weights, and errors of the rows that were drawn."""
    family = family_of(Single, fails)
    config = config_of(
        "DQN",
        Single,
        family,
        train_batch_size=16,
        num_steps_sampled_before_learning_starts=20,
        n_step=n_step,
        replay_buffer_config={
            "type": "PrioritizedReplayBuffer",
            "capacity": capacity,
            "prioritized_replay_alpha": 0.6,
            "prioritized_replay_beta": 0.4,
            "prioritized_replay_eps": 0.01,
        },
        **settings,
    )
    for algorithm, read, _ in trained(config, tmp_path):
        errors_of = functools.partial(q_errors, algorithm.get_policy())
        ((_, events),) = read.replayed.items()
        settings_ = {"alpha": 0.6, "epsilon": 0.01, "capacity": capacity}
        assert check_priorities(events, errors_of, **settings_) > 5


def stored_replay(tmp_path, **settings) -> None:
    """A replay in a checkpoint: the restored run draws from the rows of both parts."""
    config = config_of("DQN", Single, ONE, **REPLAYED, store_buffer_in_checkpoints=True, **settings)
    steps, stored, drawn = Steps(), [], []
    for _, read, _ in trained(config, tmp_path, parts=2):
        stored += [columns for _, columns in read.stored]
        drawn = [event.columns for events in read.replayed.values() for event in events if event.method == "sample"]
    check_stored(stored, ONE, steps, GAMMA, 1)
    first = {decoded(seen) for columns in stored[: len(stored) // 2] for seen in columns[sb.OBS]}
    seen = {decoded(row) for columns in drawn for row in columns[sb.OBS]}
    assert all(step in steps.counts for step in seen), "a row was drawn that never came in"
    assert any(step in first for step in seen), "no row of the first part is drawn after the restore"


# ------------------------------------------------------------------ filters


def filters(
    tmp_path, door=Single, parts=1, workers=0, fragment=30, algorithm="PPO", policy_of=only, fails=False, **settings
) -> None:
    """Statistics of a filter: all observations, each once; rows are those, filtered by the statistics of their time."""
    family = family_of(door, fails)
    config = config_of(
        algorithm,
        door,
        family,
        fragment=fragment,
        workers=workers,
        rollouts={"observation_filter": "MeanStdFilter", "observation_clip": None},
        **PPO,
        **settings,
    )
    if door is Several:
        by_policy(config, policy_of)
    counted, per_policy = [], {}
    for algorithm_, read, result in trained(config, tmp_path, parts=parts, iterations=4):
        rows, envs = Steps(), config.num_envs_per_worker * max(workers, 1)
        # The first rows were filtered by statistics that were not merged yet, and so were those that begin the second.
        known = {policy_id: Unfiltered([state]) for policy_id, state in per_policy.items()}
        skipped = Counter(dict.fromkeys(known, 2))
        for (policy_id, columns), state in zip(read.learned, read.filters):
            if skipped[policy_id] >= 2:
                check_rows(columns, family, rows, decode=known[policy_id])
            skipped[policy_id] += 1
            known.setdefault(policy_id, Unfiltered([])).states.insert(0, state)
        done = result["num_env_steps_sampled"] - sum(count for _, count in counted)
        assert not done % envs, "environments have made different numbers of steps"
        serials = {step[0] for step in rows.counts}
        assert len(serials) == envs, f"rows of {len(serials)} of {envs} environments"
        counted.append((serials, done))
        per_policy = {i: algorithm_.get_policy(i).filter.get_state() for i in known}
        everything = [
            step for each, steps in counted for serial in each for step in observed(family, serial, steps // envs)
        ]
        for policy_id, state in per_policy.items():
            own = everything if door is Single else [s for s in everything if policy_of(s[2]) == policy_id]
            check_statistics(state, own)


# ------------------------------------------------------------------ rewards, costs, novelty


def clipped(tmp_path, clip=True, door=Single, fails=False, **settings) -> None:
    """Rewards by their sign, or clipped; results have the environment's."""
    family = family_of(door, fails)
    config = config_of("PPO", door, family, environment={"clip_rewards": clip}, **PPO, **settings)
    if door is Several:
        by_policy(config, only)
    steps = Steps()
    scaled = (lambda _, reward: np.sign(reward)) if clip is True else (lambda _, reward: min(reward, clip))
    for algorithm, read, result in trained(config, tmp_path):
        for policy_id, columns in read.learned:
            found = check_rows(columns, family, steps, scaled=scaled)
            check_advantages(columns, found, family, values_of(algorithm.get_policy(policy_id)), GAMMA, LAMBDA)
        check_counters(result, family, steps)


def normalized(tmp_path, parts=1, door=Single, fails=False, **settings) -> None:
    """Rewards divided by the deviation of discounted returns, and the statistics of these."""
    family = family_of(door, fails)
    config = config_of("PPO", door, family, environment={"normalize_returns": True}, **PPO, **settings)
    if door is Several:
        by_policy(config, only)
    returns = ReturnsOfEpisodes(family, GAMMA)
    for algorithm, read, result in trained(config, tmp_path, parts=parts):  # noqa: B007
        for _, columns in read.learned:
            returns.check(columns)
        scale = algorithm.trainee.return_scale
        check_moments(scale.get_state(), returns.counted)
    check_counters(result, family, returns.steps)


def costs(tmp_path, fails=False, **settings) -> None:
    """A limit on costs, on policy: advantages and targets of costs by their critic's values."""
    family = family_of(Single, fails)
    config = config_of("PPO", Single, family, cost_limit=1.0, cost_gamma=0.75, cost_lambda=0.5, **PPO, **settings)
    steps = Steps()
    for algorithm, read, result in trained(config, tmp_path):
        estimator = algorithm._rollout_settings.only_policy.postprocess
        policy = algorithm.get_policy()
        policy.modules = dict(policy.modules or {}) | {"cost_critic": algorithm.learner.vector["cost_critic"]}
        of_costs = estimator._cost_values(policy)
        values_of_costs = functools.partial(lambda values, places: values(_seen(places)), of_costs)
        for _, columns in read.learned:
            found = check_rows(columns, family, steps)
            check_costs(columns, "cost")
            names = "cost", sb.COST_ADVANTAGES, sb.COST_TARGETS, "none"
            check_advantages(columns, found, family, values_of_costs, 0.75, 0.5, names)
            names = sb.REWARDS, "none", sb.VALUE_TARGETS, sb.VF_PREDS
            check_advantages(columns, found, family, values_of(policy), GAMMA, LAMBDA, names)
        check_episode_costs(result, family, steps)
        check_counters(result, family, steps)


def replayed_costs(tmp_path, n_step=3, fails=False, **settings) -> None:
    """A limit on costs with a replay: sums of n costs and the discounts of what follows."""
    family = family_of(Single, fails)
    config = config_of("SAC", Single, family, cost_limit=1.0, cost_gamma=0.75, n_step=n_step, **REPLAYED, **settings)
    steps = Steps()
    for _, read, result in trained(config, tmp_path):
        stored = [columns for _, columns in read.stored]
        check_stored(stored, family, steps, GAMMA, n_step)
        check_stored_costs(stored, family, 0.75, "cost")
        assert np.isfinite(result["episode_cost_mean"])


def novelty(tmp_path, kind="RND", fails=False, **settings) -> None:
    """Intrinsic rewards: one for each step, beside advantages that are GAE's; statistics of all observations."""
    family = family_of(Single, fails)
    config = config_of("PPO", Single, family, **PPO, **settings)
    net = (
        {"embed_dim": 4, "distill_net_config": DENSE}
        if kind == "RND"
        else {"feature_dim": 4, "feature_net_config": DENSE}
    )
    config.exploration(exploration_config={"type": kind, **net})
    steps = Steps()
    for algorithm, read, result in trained(config, tmp_path):
        for policy_id, columns in read.learned:
            found = check_rows(columns, family, steps)
            extrinsic = columns | {sb.ADVANTAGES: columns[sb.ADVANTAGES] - columns[sb.INTRINSIC_ADVANTAGES]}
            check_advantages(extrinsic, found, family, values_of(algorithm.get_policy(policy_id)), GAMMA, LAMBDA)
            assert columns[sb.INTRINSIC_REWARDS].any(), "no intrinsic rewards"
            assert np.all(columns[sb.INTRINSIC_REWARDS] >= 0), "a negative intrinsic reward"
        check_counters(result, family, steps)
        own = algorithm.trainee.novelty
        state = own.get_state()
        for name in ("observations", "returns"):
            if f"{name}.count" in state:
                count = float(state[f"{name}.count"])
                assert count == len(steps.counts), f"{name}: {count} are counted, of {len(steps.counts)}"


def demonstrated() -> dict[str, np.ndarray]:
    """Columns of an expert of four episodes, whose observations are no witness's."""
    rng = np.random.default_rng(0)
    expert = {"obs": rng.normal(size=(20, OBSERVATION_SIZE)).astype(np.float32), "actions": np.zeros(20, np.int64)}
    return {**expert, "terminateds": np.arange(20) % 5 == 4}


def imitation(tmp_path, algorithm="GAIL", parts=1, **settings) -> None:
    """Learned rewards: the environment's are kept beside them, and advantages are those of the learned ones."""
    family = family_of(Single)
    config = config_of(algorithm, Single, family, **PPO, **settings)
    config.training(discriminator_updates=2, discriminator_batch_size=8, discriminator_model=DENSE)
    config.offline_data(demonstrations=demonstrated())
    steps = Steps()
    for algo, read, result in trained(config, tmp_path, parts=parts):
        for policy_id, columns in read.learned:
            found = check_rows(columns | {sb.REWARDS: columns[sb.ENV_REWARDS]}, family, steps)
            check_advantages(columns, found, family, values_of(algo.get_policy(policy_id)), GAMMA, LAMBDA)
            assert np.std(columns[sb.REWARDS]) > 0, "learned rewards are all alike"
        if parts == 1:
            check_counters(result, family, steps)
            count = float(algo.trainee.reward.discriminator.get_state()["returns.count"])
            assert count == len(steps.counts), f"{count} rewards are counted, of {len(steps.counts)}"


def replayed_imitation(tmp_path, **settings) -> None:
    """Learned rewards of rows of a replay, which keeps the environment's, and gives them to each update again."""
    config = config_of("GAILSAC", Single, ONE, **REPLAYED, **settings)
    config.training(discriminator_batch_size=8, discriminator_model=DENSE)
    config.offline_data(demonstrations=demonstrated())
    steps, stored = Steps(), []
    for _, read, _ in trained(config, tmp_path):
        stored += [columns for _, columns in read.stored]
        assert read.learned, "nothing was learned"
        for _, columns in read.learned:
            once = np.unique(columns[sb.OBS], axis=0, return_index=True)[1]  # rows are drawn with replacement
            rows = {name: columns[name][once] for name in stored[0] if name in columns}
            rows[sb.REWARDS] = columns[sb.ENV_REWARDS][once]
            check_stored([rows], ONE, Steps(), GAMMA, 1)
            assert np.std(columns[sb.REWARDS]) > 0, "learned rewards are all alike"
    check_stored(stored, ONE, steps, GAMMA, 1)
    assert steps.check_complete(ONE) > 5


# ------------------------------------------------------------------ actions


def to_box(action) -> float:
    """A Gaussian's action, of which [-1, 1] spans the bounds, as the environment gets it."""
    return float(np.clip(2 * np.float64(np.asarray(action).item()) + 1, -1, 3))


def squashed(action) -> float:
    """An action before tanh, as the environment gets it."""
    return float(2 * np.tanh(np.float64(np.asarray(action).item())) + 1)


def gaussian(inputs, action) -> float:
    """Log-density under mean and log of the deviation."""
    mean, log_std = inputs
    z = (float(np.asarray(action).item()) - mean) / np.exp(log_std)
    return -0.5 * z * z - log_std - 0.5 * np.log(2 * np.pi)


def box(tmp_path, algorithm="PPO", fails=False, **settings) -> None:
    """Actions of a Box on policy: stored in the policy's unit, with the density in that unit."""
    family = family_of(Continuous, fails)
    config = config_of(algorithm, Continuous, family, **(PPO if algorithm == "PPO" else {}), **settings)
    steps = Steps()
    for trainer, read, _ in trained(config, tmp_path):
        for _, columns in read.learned:
            found = check_rows(columns, family, steps, played=to_box, log_prob=gaussian)
            if sb.ADVANTAGES in columns:
                check_advantages(columns, found, family, values_of(trainer.get_policy()), GAMMA, LAMBDA)
    assert steps.check_complete(family) > 5


# ------------------------------------------------------------------ disturbances


def late_observations(tmp_path, delay=2, door=Single, parts=1, **settings) -> None:
    """Rows show the observation of some steps before, and the first one at first; rewards and ends do not move."""
    family = family_of(door)
    disturbances = {"disturbances": {"observation_delay": delay}}
    config = config_of("PPO", door, family, environment=disturbances, **PPO, **settings)
    if door is Several:
        by_policy(config, only)
    steps, rows_of_lives = Steps(), Counter()

    def decode(row):
        *life, shown = decoded(row)
        step = rows_of_lives[tuple(life)]
        rows_of_lives[tuple(life)] += 1
        assert shown == max(0, step - delay), f"step {step} of {life} shows step {shown}"
        return *life, step

    def shown_at(places):
        return [(*place[:3], max(0, place[3] - delay)) for place in places]

    for trainer, read, result in trained(config, tmp_path, parts=parts):
        for policy_id, columns in read.learned:
            found = check_rows(columns, family, steps, decode=decode)
            values = values_of(trainer.get_policy(policy_id))
            check_advantages(columns, found, family, lambda places: values(shown_at(places)), GAMMA, LAMBDA)  # noqa: B023
        last = result
    assert steps.check_complete(family, num_open=1) > 5
    check_counters(last, family, steps)


def late_actions(tmp_path, delay=2, door=Single, parts=1, **settings) -> None:
    """Rows have the action that the policy took, and the reward of the one that arrived, at first the neutral 0."""
    family = family_of(door)
    disturbances = {"disturbances": {"action_delay": delay}}
    config = config_of("PPO", door, family, environment=disturbances, **PPO, **settings)
    if door is Several:
        by_policy(config, only)
    steps = Steps()

    def arrived(step) -> float:
        before = following(step, -delay)
        return steps.actions[before] if before[3] >= 0 else 0.0

    def scaled(step, reward):
        return reward + ACTION_REWARD * (arrived(step) - steps.actions[step])

    for trainer, read, result in trained(config, tmp_path, parts=parts):
        for policy_id, columns in read.learned:
            found = check_rows(columns, family, steps, scaled=scaled)
            check_advantages(columns, found, family, values_of(trainer.get_policy(policy_id)), GAMMA, LAMBDA)
        last = result
    assert steps.check_complete(family, num_open=1) > 5
    check_counters(last, family, Steps(steps.counts, steps.cuts, {step: arrived(step) for step in steps.actions}))


def replayed_rows(tmp_path, algorithm: str, n_step=3, **settings) -> None:
    """Rows of n steps in replays."""
    config = config_of(algorithm, Single, ONE, n_step=n_step, **REPLAYED, **settings)
    steps, stored = Steps(), []
    for trainer, read, _ in trained(config, tmp_path):
        for _, columns in read.stored:
            stored.append(columns)
            if sb.TD_ERRORS in columns:
                given, wanted = np.abs(columns[sb.TD_ERRORS]), q_errors(trainer.get_policy(), columns)
                assert np.allclose(given, wanted, rtol=1e-3, atol=1e-3), f"TD errors {given}, not {wanted}"
    check_stored(stored, ONE, steps, GAMMA, n_step)
    assert steps.check_complete(ONE) > 5


def replayed_box(tmp_path, algorithm="SAC", n_step=1, **settings) -> None:
    """Actions of a Box in a replay."""
    config = config_of(algorithm, Continuous, ONE, n_step=n_step, **REPLAYED, **settings)
    steps, stored = Steps(), []
    for _, read, _ in trained(config, tmp_path):
        stored += [columns for _, columns in read.stored]
    check_stored(
        stored, ONE, steps, GAMMA, n_step, played=squashed if algorithm in ("SAC", "TQC", "CrossQ") else to_box
    )
    assert steps.check_complete(ONE) > 5


# A round takes the fragment of the one worker that answers first, and perhaps late ones of the other.
LATE = {"workers": 2, "quorum": 0.5}

CASES: dict[str, Callable] = {
    "late fragments of PG": functools.partial(newest_steps, algorithm="PG", lambda_=1.0, has_values=False, **LATE),
    "late fragments with a memory": functools.partial(memory, **LATE),
    "late fragments with a memory, of several agents, restored": functools.partial(
        memory, kind="attention", door=Several, parts=2, **LATE
    ),
    "late fragments with costs": functools.partial(costs, **LATE),
    "late fragments with novelty": functools.partial(novelty, **LATE),
    "late fragments with clipped rewards": functools.partial(clipped, **LATE),
    "late fragments with a learned reward beside cloning": functools.partial(
        imitation, bc_coeff=0.5, bc_pretrain_updates=2, **LATE
    ),
    "late fragments with a shaped reward": functools.partial(imitation, algorithm="AIRL", **LATE),
    "newest steps of TRPO": functools.partial(newest_steps, algorithm="TRPO"),
    "newest steps of PG": functools.partial(newest_steps, algorithm="PG", lambda_=1.0, has_values=False),
    "newest steps of APPO": functools.partial(newest_steps, algorithm="APPO"),
    "newest steps of several agents of APPO": functools.partial(newest_steps, algorithm="APPO", door=Several),
    **{f"box of {name}": functools.partial(replayed_box, algorithm=name, n_step=2) for name in ("TQC", "CrossQ")},
    "replays of ApexDQN": functools.partial(replayed_rows, algorithm="ApexDQN", num_replay_buffer_shards=1),
    "policies": policies,
    "policies in replays": functools.partial(policies, algorithm="DQN", n_step=3),
    "policy of an id that is used again": functools.partial(renewed_policy, algorithm="IMPALA"),
    "policy of an id that is used again, sampling ahead": functools.partial(
        renewed_policy, algorithm="DQN", rollouts={"sample_async": True}
    ),
    **{f"{kind} on policy": functools.partial(memory, kind=kind) for kind in MEMORIES},
    "gru of several agents": functools.partial(memory, door=Several),
    "gru and V-trace": functools.partial(memory, algorithm="IMPALA"),
    "gru and V-trace of several agents": functools.partial(memory, algorithm="IMPALA", door=Several),
    "gru, long sequences": functools.partial(memory, max_seq_len=20, fragment=15),
    "gru, short sequences": functools.partial(memory, max_seq_len=2, fragment=9),
    "gru, restored": functools.partial(memory, parts=2),
    "gru of A2C": functools.partial(memory, algorithm="A2C"),
    "previous steps": previous_steps,
    "late observations": late_observations,
    "late observations of several agents": functools.partial(late_observations, door=Several, delay=1),
    "late observations, restored": functools.partial(late_observations, parts=2),
    "late actions": late_actions,
    "late actions of several agents": functools.partial(late_actions, door=Several, delay=1),
    "late actions, restored": functools.partial(late_actions, parts=2),
    "sequences": replayed_sequences,
    "sequences of n steps": functools.partial(replayed_sequences, n_step=3, max_seq_len=4),
    "sequences without states": functools.partial(replayed_sequences, zero_init_states=True, burn_in=0),
    "sequences of several agents": functools.partial(replayed_sequences, door=Several, n_step=2),
    "V-trace": vtrace,
    "V-trace of several agents": functools.partial(vtrace, door=Several),
    "V-trace of APPO": functools.partial(vtrace, algorithm="APPO"),
    **{
        f"{algorithm} without V-trace": functools.partial(vtrace, algorithm=algorithm, vtrace=False, lambda_=LAMBDA)
        for algorithm in ("IMPALA", "APPO")
    },
    "priorities": priorities,
    "priorities of a full replay": functools.partial(priorities, capacity=60, n_step=3),
    "stored replay": stored_replay,
    "filter": filters,
    "filter of 9 environments": functools.partial(filters, envs=9),
    "filter of one environment": functools.partial(filters, envs=1, fragment=60),
    "filter, restored": functools.partial(filters, parts=2),
    "filter of two workers": functools.partial(filters, workers=2),
    "filter of several agents": functools.partial(filters, door=Several, policy_of=even_or_odd),
    "filter of several agents, 9 environments": functools.partial(filters, door=Several, envs=9),
    "signs of rewards": clipped,
    "clipped rewards": functools.partial(clipped, clip=100.0),
    "normalized returns": normalized,
    "normalized returns, restored": functools.partial(normalized, parts=2),
    "costs": costs,
    "costs in a replay": replayed_costs,
    **{f"novelty by {kind}": functools.partial(novelty, kind=kind) for kind in ("RND", "Curiosity")},
    "a learned reward": imitation,
    "a learned reward, without an absorbing state": functools.partial(imitation, absorbing=False),
    "a learned reward of what follows": functools.partial(imitation, discriminator_inputs=["obs", "next_obs"]),
    "a learned reward, restored": functools.partial(imitation, parts=2),
    "a learned reward beside cloning": functools.partial(imitation, bc_coeff=0.5, bc_pretrain_updates=2),
    "a learned reward of a replay": replayed_imitation,
    "a shaped reward": functools.partial(imitation, algorithm="AIRL"),
    "box": box,
    "box and V-trace": functools.partial(box, algorithm="IMPALA"),
    "box of SAC": replayed_box,
    "box of TD3": functools.partial(replayed_box, algorithm="TD3", n_step=3),
    "gru of several agents, with failures": functools.partial(memory, door=Several, fails=True),
    "gru and V-trace of several agents, short fragments": functools.partial(
        memory, algorithm="IMPALA", door=Several, fragment=1, envs=3
    ),
    "attention and V-trace": functools.partial(memory, kind="attention", algorithm="IMPALA"),
    "attention of several agents": functools.partial(memory, kind="attention", door=Several),
    "sequences, with failures": functools.partial(replayed_sequences, fails=True, fragment=1),
    "V-trace of several agents, with failures": functools.partial(vtrace, door=Several, fails=True),
    "signs of rewards of several agents": functools.partial(clipped, door=Several),
    "normalized returns of several agents": functools.partial(normalized, door=Several, fails=True),
    "normalized returns, short fragments": functools.partial(normalized, door=Several, fragment=1),
    "costs, with failures": functools.partial(costs, fails=True, fragment=1, envs=1),
    "novelty, with failures": functools.partial(novelty, fails=True),
    "box, with failures": functools.partial(box, fails=True),
    "filter of several agents, restored": functools.partial(filters, door=Several, envs=9, parts=2),
    "policies, restored": functools.partial(policies, parts=2),
    "policies, short fragments": functools.partial(policies, envs=9, fragment=1),
}


def loops_outside(tmp_path, **case) -> None:
    """Worlds that drive their own loops in threads of the worker."""
    usual = {
        "door": "single",
        "algorithm": "PPO",
        "ends": "flags",
        "batch_mode": "truncate_episodes",
        "fragment": 3,
        "workers": 0,
        "n_step": 1,
        "between": "nothing",
        "loops": 3,
        "places": 2,
        "logs": True,
        "has_untrained": True,
        "asks_for_none": False,
        "errs": False,
    }
    test_external.run(usual | case, tmp_path)


class LoggingNumbers(ExternalSingle):
    """Loops that log numbers of another kind, as clients in JSON do: 1.0 for 1."""

    def log_action(self, episode_id, observation, action):
        super().log_action(episode_id, observation, float(action))


def numbers_of_clients(tmp_path) -> None:
    """Actions of somebody else that are whole numbers of another kind are the same actions."""
    with patch.object(test_external, "ExternalSingle", LoggingNumbers):
        loops_outside(tmp_path, algorithm="DQN", has_untrained=False)


# Cases that the covering arrays have as well; mutations are found by these.
OF_ARRAYS: dict[str, Callable] = {
    "rows": rows,
    "taught agents": functools.partial(rows, door="several", policies="mapped", beta=1.0, answer="arrays"),
    "rows of environments that fail": functools.partial(rows, ends="crashes"),
    "rows of n steps": functools.partial(rows, algorithm="DQN", n_step=3),
    "rows of n steps of environments that fail": functools.partial(rows, algorithm="DQN", n_step=3, ends="crashes"),
    "rows of a replay": functools.partial(rows, algorithm="DQN"),
    "several agents": functools.partial(rows, door="several"),
    "rows of n steps of agents that wait": functools.partial(
        rows, door="several", algorithm="DQN", n_step=5, fragment=1
    ),
    "rows of V-trace": functools.partial(rows, algorithm="IMPALA"),
    "whole episodes": functools.partial(rows, batch_mode="complete_episodes"),
    "whole episodes of several agents": functools.partial(rows, door="several", batch_mode="complete_episodes"),
    "restored": functools.partial(rows, restore=True),
    "vector that resets in the next step": functools.partial(rows, door="vector-next"),
    "vector that resets at once": functools.partial(rows, door="vector-same"),
    "vector that is reset": functools.partial(rows, door="vector-disabled", envs=9),
    "masks in infos": functools.partial(rows, mask="info", actions="multidiscrete"),
    "masks of a vector": functools.partial(rows, door="vector-same", mask="info", algorithm="DQN"),
    "old API": functools.partial(rows, door="legacy"),
    "group": functools.partial(rows, door="groups"),
    "PettingZoo's turns": functools.partial(rows, door="pettingzoo-turns"),
    "PettingZoo's ParallelEnv": functools.partial(rows, door="pettingzoo-parallel"),
    "arrays of several agents": functools.partial(rows, door="dense"),
    "loops outside": loops_outside,
    "loops outside that log 1.0": numbers_of_clients,
    "loops outside, asynchronous": functools.partial(loops_outside, algorithm="IMPALA"),
    "loops outside with a replay": functools.partial(loops_outside, algorithm="DQN"),
    "loops outside, whole episodes": functools.partial(loops_outside, batch_mode="complete_episodes", logs=False),
}
