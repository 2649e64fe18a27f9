"""Faults put in on purpose, to show that the witness sees them.

Each is a function that is called instead of one method or function of the library, with that as its first
argument. It is not a diff, so that it outlives moves of code. `MUTATIONS` has them by name, each with the case
(cases.py) that has to find it.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from unittest.mock import patch

import numpy as np

from rllib import metrics
from rllib import sample_batch as sb
from rllib.algorithms.base.algorithm import Algorithm
from rllib.algorithms.families import q_learning
from rllib.env.disturbances.channel import Channel
from rllib.env.disturbances.disturbed import DisturbedEnv
from rllib.env.episodes import EpisodeTracker
from rllib.env.external import external_env
from rllib.env.external.episodes import OpenEpisode
from rllib.env.factories import masks, previous_steps
from rllib.env.multi_agent.groups import AgentGroups
from rllib.env.multi_agent.pettingzoo_envs import ParallelPettingZooEnv, PettingZooEnv
from rllib.env.multi_agent.stream import AgentStep, MultiAgentStream
from rllib.env.spaces.actions import ActionMapper
from rllib.env.streams.legacy import LegacyEnvironment
from rllib.env.streams.vector import VectorEnvStream
from rllib.evaluation.external.episode import ExternalEpisode
from rllib.evaluation.external.worker import ExternalWorker
from rllib.evaluation.lane import Lane
from rllib.evaluation.multi_agent import recording_lane
from rllib.evaluation.multi_agent.agent_lane import NetworkLane
from rllib.evaluation.multi_agent.dense import DenseSteps
from rllib.evaluation.multi_agent.environment_episode import EnvironmentEpisode
from rllib.evaluation.multi_agent.recording_lane import RecordingLane
from rllib.evaluation.multi_agent.worker import MultiAgentWorker
from rllib.evaluation.postprocess import advantages, cost_advantages, sequences, transitions
from rllib.evaluation.postprocess.fragment import Fragment
from rllib.evaluation.postprocess.return_scale import ReturnScale
from rllib.evaluation.rollout_worker import RolloutWorker
from rllib.evaluation.running_episode import RunningEpisode
from rllib.evaluation.teacher import LaneTeacher
from rllib.evaluation.worker_set import WorkerSet
from rllib.losses import appo, vtrace
from rllib.models.observations import filters
from rllib.policy import Policy
from rllib.replay.priorities import Priorities
from rllib.replay.replay_buffer import ReplayBuffer


@dataclass(frozen=True)
class Mutation:
    """A fault.

    Attributes:
        name: what is wrong.
        owner, attribute: where it is put in: a class or a module, and its method or function.
        act: is called instead, with the original one before the arguments.
        found_by: name of the case that finds it.
    """

    name: str
    owner: object
    attribute: str
    act: Callable
    found_by: str

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Puts the fault in while it is entered."""
        is_static = isinstance(inspect.getattr_static(self.owner, self.attribute), staticmethod)
        original, act = getattr(self.owner, self.attribute), self.act

        def mutated(*arguments, **named):
            return act(original, *arguments, **named)

        with patch.object(self.owner, self.attribute, staticmethod(mutated) if is_static else mutated):
            yield


MUTATIONS: dict[str, Mutation] = {}


def mutates(owner, attribute: str, found_by: str) -> Callable:
    """Makes a mutation of a function."""

    def added(act):
        name = act.__name__
        assert name not in MUTATIONS, name
        MUTATIONS[name] = Mutation(name, owner, attribute, act, found_by)
        return act

    return added


# ------------------------------------------------------------------ rows of one agent


@mutates(advantages, "bootstrap_values", "rows")
def bootstrap_from_the_step_itself(compute, *given, **named):
    values, _ = compute(*given, **named)
    return values, values


@mutates(Fragment, "add_final", "rows")
def bootstrap_from_the_next_episode(_add, *_given): ...


@mutates(Lane, "finish", "rows")
def terminated_written_for_truncated(finish, lane, fragment):
    fragment[sb.TERMINATEDS][:] |= fragment[sb.TRUNCATEDS]
    finish(lane, fragment)


@mutates(DisturbedEnv, "step", "late observations")
def reward_late_with_its_observation(step, env, action):
    observation, reward, *rest = step(env, action)
    env.late, reward = reward, getattr(env, "late", 0.0)
    return observation, reward, *rest


@mutates(Lane, "finish", "rows")
def reward_dropped_at_a_fragments_end(finish, lane, fragment):
    fragment[sb.REWARDS][-1] = 0
    finish(lane, fragment)


@mutates(Lane, "finish", "rows")
def truncation_forgotten(finish, lane, fragment):
    fragment[sb.TRUNCATEDS][:] = False
    finish(lane, fragment)


@mutates(Policy, "log_prob", "rows of V-trace")
def log_probability_of_another_action(compute, policy, dist_inputs, actions):
    return compute(policy, dist_inputs, np.roll(actions, 1, axis=0))


@mutates(advantages, "gae", "rows")
def trace_one_step_too_long(compute, rewards, values, next_values, terminateds, truncateds, gamma, lambda_):
    return compute(rewards, values, next_values, np.roll(terminateds, 1, axis=0), truncateds, gamma, lambda_)


@mutates(Fragment, "to_batch", "rows")
def row_of_a_fragment_twice(make, *given, **named):
    batch = make(*given, **named)
    return batch.rows(np.append(np.arange(len(batch)), 0))


@mutates(RolloutWorker, "_complete", "whole episodes")
def episode_left_in_the_middle(_complete, _worker, fragment, _report):
    return fragment


@mutates(EpisodeTracker, "pop_finished", "rows")
def episode_counted_twice(pop, tracker):
    return [each for episode in pop(tracker) for each in (episode, episode)]


@mutates(EpisodeTracker, "add_fragment", "rows")
def length_of_an_episode_one_too_short(add, tracker, rewards, ended, *more):
    add(tracker, rewards, ended, *more)
    tracker._finished = [replace(each, length=each.length - 1) for each in tracker._finished]


@mutates(EpisodeTracker, "add_fragment", "signs of rewards")
def returns_of_clipped_rewards(add, tracker, rewards, *more):
    add(tracker, np.sign(rewards), *more)


@mutates(Fragment, "to_batch", "rows of environments that fail")
def row_of_a_failed_step(make, fragment, *given, **named):
    fragment.valid = None
    return make(fragment, *given, **named)


@mutates(Fragment, "cut_at_failures", "rows of environments that fail")
def episode_goes_on_after_a_failure(_cut, _fragment): ...


@mutates(ActionMapper, "to_env", "box")
def action_given_in_the_policys_unit(_map, mapper, actions):
    return actions.astype(mapper.space.dtype)


@mutates(Policy, "log_prob", "box and V-trace")
def log_density_in_the_environments_unit(compute, policy, dist_inputs, actions):
    return compute(policy, dist_inputs, actions) - np.float32(np.log(2))


# ------------------------------------------------------------------ vectors, masks, the old API


@mutates(VectorEnvStream, "_drop_reset_rows", "vector that resets in the next step")
def row_of_a_reset_learned(drop, stream, *columns):
    stream._resets_next = None
    drop(stream, *columns)


@mutates(VectorEnvStream, "_start_next", "vector that resets at once")
def final_observation_of_a_vector_lost(_start, _stream, ended, _infos, observations):
    return [(int(index), observations[index].copy()) for index in ended]


@mutates(VectorEnvStream, "_start_next", "vector that is reset")
def final_observation_of_another_environment(start, *given):
    finals = start(*given)
    return [(index, finals[0][1]) for index, _ in finals]


@mutates(masks._MaskedEnv, "_with_mask", "masks in infos")
def mask_of_the_step_before(add, env, *given):
    made = add(env, *given)
    key = env._adapter.mask_key
    before, env.before = getattr(env, "before", made[key]), made[key]
    return made | {key: before}


@mutates(masks._MaskedVector, "_finals", "masks of a vector")
def mask_of_a_final_observation_from_the_next_episode(_make, env, infos):
    finals = np.full(env.num_envs, None, object)
    for index in np.flatnonzero(infos["_final_obs"]):
        finals[index] = env._adapter.added_to(infos["final_obs"][index], infos[env._adapter.mask_key][index])
    return finals


@mutates(LegacyEnvironment, "convert", "old API")
def time_limit_of_the_old_api_forgotten(convert, result):
    *given, terminated, truncated, info = convert(result)
    return *given, terminated or truncated, False, info


# ------------------------------------------------------------------ rows of n steps


@mutates(transitions, "n_step_returns", "rows of n steps")
def sum_of_one_reward_too_many(compute, rewards, terminateds, truncateds, gamma, n_step, valid=None):
    return compute(rewards, terminateds, truncateds, gamma, n_step + 1, valid)


@mutates(transitions, "n_step_returns", "rows of n steps")
def row_across_a_truncation(compute, rewards, terminateds, truncateds, gamma, n_step, valid=None):
    return compute(rewards, terminateds, np.zeros_like(truncateds), gamma, n_step, valid)


@mutates(transitions, "n_step_returns", "rows of n steps of environments that fail")
def row_across_a_failed_step(compute, rewards, terminateds, truncateds, gamma, n_step, valid=None):
    return compute(rewards, terminateds, truncateds, gamma, n_step)


@mutates(transitions.NStepRows, "_completed", "rows of n steps")
def steps_kept_for_the_next_fragment_lost(complete, rows, fragment):
    rows._kept = {}
    return complete(rows, fragment)


@mutates(transitions.Transitions, "__call__", "rows of a replay")
def discount_zero_at_a_truncation(fill, postprocess, fragment, policy):
    fill(postprocess, fragment, policy)
    fragment[sb.DISCOUNTS][fragment[sb.TRUNCATEDS]] = 0


@mutates(transitions.Transitions, "__call__", "rows of a replay")
def next_observation_of_the_next_episode(fill, postprocess, fragment, policy):
    fill(postprocess, fragment, policy)
    fragment[sb.NEXT_OBS][:] = fragment.observations[1:]


@mutates(transitions.NStepRows, "_completed", "costs in a replay")
def costs_discounted_like_rewards(complete, rows, fragment):
    costs = replace(rows._settings.costs, gamma=rows._settings.gamma)
    rows._settings = replace(rows._settings, costs=costs)
    return complete(rows, fragment)


# ------------------------------------------------------------------ several agents


@mutates(RecordingLane, "_store_closed", "several agents")
def rewards_of_two_agents_swapped(store, slots):
    rows, own, rewards = slots._closed
    slots._closed = rows, own, rewards[::-1]
    store(slots)


@mutates(RunningEpisode, "policy_for", "policies")
def rows_of_an_agent_for_another_policy(choose, episode, agent):
    return {"even": "odd", "odd": "even"}[choose(episode, agent)] if agent == 2 else choose(episode, agent)


@mutates(RecordingLane, "_carry", "several agents")
def step_of_a_waiting_agent_lost(_carry, _slots, _is_carried, _open_slots):
    return recording_lane._NOTHING


@mutates(EnvironmentEpisode, "_close_last", "several agents")
def reward_of_a_death_lost(close, episode, slot, observations, terminated, truncated):
    if terminated:
        slot.reward = 0.0
    close(episode, slot, observations, terminated, truncated)


@mutates(EnvironmentEpisode, "_add_rewards", "several agents")
def late_reward_lost(add, episode, rewards):
    acting = {slot.agent for slot in episode._acting}
    add(episode, {agent: reward for agent, reward in rewards.items() if agent in acting})


@mutates(EnvironmentEpisode, "_add_rewards", "several agents")
def reward_before_the_first_observation_lost(add, episode, rewards):
    add(episode, {agent: reward for agent, reward in rewards.items() if agent in episode.running.slots})


@mutates(EnvironmentEpisode, "_close_last", "several agents")
def row_of_an_agent_that_saw_no_end(close, episode, slot, observations, terminated, truncated):
    close(episode, slot, {slot.agent: np.zeros(10, np.float32)} | dict(observations), terminated, truncated)


@mutates(EnvironmentEpisode, "_close_last", "several agents")
def death_written_as_truncation(close, episode, slot, observations, terminated, truncated):
    is_alone = terminated and len(episode.living) > 1 and slot.agent in observations
    close(episode, slot, observations, terminated and not is_alone, truncated or is_alone)


@mutates(MultiAgentWorker, "_report_steps", "policies")
def steps_counted_for_another_agent(report_steps, report, counts):
    report_steps(report, [{(0, policy): count for (_, policy), count in counted.items()} for counted in counts])


@mutates(transitions, "_moved_up", "rows of n steps of agents that wait")
def row_across_episodes_of_a_waiting_agent(_move, steps, _num_kept, _starts):
    return steps


@mutates(transitions.NStepRows, "cut", "rows of n steps of agents that wait")
def rows_not_cut_before_a_dropped_step(_cut, _rows, _environments): ...


@mutates(MultiAgentWorker, "_complete", "whole episodes of several agents")
def episode_of_several_left_in_the_middle(_complete, *_given): ...


@mutates(Fragment, "keep", "several agents")
def newest_observation_of_another_slot(keep, fragment, is_row, newest):
    keep(fragment, is_row, newest | {sb.OBS: np.roll(newest[sb.OBS], 1, axis=0)})


@mutates(RecordingLane, "go_on", "several agents")
def rewards_of_another_agent_where_all_go_on(go_on, lane, slots, rewards, observations):
    go_on(lane, slots, rewards[1:] + rewards[:1], observations)


@mutates(MultiAgentStream, "quick_step", "several agents")
def ends_of_an_agent_not_noticed(quick_step, stream, index, actions):
    step = quick_step(stream, index, actions)
    if type(step) is AgentStep and step.has_ends and not step.is_over:
        return step._replace(has_ends=False)
    return step


@mutates(RecordingLane, "keep_final", "several agents")
def final_observation_of_an_agent_lost(_keep, _slots, _slot, _observation): ...


# ------------------------------------------------------------------ groups, PettingZoo, simulators of several agents


@mutates(AgentGroups, "_of_members", "group")
def members_in_another_order(take, *given):
    return take(*given)[::-1]


@mutates(AgentGroups, "split", "group")
def actions_of_another_member(split, *given):
    actions = split(*given)
    return dict(zip(actions, reversed(actions.values())))


@mutates(PettingZooEnv, "step", "PettingZoo's turns")
def reward_of_an_agent_that_has_ended_lost(step, env, action_dict):
    observations, rewards, terminateds, truncateds, infos = step(env, action_dict)
    ended = {agent for flags in (terminateds, truncateds) for agent, flag in flags.items() if flag}
    rewards = {agent: reward for agent, reward in rewards.items() if agent not in ended}
    return observations, rewards, terminateds, truncateds, infos


@mutates(ParallelPettingZooEnv, "step", "PettingZoo's ParallelEnv")
def final_observation_of_an_ended_agent_lost(step, env, action_dict):
    observations, *rest = step(env, action_dict)
    return {agent: seen for agent, seen in observations.items() if agent in env.agents}, *rest


@mutates(DenseSteps, "_actions", "arrays of several agents")
def actions_of_another_environment(make, steps):
    return np.roll(make(steps), 1, axis=0)


@mutates(DenseSteps, "_end", "arrays of several agents")
def return_goes_on_in_the_next_episode(end, steps, index):
    total = steps._returns[index].copy()
    ended = end(steps, index)
    steps._returns[index] = total
    return ended


# ------------------------------------------------------------------ clients and loops outside


@mutates(ExternalWorker, "_begin", "loops outside, asynchronous")
def rows_lost_when_another_client_arrives(begin, worker, turn, begins):
    place = begin(worker, turn, begins)
    if place is not None:
        for lane in worker.lanes.values():
            lane._closed = tuple(column[:1] for column in lane._closed)
    return place


@mutates(ExternalWorker, "_joined", "loops outside")
def step_of_a_client_twice(join, worker, batches, report):
    twice = {name: batch.rows(np.append(np.arange(len(batch)), 0)) for name, batch in batches.items()}
    return join(worker, twice, report)


@mutates(ExternalEpisode, "begin", "loops outside")
def episode_that_is_not_to_be_learned_from(begin, episode, trains, rewards):
    begin(episode, True, rewards)


@mutates(ExternalEpisode, "acted", "loops outside")
def step_of_somebody_else_learned_from(acted, episode, given, drops):
    acted(episode, given, False)


@mutates(ExternalWorker, "_log", "loops outside with a replay")
def own_action_written_for_a_logged_one(_log, *_given): ...


@mutates(ExternalEpisode, "begin", "loops outside")
def reward_before_the_first_action_lost(begin, episode, trains, rewards):
    begin(episode, trains, {})


@mutates(OpenEpisode, "add_rewards", "loops outside")
def first_part_of_a_reward_lost(add, episode, rewards, infos):
    episode.rewards = {agent: reward for agent, reward in episode.rewards.items() if agent not in rewards}
    add(episode, rewards, infos)


@mutates(external_env.ExternalEnv, "_end", "loops outside")
def end_of_a_client_told_as_termination(end, env, episode_id, observations, truncated):
    end(env, episode_id, observations, False)


@mutates(ExternalEpisode, "carry", "loops outside, whole episodes")
def rows_of_a_running_episode_given_away(_carry, _episode): ...


# ------------------------------------------------------------------ sequences and memories


@mutates(Fragment, "forget", "gru on policy")
def state_not_reset(_forget, *_given): ...


@mutates(Fragment, "_sequences", "gru and V-trace")
def state_of_the_step_before(make, fragment, *given):
    columns = make(fragment, *given)
    return columns | {sb.STATE_IN: np.roll(columns[sb.STATE_IN], 1, axis=0)}


@mutates(Fragment, "_sequences", "gru on policy")
def sequence_one_step_too_long(make, fragment, source, final, max_seq_len):
    return make(fragment, source, final, max_seq_len + 1)


@mutates(Fragment, "_sequences", "gru on policy")
def sequence_across_an_end(make, fragment, *given):
    kept = {name: fragment[name].copy() for name in (sb.TERMINATEDS, sb.TRUNCATEDS)}
    for name in kept:
        fragment[name][:] = False
    columns = make(fragment, *given)
    for name, column in kept.items():
        fragment[name][:] = column
    return columns


@mutates(Fragment, "to_sequences", "gru and V-trace")
def mask_shifted(make, fragment, *given, **named):
    batch = make(fragment, *given, **named)
    batch[sb.LOSS_MASK] = np.roll(batch[sb.LOSS_MASK], 1)
    return batch


@mutates(NetworkLane, "begin_episode", "gru of several agents")
def state_of_the_agent_before(_begin, _slots, _slot): ...


@mutates(RecordingLane, "_carry", "gru of several agents")
def state_of_a_waiting_agent_lost(carry, slots, *given):
    carried = carry(slots, *given)
    return replace(carried, columns={**carried.columns, sb.STATE_IN: 0})


@mutates(sequences._Sequence, "next", "sequences")
def burn_in_forgotten(_next, sequence):
    return sequences._Sequence(sequence._settings)


@mutates(sequences.SequenceRows, "_rows", "sequences")
def state_of_a_replayed_sequence_lost(make, rows, complete):
    columns = make(rows, complete)
    columns[sb.STATE_IN][:] = 0
    return columns


@mutates(sequences.SequenceRows, "_rows", "sequences")
def padding_learned_from(make, rows, complete):
    columns = make(rows, complete)
    columns[sb.SEQ_LENS] += columns[sb.SEQ_LENS] < 3
    return columns


@mutates(previous_steps._PreviousStepEnv, "reset", "previous steps")
def previous_step_not_reset(reset, env, **named):
    observation, info = reset(env, **named)
    return observation | {"prev_rewards": np.ones(1, np.float32)}, info


# ------------------------------------------------------------------ V-trace


@mutates(vtrace, "vtrace", "V-trace")
def trace_across_an_end(compute, log_rho, discounts, rewards, values, next_values, cut, **named):
    return compute(log_rho, discounts, rewards, values, next_values, np.zeros_like(cut), **named)


@mutates(vtrace, "clipped_ratio", "V-trace")
def ratio_not_clipped(_clip, log_rho, _bar):
    return np.exp(log_rho)


@mutates(vtrace, "shifted", "V-trace")
def next_value_of_two_steps_later(shift, column):
    return shift(shift(column)) if column.dtype == np.float32 else shift(column)


@mutates(vtrace, "gae", "APPO without V-trace")
def lambda_forgotten(compute, rewards, values, next_values, terminated, cut, gamma, _lambda):
    return compute(rewards, values, next_values, terminated, cut, gamma, 1.0)


@mutates(appo, "vtrace_of_rows", "APPO without V-trace")
def ratios_of_one_for_none(compute, log_rho, values, minibatch, **settings):
    return compute(np.zeros_like(values) if log_rho is None else log_rho, values, minibatch, **settings)


# ------------------------------------------------------------------ replays


@mutates(ReplayBuffer, "update_priorities", "priorities")
def priorities_one_row_off(update, replay, indexes, td_errors):
    update(replay, indexes, np.roll(td_errors, 1))


@mutates(Priorities, "sample", "priorities")
def weights_not_normalised(sample, priorities, count, rng, beta):
    rows, weights = sample(priorities, count, rng, beta)
    return rows, weights * 2


@mutates(Priorities, "add", "priorities")
def new_rows_without_the_largest_priority(add, priorities, start, count, td_errors=None):
    add(priorities, start, count, np.full(count, 0.5) if td_errors is None else td_errors)


@mutates(q_learning.QTrainee, "learn_from", "priorities")
def errors_of_other_rows(learn, algorithm, *given, **named):
    stats = learn(algorithm, *given, **named)
    return stats | {"td_error": stats["td_error"][::-1]}


@mutates(ReplayBuffer, "sample", "priorities of a full replay")
def numbers_of_overwritten_rows(sample, replay, *given):
    batch = sample(replay, *given)
    return type(batch)(batch | {sb.INDICES: np.maximum(batch[sb.INDICES] - replay.capacity, 0)})


# ------------------------------------------------------------------ filters and scales


@mutates(filters.MeanStdFilter, "_note", "filter")
def filter_counts_twice(note, own, rows, environments):
    note(own, rows, environments)
    note(own, rows, environments)


@mutates(filters.MeanStdFilter, "__call__", "filter")
def final_observations_counted(act, own, observations, out=None, *, update=False, environments=None):
    return act(own, observations, out, update=True, environments=environments)


@mutates(filters, "merge_rows", "filter of 9 environments")
def observations_of_one_environment_lost(merge, moments, rows):
    merge(moments, {name: column[:-1] for name, column in rows.items()})


@mutates(RecordingLane, "_filter", "filter of several agents")
def observations_of_agents_not_counted(_filter, slots, received, out, _slots):
    slots.policy.filter(received, out=out, update=len(received) == slots.num_slots)


@mutates(ReturnScale, "_count", "normalized returns")
def return_goes_on_after_an_end(count, scale, rewards, ended, valid, starts):
    return count(scale, rewards, np.zeros_like(ended), valid, starts)


@mutates(Algorithm, "_take_in", "normalized returns")
def deltas_merged_twice(take_in, algorithm, report, *batch):
    take_in(algorithm, report, *batch)
    for policy_id, delta in report.return_deltas.items():
        algorithm.trainees[policy_id].return_scale.merge(delta)


@mutates(WorkerSet, "_sample_quorum", "late fragments of PG")
def late_fragments_lost(sample, workers, snapshots):
    return [(batch, report) for batch, report in sample(workers, snapshots) if not report.rounds_late]


@mutates(WorkerSet, "_sample_quorum", "late fragments with a memory")
def late_fragments_taken_twice(sample, workers, snapshots):
    return [each for each in sample(workers, snapshots) for _ in range(1 + (each[1].rounds_late > 0))]


@mutates(Channel, "played", "late actions")
def actions_arrive_a_step_too_late(played, channel, action):
    before = channel.__dict__.setdefault("before", [channel._neutral])
    before.append(played(channel, action))
    return before[-2]


@mutates(Algorithm, "_removed_since", "policy of an id that is used again, sampling ahead")
def rows_of_a_removed_policy_kept(_removed_since, _algorithm, _report):
    return []


@mutates(cost_advantages, "gae", "costs")
def costs_discounted_by_the_gamma_of_rewards(compute, *given):
    *columns, gamma, lambda_ = given
    return compute(*columns, np.full_like(gamma, gamma[0]), lambda_)


# ------------------------------------------------------------------ restarts


@mutates(Policy, "set_state", "filter, restored")
def filter_lost_at_restore(restore, policy, state):
    own = {f"filter.{name}": value for name, value in policy.filter.get_state().items()}
    restore(policy, {**state, **own})


@mutates(ReplayBuffer, "set_state", "stored replay")
def replay_lost_at_restore(_restore, _replay, _state): ...


@mutates(metrics.Metrics, "set_state", "restored")
def steps_counted_twice_after_a_restore(restore, own, state):
    counters = state["counters"]
    restore(own, {**state, "counters": counters | {"num_env_steps_sampled": 2 * counters["num_env_steps_sampled"]}})


@mutates(metrics.Metrics, "set_state", "restored")
def episodes_forgotten_at_restore(restore, own, state):
    restore(own, {**state, "episodes_total": 0})


@mutates(ReturnScale, "set_state", "normalized returns, restored")
def scale_of_rewards_lost_at_restore(restore, scale, state):
    restore(scale, {name: np.zeros_like(value) for name, value in state.items()})


@mutates(Algorithm, "set_state", "restored")
def restored_worker_begins_in_the_middle(restore, algorithm, state):
    restore(algorithm, state)
    stream = algorithm.workers.local_worker().stream
    first = stream._envs[0]
    reset = first.reset

    def reset_and_step(**named):
        reset(**named)
        observation, *_, info = first.step(0)
        return observation, info

    first.reset = reset_and_step


# ------------------------------------------------------------------ teachers


@mutates(LaneTeacher, "teach", "taught agents")
def labels_of_the_step_before(teach, teacher, step, given, *more):
    teacher.before, late = given.copy(), getattr(teacher, "before", given)
    teach(teacher, step, late, *more)


@mutates(LaneTeacher, "teach", "taught agents")
def labels_of_other_slots(teach, teacher, step, given, seen, actions, labels, inputs, acting=None):
    teach(teacher, step, given, seen, actions, labels, inputs, acting)
    labels[:] = np.roll(labels, 1, axis=0)


@mutates(LaneTeacher, "_drawn_turns", "taught agents")
def nobody_takes_a_turn(_draw, *_given): ...


@mutates(RecordingLane, "_carry", "taught agents")
def labels_lost_with_rows_that_go_on(carry, lane, *given):
    carried = carry(lane, *given)
    carried.columns.pop(sb.TEACHER_ACTIONS, None)
    return carried
