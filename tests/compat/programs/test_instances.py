"""Objects of hooks and workers as instances of Ray's classes, and by the names that those have."""

import pytest

from rllib import DefaultCallbacks, PPOConfig
from rllib.compat.programs.absent import absent
from rllib.env.tasks.multi_agent_cartpole import MultiAgentCartPole

SEVERAL = pytest.mark.parametrize("has_several", [False, True], ids=["one agent", "several agents"])
# Class of Ray -> its objects are those of: one agent, several agents.
CLASSES = {
    "env.single_agent_episode.SingleAgentEpisode": ("episode", (True, False)),
    "env.multi_agent_episode.MultiAgentEpisode": ("episode", (False, True)),
    "env.env_runner.EnvRunner": ("env_runner", (True, True)),
    "env.single_agent_env_runner.SingleAgentEnvRunner": ("env_runner", (True, False)),
    "env.multi_agent_env_runner.MultiAgentEnvRunner": ("env_runner", (False, True)),
    "core.rl_module.multi_rl_module.MultiRLModule": ("rl_module", (False, True)),
}


def build(has_several: bool, **settings):
    config = PPOConfig().rollouts(num_rollout_workers=0, rollout_fragment_length="auto", **settings)
    config.training(train_batch_size=200, sgd_minibatch_size=200, num_sgd_iter=1, model={"fcnet_hiddens": [4]})
    config.debugging(seed=0)
    if has_several:
        config.environment(MultiAgentCartPole, env_config={"num_agents": 2})
        config.multi_agent(policies={"p0", "p1"}, policy_mapping_fn=lambda agent, *args, **kwargs: f"p{agent}")
    else:
        config.environment("CartPole-v1")
    return config


@SEVERAL
def test_objects_of_hooks_are_instances_of_rays_classes(has_several):
    found = {}

    class Asks(DefaultCallbacks):
        def on_episode_end(self, *, episode, env_runner, rl_module, **kwargs):
            given = {"episode": episode, "env_runner": env_runner, "rl_module": rl_module}
            for path, (argument, _) in CLASSES.items():
                found[path] = isinstance(given[argument], absent(f"ray.rllib.{path}"))
            # Of other classes, and where a name is another package's, nothing is an instance.
            others = absent("ray.rllib.env.vector_env.VectorEnv"), absent("ray.data.SingleAgentEpisode")
            found["none"] = isinstance(episode, others)

    with build(has_several).callbacks(Asks).build() as algo:
        algo.train()
    assert found == {path: expected[has_several] for path, (_, expected) in CLASSES.items()} | {"none": False}


def test_agents_have_episodes_of_their_own():
    ends = []

    class Reads(DefaultCallbacks):
        def on_episode_end(self, *, episode, env_runner, **kwargs):
            assert episode.t == episode.env_t == len(episode) and episode.t_started == 0
            assert episode.agent_ids == set(episode.agent_episodes) == {0, 1}
            for agent, own in episode.agent_episodes.items():
                assert (own.agent_id, own.module_id, own.is_done) == (agent, f"p{agent}", True)
                assert own.get_return() == sum(own.get_rewards()) == len(own) == len(own.get_observations()) - 1
                assert own.get_actions(-1) in (0, 1) and own.get_observations([0, -1])[1].shape == (4,)
            ends.append(episode)

    with build(True).callbacks(Reads).build() as algo:
        algo.train()
    assert ends


@pytest.mark.parametrize("num_workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_workers_have_the_names_of_rays_env_runners(num_workers):
    """`foreach_env_runner` and hooks give them as `algo.env_runner` is, in every process."""

    def change(env_runner, gravity):
        env_runner.env.unwrapped.set_attr("gravity", gravity)
        assert [env.unwrapped.gravity for env in env_runner.env.unwrapped.envs] == [gravity] * env_runner.num_envs
        space = env_runner.env.single_observation_space
        return (
            env_runner.env.get_attr("gravity"),
            env_runner.worker_index,
            space.shape,
            len(env_runner.env.call("close")),
        )

    config = build(False, num_envs_per_worker=2).rollouts(num_rollout_workers=num_workers)
    with config.build() as algo:
        answers = algo.env_runner_group.foreach_env_runner(change, kwargs={"gravity": 5.0})
        assert answers == [((5.0, 5.0), num_workers, (4,), 2)]
        with pytest.raises(Exception, match="env_task_fn"):
            algo.env_runner_group.foreach_env_runner("make_env")


def test_a_worker_refuses_rays_arguments_of_sample():
    with build(False).build() as algo, pytest.raises(TypeError, match="num_episodes=2"):
        algo.env_runner.sample(num_episodes=2)
