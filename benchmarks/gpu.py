"""A report in Markdown on this machine's GPU: the checks that need one, and updates beside the eager torch loop.

`make gpu` runs it. One update is that of PPO on Atari: 1,024 rows of 84 x 84 x 4 bytes, the network of the Nature
paper, minibatches of 256, four epochs. Others have two fully connected towers, for choices and for continuous actions
(learner_update.py). SAC and TD3 have 256 x 256 units, and whole runs besides (gpu_control.py). Then comes CartPole
whose rollouts stay on the device. DQN's update draws 512 rows of images from a replay, in memory and on the GPU. Whole
runs of Pong are made where ale-py is installed. A section that has taken --part-seconds makes no further row, and is
printed as soon as it has ended; the checks come last.

The limit of an update is its roofline: the longer of its arithmetic at the rate of a large matrix product in float32,
and of the bytes that it cannot do without at the rate of a large copy, both measured here. These bytes are the rows,
which are read once, and for each weight the ten numbers that two passes, a gradient and Adam read or write; results
between the layers are left out, since they may stay in the caches. Without a GPU the same code runs on smaller CPU
tensors, and the report says so.
"""

import functools
import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import gpu_control
import gymnasium
import numpy as np
import tensor_environments
import torch
from learner_update import EPOCHS, GRAD_CLIP, LR, SETTINGS, Work, categorical, plain_loop
from measure import ROOT, Row, alternate, arguments, machine, table
from ppo_throughput import training_rate
from roofline import BYTES_PER_WEIGHT, Roofline
from tensor_environments import sampling_rate

from rllib import DQNConfig
from rllib import sample_batch as sb
from rllib.algorithms.base.registry import get_algorithm_config
from rllib.learners.learner import make_learner
from rllib.learners.updates.objective import Objective
from rllib.learners.updates.optimizers import OptimizerSettings
from rllib.losses.ppo import PPO_LOSS
from rllib.models.catalog.catalog import policy_spec
from rllib.policy import Policy
from rllib.sample_batch import SampleBatch

IMAGES = gymnasium.spaces.Box(0, 255, (84, 84, 4), np.uint8)
ACTIONS = gymnasium.spaces.Discrete(6)
# Multiplications and additions of a forward pass of the Nature network for one image, biases left out: convolutions of
# 20 x 20 x 32 from 8 x 8 x 4, 9 x 9 x 64 from 4 x 4 x 32, 7 x 7 x 64 from 3 x 3 x 64, then 3136 x 512 and two heads.
FLOP_FORWARD = 2 * (400 * 32 * 256 + 81 * 64 * 512 + 49 * 64 * 576 + 3136 * 512 + 512 * 7)
# What PufferLib has published: training on an RTX 5090, C environments on the CPU; the best of its environments.
PUFFER = "PufferLib 3.0 publishes up to 4,000,000 steps/s in training on one RTX 5090 (https://puffer.ai/blog.html)"
PUFFER_STEPS_PER_S = 4e6


class ImageAgent(torch.nn.Module):
    """The network of the Nature paper with two heads, as everyone writes it."""

    judge = staticmethod(categorical)

    def __init__(self):
        super().__init__()
        conv, linear, relu = torch.nn.Conv2d, torch.nn.Linear, torch.nn.ReLU
        layers = conv(4, 32, 8, 4), relu(), conv(32, 64, 4, 2), relu(), conv(64, 64, 3, 1), relu()
        self.body = torch.nn.Sequential(*layers, torch.nn.Flatten(), linear(3136, 512), relu())
        self.actor, self.critic = linear(512, int(ACTIONS.n)), linear(512, 1)

    def forward(self, images):
        features = self.body(images.permute(0, 3, 1, 2).float() / 255)
        return self.actor(features), self.critic(features)[:, 0]


class ImageWork:
    """A batch of images, and both ways of learning from it: ours and the loop that everyone writes."""

    def __init__(self, device: str, rows: int, minibatch_size: int):
        self.device, self.minibatch_size = device, minibatch_size
        self.steps = EPOCHS * -(-rows // minibatch_size)
        spec = policy_spec(IMAGES, ACTIONS, {"conv_filters": "nature", "vf_share_layers": True})
        self.policy = Policy(spec, rng=np.random.default_rng(0))
        self.first_weights, self.batch = self.policy.weights.copy(), self._sampled(rows)
        size = sum(parameter.numel() for parameter in ImageAgent().parameters())
        assert size == len(self.first_weights), f"the networks differ: {size} and {len(self.first_weights)} weights"

    def _sampled(self, rows: int) -> SampleBatch:
        rng = np.random.default_rng(0)
        images = rng.integers(0, 256, (rows, *IMAGES.shape), dtype=np.uint8)
        dist_inputs, actions = np.empty((rows, int(ACTIONS.n)), np.float32), np.empty(rows, np.int64)
        self.policy.act(images, self.policy.noise(rng, rows), dist_inputs, actions)
        values = self.policy.values(images)
        columns = {
            sb.OBS: images,
            sb.ACTIONS: actions,
            sb.ACTION_DIST_INPUTS: dist_inputs,
            sb.ACTION_LOGP: self.policy.log_prob(dist_inputs, actions),
            sb.VF_PREDS: values,
            sb.ADVANTAGES: rng.standard_normal(rows, dtype=np.float32),
            sb.VALUE_TARGETS: values + rng.standard_normal(rows, dtype=np.float32),
        }
        return SampleBatch(columns)

    def ours(self):
        objective = Objective(PPO_LOSS, optimizer=OptimizerSettings(adam_epsilon=1e-5), grad_clip=GRAD_CLIP)
        learner = make_learner(self.policy, objective, kind="torch", device=self.device)

        def side() -> float:
            self.policy.set_weights(self.first_weights)
            rng, started = np.random.default_rng(1), time.perf_counter()
            learner.update(
                self.batch, num_epochs=EPOCHS, minibatch_size=self.minibatch_size, rng=rng, lr=LR, **SETTINGS
            )
            return (time.perf_counter() - started) * 1e3 / self.steps

        return side

    def plain(self):
        agent = ImageAgent().to(self.device)
        optimizer = torch.optim.Adam(agent.parameters(), lr=LR, eps=1e-5, fused=True)

        def side() -> float:
            rng, started = np.random.default_rng(1), time.perf_counter()
            plain_loop(agent, optimizer, self.batch, self.minibatch_size, rng, self.device)  # ends with a transfer
            return (time.perf_counter() - started) * 1e3 / self.steps

        return side

    def row(self, rounds: int, roofline: Roofline) -> Row:
        """Of the report, per minibatch."""
        found = alternate(rounds, ours=self.ours(), plain=self.plain())
        row_bytes = sum(column.nbytes for column in self.batch.values()) / self.batch.count
        size_bytes = row_bytes * self.minibatch_size + BYTES_PER_WEIGHT * len(self.first_weights)
        what = f"PPO, images, minibatch {self.minibatch_size}"
        return roofline.row(found, 3 * FLOP_FORWARD * self.minibatch_size, size_bytes, what=what, bar="<= 0.5 peer")


class ImageEnv(gpu_control.MadeUpEnv):
    """Images that mean nothing."""

    observation_space, action_space = IMAGES, ACTIONS


class ReplayWork:
    """Double DQN on rows that are drawn from a replay of images: ours, and the loop that everyone writes."""

    def __init__(self, device: str, batch_size: int, capacity: int):
        self.device, self.batch_size, self.capacity = device, batch_size, capacity
        rng = np.random.default_rng(0)
        images = rng.integers(0, 256, (2, capacity, *IMAGES.shape), dtype=np.uint8)
        self.rows = {
            sb.OBS: images[0],
            sb.NEXT_OBS: images[1],
            sb.ACTIONS: rng.integers(0, int(ACTIONS.n), capacity),
            sb.REWARDS: rng.standard_normal(capacity, dtype=np.float32),
            sb.DISCOUNTS: np.full(capacity, 0.99, np.float32),
        }

    def ours(self, storage: str):
        """Milliseconds of an update with the replay in this place."""
        config = DQNConfig().environment(ImageEnv).resources(num_gpus=int(self.device == "cuda"))
        replay = {"type": "ReplayBuffer", "capacity": self.capacity, "storage": storage}
        network = {"dueling": False, "hiddens": [], "model": {"conv_filters": "nature"}}
        config.training(replay_buffer_config=replay, train_batch_size=self.batch_size, learner="torch", **network)
        algo = config.training(num_steps_sampled_before_learning_starts=1).build()
        algo.replay.add(self.rows)

        def side() -> float:
            started = time.perf_counter()
            for _ in range(10):
                algo.trainee.update(lr=1e-4)
            return (time.perf_counter() - started) * 1e2

        return side

    def plain(self):
        """The same of arrays that are sent for each update."""
        online, target = ImageAgent().to(self.device), ImageAgent().to(self.device)
        optimizer = torch.optim.Adam(online.parameters(), lr=1e-4, fused=True)
        rng, names = np.random.default_rng(1), (sb.OBS, sb.NEXT_OBS, sb.ACTIONS, sb.REWARDS, sb.DISCOUNTS)

        def update() -> None:
            drawn = rng.integers(self.capacity, size=self.batch_size)
            obs, following, actions, *numbers = (torch.from_numpy(self.rows[n][drawn]).to(self.device) for n in names)
            with torch.no_grad():
                best = online(following)[0].argmax(1, keepdim=True)
                goals = numbers[0] + numbers[1] * target(following)[0].gather(1, best)[:, 0]
            loss = torch.nn.functional.smooth_l1_loss(online(obs)[0].gather(1, actions[:, None])[:, 0], goals)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(online.parameters(), 40.0)
            optimizer.step()
            loss.item()

        def side() -> float:
            started = time.perf_counter()
            for _ in range(10):
                update()
            return (time.perf_counter() - started) * 1e2

        return side

    def row(self, rounds: int, storage: str, roofline: Roofline) -> Row:
        """Of the report."""
        found = alternate(rounds, ours=self.ours(storage), plain=self.plain())
        row_bytes = sum(column.nbytes for column in self.rows.values()) / self.capacity
        weights = sum(parameter.numel() for parameter in ImageAgent().parameters())
        # Forwards and backwards for the observations; forwards for the next ones, online and by the target network.
        flop, size_bytes = 5 * FLOP_FORWARD * self.batch_size, row_bytes * self.batch_size + BYTES_PER_WEIGHT * weights
        return roofline.row(found, flop, size_bytes, what=f"DQN, images, {self.batch_size} rows, replay in {storage}")


def towers_row(
    what: str, width: int, minibatch_size: int, spaces: tuple, device: str, rounds: int, roofline: Roofline
) -> Row:
    """PPO's update of two fully connected towers, of CartPole's spaces or of these."""
    work = Work(width, minibatch_size, 4, *spaces)
    found = alternate(rounds, ours=work.ours("torch", device), plain=work.plain(device))
    weights, size = len(work.first_weights), work.minibatch_size
    row_bytes = sum(column.nbytes for column in work.batch.values()) / work.batch.count
    size_bytes = row_bytes * size + BYTES_PER_WEIGHT * weights
    what = f"PPO, {what}{work.width}x{work.width}, minibatch {size}"
    return roofline.row(found, 6 * weights * size, size_bytes, what=what, bar="<= 0.5 peer")


def checks() -> str:
    """The last line of pytest on the tests that need a GPU."""
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider", "-rs", "tests"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    lines = [line for line in found.stdout.splitlines() if " passed" in line or " skipped" in line or " failed" in line]
    return f"`pytest -m gpu`: {lines[-1] if lines else found.stderr[-500:]} (exit code {found.returncode})"


def tensor_row(what: str, rate: Callable, device: str, rounds: int, envs: int) -> Row:
    """PPO on CartPole in torch, whose rollouts stay on the device."""
    with tensor_environments.build(envs, device, on_device=True) as algo:
        found = alternate(rounds, ours=lambda: rate(algo, 5))
    peer = {"peer": PUFFER_STEPS_PER_S, "peer_name": "PufferLib"} if what == "training" else {}
    return Row(f"PPO, {envs} environments in torch, {what}", "env steps/s", found.median("ours"), **peer)


def pong_row(name: str, workers: int, envs: int, acts_there: bool) -> Row:
    """A whole run of Pong: steps sampled and trained on, with the workers acting on the CPU or on the GPU."""
    config = get_algorithm_config(name).environment("ALE/Pong-v5")
    fragment = 32 if name == "PPO" else 20
    config.rollouts(num_rollout_workers=workers, num_envs_per_worker=envs, rollout_fragment_length=fragment)
    batch = workers * envs * fragment if name == "PPO" else 4 * envs * fragment
    config.training(train_batch_size=batch, model={"conv_filters": "nature", "vf_share_layers": True})
    if name == "PPO":
        config.training(sgd_minibatch_size=512, num_sgd_iter=4)
    share = 0.5 if acts_there else 1
    config.resources(num_gpus=share, num_gpus_per_worker=(1 - share) / (workers + 1))
    with config.reporting(min_time_s_per_iteration=1).build() as algo:
        training_rate(algo, 5)  # until all workers sample
        rate = training_rate(algo, 12)
    where = "GPU" if acts_there else "CPU"
    return Row(f"{name}, Pong, {workers} x {envs}, workers act on the {where}", "env steps/s", rate)


class Report:
    """Sections of rows, each printed as soon as its rows are there: a run that is cut off leaves what it measured.

    Args:
        place: name of the device.
        part_s: seconds after which a section makes no further row.
        clock: seconds.
    """

    def __init__(self, place: str, part_s: float, clock: Callable[[], float] = time.perf_counter):
        self._place, self._part_s, self._clock = place, part_s, clock

    def section(self, title: str, makers: Sequence[Callable[[], Row]]) -> None:
        """Measures and prints."""
        rows, started = [], self._clock()
        for make in makers:
            if rows and self._clock() - started > self._part_s:
                break
            rows.append(make())
        print(f"## {title} ({self._place})\n\n```")
        table(rows)
        print("```\n")
        for row in rows:
            if row.limit:
                print(f"- {row.what}: {row.limit / row.ours:.1%} of the limit")
        if left := len(makers) - len(rows):
            print(f"- {left} of {len(makers)} rows left out: the section had taken {self._part_s:g} s")
        print(flush=True)


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--no-checks", action="store_true", help="measure only")
    parser.add_argument("--part-seconds", type=float, default=60, help="after which a section makes no further row")
    options = parser.parse_args()
    is_gpu = torch.cuda.is_available()
    device, rounds = "cuda" if is_gpu else "cpu", options.rounds
    print("# GPU report\n")
    print(f"{machine()}\n")
    if is_gpu:
        memory = torch.cuda.get_device_properties(0).total_memory / 2**30
        place = f"{torch.cuda.get_device_name()}, {memory:.0f} GiB, CUDA {torch.version.cuda}"
    else:
        place = "CPU"
        print(f"**No GPU: torch {torch.__version__} finds none. All of this ran on the CPU, on smaller batches.**\n")
    roofline, report = Roofline(device), Report(place, options.part_seconds)
    print(f"Limits: {roofline}\n", flush=True)

    rows, size = (1024, 256) if is_gpu else (64, 32)
    report.section("PPO on images", [lambda: ImageWork(device, rows, size).row(rounds, roofline)])
    towers = {"": [(64, 256), (256, 1024)] if is_gpu else [(64, 256)], "continuous, ": [(64, 64)]}
    spaces = {"": (), "continuous, ": (gpu_control.OBSERVATION, gpu_control.ACTIONS)}
    report.section(
        "PPO with fully connected towers",
        [
            functools.partial(towers_row, what, *each, spaces[what], device, rounds, roofline)
            for what, sizes in towers.items()
            for each in sizes
        ],
    )
    report.section(
        "SAC and TD3",
        [
            *(functools.partial(gpu_control.update_row, name, device, rounds, roofline) for name in gpu_control.EAGER),
            *(functools.partial(gpu_control.run_row, name, device) for name in gpu_control.EAGER),
        ],
    )
    print(f"{gpu_control.LEANRL}.\n")
    envs, rates = 4096 if is_gpu else 64, {"training": training_rate, "sampling": sampling_rate}
    report.section(
        "CartPole on the device",
        [functools.partial(tensor_row, what, rate, device, rounds, envs) for what, rate in rates.items()],
    )
    print(f"{PUFFER}.\n")
    replay = ReplayWork(device, *((512, 20_000) if is_gpu else (32, 200)))
    storages = ("memory", "gpu") if is_gpu else ("memory",)
    report.section("DQN on images", [functools.partial(replay.row, rounds, storage, roofline) for storage in storages])
    if is_gpu and importlib.util.find_spec("ale_py"):
        workers = max(len(os.sched_getaffinity(0)) - 3, 1)
        runs = ("PPO", 8, False), ("PPO", 32, True), ("IMPALA", 32, True), ("APPO", 32, True)
        report.section("Pong", [functools.partial(pong_row, name, workers, *rest) for name, *rest in runs])
    if is_gpu:
        print(f"Largest memory on the device: {torch.cuda.max_memory_allocated() / 2**20:.0f} MiB\n", flush=True)
    if not options.no_checks:
        print(f"{checks()}\n")


if __name__ == "__main__":
    main()
