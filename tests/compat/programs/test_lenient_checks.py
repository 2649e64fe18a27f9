"""Checks of this library that warn in programs for libraries without them: bounds of spaces, names of sections."""

import pytest

ENVIRONMENT = """
    import gymnasium
    import numpy as np

    class Beyond(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
        action_space = gymnasium.spaces.Discrete(2)

        def __init__(self, config=None):
            self.seen = (config or {}).get("seen", 2.0)

        def reset(self, *, seed=None, options=None):
            return np.array([self.seen], np.float32), {}

        def step(self, action):
            return np.array([self.seen], np.float32), 0.0, True, False, {}
"""
RAY = """
    import sys
    from beyond import Beyond
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.env.multi_agent_env import make_multi_agent
    from ray.tune.registry import register_env

    register_env("agents", lambda config: make_multi_agent(Beyond)({"num_agents": 1, **config}))
    config = PPOConfig().environment(sys.argv[1] if len(sys.argv) > 1 else Beyond, env_config={"seen": SEEN})
    if len(sys.argv) > 1:
        config.multi_agent(policies={"p"}, policy_mapping_fn=lambda *args, **kwargs: "p")
    config.env_runners(num_env_runners=1, gym_env_vectorize_mode="MODE").training(train_batch_size=8, minibatch_size=8)
    config.build_algo().train()
    print("trained")
"""
SB3 = """
    from beyond import Beyond
    from stable_baselines3 import PPO

    PPO("MlpPolicy", Beyond(), n_steps=8, batch_size=8).learn(8)
    print("trained")
"""
FILES = {"beyond.py": ENVIRONMENT}


def ray(seen: str = "2.0", mode: str = "sync") -> str:
    return RAY.replace("SEEN", seen).replace("MODE", mode)


def test_the_environment_is_refused_by_the_library_itself(run_program):
    native = ray().replace("ray.rllib.algorithms.ppo", "rllib").replace("ray.rllib.env.multi_agent_env", "rllib.env")
    native = native.replace("ray.tune.registry", "rllib.tune")
    code, _, errors = run_program(native, command=("program.py",), files=FILES)
    assert code == 1 and "observation[0] = 2.0 lies above" in errors


@pytest.mark.parametrize(
    ("program", "module", "arguments"),
    [
        (ray(), "rllib.as_ray", ()),
        (ray(mode="async"), "rllib.as_ray", ()),
        (ray(), "rllib.as_ray", ("agents",)),
        (SB3, "rllib.as_sb3", ()),
    ],
    ids=["ray", "ray_async", "ray_agents", "sb3"],
)
def test_a_program_for_another_library_trains_on_them(run_program, program, module, arguments):
    code, out, errors = run_program(program, *arguments, command=("-m", module, "program.py"), files=FILES)
    assert code == 0 and "trained" in out, errors
    # Vectors of Stable-Baselines3 are not checked in any case.
    assert errors.count("lies above the upper bound 1.0") == (module == "rllib.as_ray"), errors


def test_names_of_sections_are_passed_over_as_ray_does(run_program):
    program = """
    from ray.rllib.algorithms.ppo import PPOConfig
    print(PPOConfig.overrides(exploration=False, explore=False))
    """
    code, out, errors = run_program(program)
    assert code == 0 and out.strip() == "{'explore': False}", errors
    assert errors.count("overrides(exploration=False) has no effect, as in Ray: exploration is a section") == 1
    native = program.replace("ray.rllib.algorithms.ppo", "rllib")
    code, _, errors = run_program(native, command=("program.py",))
    assert code == 1 and "exploration=False must be a dict: exploration is a section" in errors


def test_steps_of_evaluations_are_not_written_which_is_said(run_program):
    program = """
    from ray.rllib.algorithms.ppo import PPOConfig
    config = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=0).offline_data(output="local://steps")
    algo = config.evaluation(evaluation_duration=1).build_algo()
    algo.evaluate()
    algo.evaluate()
    """
    code, _, errors = run_program(program)
    assert code == 0 and errors.count("those of an evaluation are not written") == 1, errors


def test_numbers_that_no_network_can_read_stay_an_error(run_program):
    code, _, errors = run_program(ray("float('nan')"), files=FILES)
    assert code == 1 and "observation[0] is nan" in errors
