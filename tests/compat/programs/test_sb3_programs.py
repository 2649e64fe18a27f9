"""Programs for Stable-Baselines3, run by `python -m rllib.as_sb3` in processes of their own."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples" / "stable_baselines3"
NAMES = ROOT / "tests" / "docs" / "sb3_names.json"


def keys_of_tables(text):
    """Groups and names of each printed table, in their order."""
    tables, rows = [], []
    for line in text.splitlines():
        if re.fullmatch(r"-{9,}", line):
            if rows:
                tables.append(tuple(rows))
            rows = []
        elif found := re.fullmatch(r"\| (\S.*?|   \S.*?) +\| .* \|", line):
            rows.append(found[1].rstrip())
    return tables


def other_lines(text):
    return [line for line in text.splitlines() if line[:1] not in ("|", "-")]


def run_example(name, *arguments, cwd):
    done = subprocess.run(
        [sys.executable, "-m", "rllib.as_sb3", str(EXAMPLES / f"{name}.py"), *arguments],
        cwd=cwd,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(cwd), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


ROLLOUT, OF_SUCCESS = ("rollout/", "   ep_len_mean", "   ep_rew_mean"), ("   success_rate",)
TIME = ("time/", "   fps", "   iterations", "   time_elapsed", "   total_timesteps")
OF_EPISODES = ("time/", "   episodes", "   fps", "   time_elapsed", "   total_timesteps")
TRAIN = ("train/", "   approx_kl", "   clip_fraction", "   clip_range", "   entropy_loss", "   explained_variance",
         "   learning_rate", "   loss", "   n_updates", "   policy_gradient_loss", "   value_loss")  # fmt: skip


def test_ppo_with_processes_and_normalisation(tmp_path):
    out = run_example("ppo_pendulum", "--timesteps", "1024", cwd=tmp_path)
    # Stable-Baselines3 has a free deviation in its own policy, and so has a network with an extractor.
    assert keys_of_tables(out)[-1] == (*ROLLOUT, *TIME, *TRAIN[:-1], "   std", TRAIN[-1])
    assert other_lines(out) == [
        "episodes in files: 4",
        "counted: 1026 observations, 2 environments",
        "evaluated: True True 1024",
    ]


def test_sac_with_hindsight(tmp_path):
    out = run_example("sac_her", "--timesteps", "250", cwd=tmp_path)
    train = "train/", "   actor_loss", "   critic_loss", "   ent_coef", "   ent_coef_loss", "   learning_rate"
    assert keys_of_tables(out)[-1] == (*ROLLOUT, *OF_SUCCESS, *OF_EPISODES, *train, "   n_updates")
    assert other_lines(out) == [
        "NormalActionNoise(mu=[0. 0.], sigma=[0.1 0.1])",
        "action: (2,) float32 None",
        "steps: 250 learned: True",
    ]


def test_callbacks_and_tensorboard(tmp_path):
    out = run_example("callbacks", "--timesteps", "512", cwd=tmp_path)
    evaluated, mine = ("eval/", "   mean_ep_length", "   mean_reward"), ("mine/", "   steps")
    # An evaluation prints what has been recorded, so the round's table does not have it.
    assert keys_of_tables(out)[-2:] == [
        (*evaluated, *mine, "time/", "   total_timesteps", *TRAIN), (*ROLLOUT, *TIME)
    ]  # fmt: skip
    lines = other_lines(out)
    assert lines[0] == "begins at 0 with 2 environments"
    assert [line for line in lines if line.startswith("every")] == [f"every 256 steps: {n}" for n in (256, 512)]
    assert lines[-6:] == [
        "counted 512 steps in 256 calls, episodes: True",
        "best: ['best_model.zip'] log: ['evaluations.npz']",
        "saved: ['ppo_512_steps.zip']",
        "tensorboard: ['mine_1']",
        "monitor: ['0.monitor.csv', '1.monitor.csv']",
        "newest returns: True True",
    ]


def test_load_continue_and_evaluate(tmp_path):
    out = run_example("load_and_continue", "--timesteps", "300", cwd=tmp_path)
    learned = "train/", "   learning_rate", "   loss", "   n_updates"
    assert keys_of_tables(out)[-1] == ("rollout/", "   ep_len_mean", "   ep_rew_mean", "   exploration_rate",
                                       *OF_EPISODES, *learned)  # fmt: skip
    lines = [line for line in other_lines(out) if not line.startswith("Logging to")]
    assert lines[:3] == ["rows: 300 rate: 0.0001 gamma: 0.99", "equal actions: True at step 300",
                         "steps: 600 rows: 600"]  # fmt: skip
    assert "rollout/exploration_rate" in lines[3] and lines[4:] == [
        "evaluated: 3 True",
        "stepped: (1, 4) (1,) bool 1",
    ]


def test_every_public_name_works_or_says_what_to_use(run_program):
    code, out, err = run_program(
        """
        import importlib, json, sys
        from rllib.compat.programs.absent import Absent, NotServedError

        counts = {"works": 0, "says": 0}
        names = json.load(open(sys.argv[1]))["modules"]
        for module, names in names.items():
            path = module if module == "stable_baselines3" else f"stable_baselines3.{module}"
            for name in names:
                value = getattr(importlib.import_module(path), name)
                if not isinstance(value, Absent):
                    assert value.__module__.startswith("rllib"), (path, name)
                    counts["works"] += 1
                    continue
                try:
                    value()
                except NotServedError as error:
                    assert f"{path}.{name} is not here: " in str(error) and len(str(error)) > 80, error
                    counts["says"] += 1
        print(counts["works"], counts["says"])
        """,
        str(NAMES),
        command=("-m", "rllib.as_sb3", "program.py"),
    )
    assert code == 0, err
    assert out.split() == ["136", "11"]


def test_modules_of_all_libraries_and_names_that_are_not_here(run_program):
    code, out, err = run_program(
        """
        import rllib
        import stable_baselines3, sb3_contrib, sbx
        import stable_baselines3.common.vec_env.subproc_vec_env as its
        from stable_baselines3.common.base_class import BaseAlgorithm
        from stable_baselines3.common.vec_env.base_vec_env import VecEnv
        from stable_baselines3.ppo import MlpPolicy, PPO
        from stable_baselines3.sac.policies import MlpPolicy as OfSac
        from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
        from sb3_contrib.common.maskable.utils import get_action_masks
        from rl_zoo3.utils import ALGOS, linear_schedule
        from rl_zoo3.exp_manager import ExperimentManager

        assert PPO is stable_baselines3.PPO is sbx.PPO is ALGOS["ppo"] and issubclass(PPO, (rllib.PPO, BaseAlgorithm))
        assert issubclass(its.SubprocVecEnv, VecEnv) and linear_schedule(2.0)(0.5) == 1.0
        assert issubclass(sb3_contrib.MaskablePPO, PPO) and stable_baselines3.__version__ >= "2"
        for use in (RecurrentActorCriticPolicy, ExperimentManager):
            try:
                use("MlpPolicy", "CartPole-v1")
            except ImportError as error:
                print(error)
        model = PPO(MlpPolicy, "CartPole-v1", n_steps=8, batch_size=8)
        print(model.n_steps, model.batch_size, model.clip_range(1.0), model.lr_schedule(1.0))
        """,
        command=("-c", "import rllib.as_sb3, runpy; runpy.run_path('program.py', run_name='__main__')"),
    )
    assert code == 0, err
    lines = out.splitlines()
    assert "RecurrentActorCriticPolicy is not here: RecurrentPPO takes the policy's name" in lines[0]
    assert "rl_zoo3.exp_manager.ExperimentManager is not here: use rllib train -f FILE" in lines[1]
    assert lines[2] == "8 8 0.2 0.0003"


def test_both_hooks_serve_one_program(run_program):
    code, out, err = run_program(
        """
        import rllib.as_ray, rllib.as_sb3
        import ray
        from stable_baselines3 import PPO
        from stable_baselines3.common.monitor import Monitor

        @ray.remote
        def task():
            from stable_baselines3.common.monitor import Monitor
            return Monitor.__module__, ray.get.__name__

        ray.init(num_cpus=1)
        print(*ray.get(task.remote()))
        """,
        command=("program.py",),
    )
    assert code == 0, err
    assert out.split() == ["rllib.env.vec_env.monitor", "get"]


def test_the_shell(run_program):
    assert run_program("", command=("-m", "rllib.as_sb3"))[0] == 2
    code, out, _ = run_program("", "--help", command=("-m", "rllib.as_sb3"))
    assert code == 0 and "usage: python -m rllib.as_sb3 SCRIPT" in out


@pytest.mark.parametrize(
    ("program", "what"),
    [
        ("PPO(Mine, 'CartPole-v1')", "policy='Mine' is none of"),
        ("SAC('MlpPolicy', 'Pendulum-v1', policy_kwargs={'features_extractor_class': Own})", "PPO, A2C and DQN"),
        ("PPO('MlpPolicy', 'CartPole-v1', nsteps=8)", "Did you mean"),
        ("PPO('MlpPolicy', 'CartPole-v1').learn(8, use_masking=False)", "use_masking"),
        ("PPO('MlpPolicy', 'CartPole-v1').nothing", "nothing"),
        ("PPO('MlpPolicy', 'CartPole-v1').rollout_buffer", "SampleBatch"),
        ("PPO('MlpPolicy', 'CartPole-v1').policy.optimizer", "model.learner"),
        ("SAC('MlpPolicy', 'Pendulum-v1', learning_starts=9).replay_buffer.observations", "size()"),
        ("RolloutBuffer(10, None, None)", "given to a model's constructor"),
    ],
)
def test_what_is_not_here_says_what_to_use(program, what):
    from rllib.compat.programs.sb3.extractors import BaseFeaturesExtractor
    from rllib.compat.programs.sb3.models import PPO, SAC
    from rllib.compat.programs.sb3.tokens import ActorCriticPolicy, RolloutBuffer

    class Mine(ActorCriticPolicy):
        pass

    class Own(BaseFeaturesExtractor):
        pass

    known = {"PPO": PPO, "SAC": SAC, "RolloutBuffer": RolloutBuffer, "Mine": Mine, "Own": Own}
    with pytest.raises((ValueError, TypeError, AttributeError), match=re.escape(what)):
        eval(program, known)
