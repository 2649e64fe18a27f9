"""Milliseconds of one PPO minibatch, all of it: rows gathered, forward, loss, backward, clipping, Adam.

Ours is the numpy learner, and below it our torch learner. The limit is what the matrix products alone take. The peer
is the loop that everyone writes: torch modules, a hand-written loss on shuffled rows, clip_grad_norm_, fused Adam. It
computes the same update: the script compares the weights. With CUDA, our torch learner stands beside that loop there.

Below: the products of such a step in GFLOP/s, over the time of the whole step, beside one large product on the same
core; and two learners beside one, the batch sent and the weights returned with each update.
"""

import math
import time

import gymnasium
import numpy as np
import torch
from measure import Rounds, Row, alternate, arguments, machine, table

from rllib import sample_batch as sb
from rllib.learners.learner import make_learner
from rllib.learners.updates.objective import Objective
from rllib.learners.updates.optimizers import OptimizerSettings
from rllib.losses.ppo import PPO_LOSS
from rllib.models.catalog.catalog import policy_spec
from rllib.policy import Policy
from rllib.sample_batch import SampleBatch

OBSERVATION = gymnasium.spaces.Box(-np.inf, np.inf, (4,))
ACTIONS = gymnasium.spaces.Discrete(2)
SETTINGS = {"clip_param": 0.2, "kl_coeff": 0.2, "vf_loss_coeff": 0.5, "entropy_coeff": 0.01, "vf_clip_param": 10.0}
LR = 3e-4
GRAD_CLIP = 0.5
EPOCHS = 4
LARGE = 1024  # rows and columns of the product that shows what a core can do


class Work:
    """A policy, a batch that it sampled, and every way of updating the one with the other.

    Args:
        width: of two hidden layers in each of two towers.
        minibatch_size, minibatches: rows of a step, and steps of an epoch.
        observation, actions: spaces; normal distributions of continuous actions have deviations that are parameters.
    """

    def __init__(self, width: int, minibatch_size: int, minibatches: int, observation=OBSERVATION, actions=ACTIONS):
        self.width = width
        self.minibatch_size = minibatch_size
        model = {"fcnet_hiddens": [width, width], "vf_share_layers": False}
        model |= {"free_log_std": isinstance(actions, gymnasium.spaces.Box)}
        spec = policy_spec(observation, actions, model)
        self.policy = Policy(spec, rng=np.random.default_rng(0))
        self.first_weights = self.policy.weights.copy()
        self.observation, self.actions = observation, actions
        self.batch = sampled(self.policy, observation, actions, minibatch_size * minibatches)
        self.steps = EPOCHS * minibatches

    def ours(self, kind: str, device: str = "cpu"):
        """A side of `alternate`: our learner."""
        objective = Objective(PPO_LOSS, optimizer=OptimizerSettings(adam_epsilon=1e-5), grad_clip=GRAD_CLIP)
        learner = make_learner(self.policy, objective, kind=kind, device=device)
        return self._update(learner)

    def _update(self, learner):
        def side() -> float:
            learner.policy.set_weights(self.first_weights)
            rng = np.random.default_rng(1)
            started = time.perf_counter()
            learner.update(
                self.batch, num_epochs=EPOCHS, minibatch_size=self.minibatch_size, rng=rng, lr=LR, **SETTINGS
            )
            return (time.perf_counter() - started) * 1e3 / self.steps

        return side

    def plain(self, device: str = "cpu"):
        """A side of `alternate`: the plain PyTorch loop."""
        agent = Agent(self, device)
        optimizer = torch.optim.Adam(agent.parameters(), lr=LR, eps=1e-5, fused=True)

        def side() -> float:
            agent.load(self.policy, self.first_weights)
            rng = np.random.default_rng(1)
            started = time.perf_counter()
            plain_loop(agent, optimizer, self.batch, self.minibatch_size, rng, device)
            return (time.perf_counter() - started) * 1e3 / self.steps

        return side

    def group(self, learners: int):
        """A side of `alternate`: the learner of an algorithm with this number of processes, and the algorithm."""
        from rllib import PPOConfig

        model = {"fcnet_hiddens": [self.width, self.width]}
        config = PPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=0).training(model=model)
        algo = config.learners(num_learners=learners).build()
        return self._update(algo.learner), algo

    def products(self):
        """A side of `alternate`: the matrix products of forward and backward, on arrays that fit as they are."""
        work = self._products()

        def side() -> float:
            started = time.perf_counter()
            for _ in range(self.steps):
                for a, b, out in work:
                    np.matmul(a, b, out=out)
            return (time.perf_counter() - started) * 1e3 / self.steps

        return side

    def gflop(self) -> float:
        """Multiplications and additions of those products, in 1e9."""
        return sum(2 * out.size * a.shape[-1] for a, _, out in self._products()) / 1e9

    def _products(self) -> list[tuple]:
        """Factors and results."""
        rows, width, inputs, outputs = self.minibatch_size, self.width, 5, 2
        one = lambda *shape: np.ones(shape, np.float32)  # noqa: E731
        x, h, d = one(rows, inputs), one(2, width + 1, rows), one(2, width, rows)
        first, second, head = one(inputs, 2 * width), one(2, width + 1, width), one(width + 1, outputs)
        d_outputs = one(outputs, rows)
        pairs = [
            (first.T, x.T),
            (second.swapaxes(1, 2), h),
            (head.T, h[0]),
            (head[:, :1].T, h[1]),
            (h[0], d_outputs.T),
            (h[1], d_outputs[:1].T),
            (head[:-1], d_outputs),
            (head[:-1, :1], d_outputs[:1]),
            (h, d.swapaxes(1, 2)),
            (second[:, :-1], d),
            (x.T, d.reshape(2 * width, rows).T),
        ]
        return [(a, b, np.matmul(a, b)) for a, b in pairs]

    def check(self) -> float:
        """The largest difference of a weight after an update by the numpy learner and one by the plain loop."""
        self.ours("numpy")()
        ours = self.policy.weights.copy()
        agent = Agent(self, "cpu")
        agent.load(self.policy, self.first_weights)
        optimizer = torch.optim.Adam(agent.parameters(), lr=LR, eps=1e-5, fused=True)
        plain_loop(agent, optimizer, self.batch, self.minibatch_size, np.random.default_rng(1), "cpu")
        agent.store(self.policy)
        return float(abs(self.policy.weights - ours).max())


def sampled(policy: Policy, observation, space, rows: int) -> SampleBatch:
    """Rows that this very policy acted in, with made-up advantages and targets."""
    rng = np.random.default_rng(0)
    observations = rng.standard_normal((rows, *observation.shape), dtype=np.float32)
    dist_inputs = np.empty((rows, policy.distribution.num_inputs), np.float32)
    actions = np.empty((rows, *space.shape), space.dtype)
    policy.act(observations, policy.noise(rng, rows), dist_inputs, actions)
    values = policy.values(observations)
    return SampleBatch(
        {
            sb.OBS: observations,
            sb.ACTIONS: actions,
            sb.ACTION_DIST_INPUTS: dist_inputs,
            sb.ACTION_LOGP: policy.log_prob(dist_inputs, actions),
            sb.VF_PREDS: values,
            sb.ADVANTAGES: rng.standard_normal(rows, dtype=np.float32),
            sb.VALUE_TARGETS: values + rng.standard_normal(rows, dtype=np.float32),
        }
    )


class Agent(torch.nn.Module):
    """Two towers, as everyone writes them."""

    def __init__(self, work: Work, device: str):
        super().__init__()
        widths, (inputs,) = work.policy.spec.hiddens, work.observation.shape
        self.log_std = None
        if is_normal := isinstance(work.actions, gymnasium.spaces.Box):
            self.log_std = torch.nn.Parameter(torch.zeros(work.actions.shape, device=device))
        outputs = work.policy.distribution.num_inputs // (2 if is_normal else 1)
        towers = {"policy": _tower(inputs, widths, outputs), "value": _tower(inputs, widths, 1)}
        self.towers = torch.nn.ModuleDict(towers).to(device)
        self.judge = normal if is_normal else categorical

    def forward(self, observations):
        outputs = self.towers["policy"](observations)
        if self.log_std is not None:
            outputs = torch.cat([outputs, self.log_std.expand_as(outputs)], -1)
        return outputs, self.towers["value"](observations)[:, 0]

    def _pairs(self, policy: Policy):
        named = policy.parameters()
        for name, tower in self.towers.items():
            linears = [layer for layer in tower if isinstance(layer, torch.nn.Linear)]
            for index, linear in enumerate(linears):
                where = f"{name}.hidden_{index}" if index < len(linears) - 1 else f"{name}.head"
                yield linear.weight, named[f"{where}.weight"]
                yield linear.bias, named[f"{where}.bias"]
        if self.log_std is not None:
            yield self.log_std, named["policy.log_std"]

    @torch.no_grad()
    def load(self, policy: Policy, weights: np.ndarray) -> None:
        """Takes over a policy's parameters."""
        policy.set_weights(weights)
        for ours, theirs in self._pairs(policy):
            ours.copy_(torch.from_numpy(np.ascontiguousarray(theirs)))

    @torch.no_grad()
    def store(self, policy: Policy) -> None:
        """Puts the parameters into a policy."""
        for ours, theirs in self._pairs(policy):
            theirs[...] = ours.numpy()


def _tower(inputs: int, widths, outputs: int) -> torch.nn.Sequential:
    layers, before = [], inputs
    for width in widths:
        layers += [torch.nn.Linear(before, width), torch.nn.Tanh()]
        before = width
    return torch.nn.Sequential(*layers, torch.nn.Linear(before, outputs))


def plain_loop(agent, optimizer, batch: SampleBatch, minibatch_size: int, rng, device: str) -> list[float]:
    """PPO's update on torch modules; returns the mean losses, as one would log them."""
    columns = {name: torch.from_numpy(column).to(device) for name, column in batch.items()}
    losses = []
    for _ in range(EPOCHS):
        order = torch.from_numpy(rng.permutation(batch.count)).to(device)
        for start in range(0, batch.count, minibatch_size):
            rows = order[start : start + minibatch_size]
            loss, statistics = plain_loss(agent, {name: column[rows] for name, column in columns.items()})
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(agent.parameters(), GRAD_CLIP)
            optimizer.step()
            losses.append(statistics)
    return torch.stack(losses).mean(0).tolist()


def plain_loss(agent, minibatch):
    outputs, values = agent(minibatch[sb.OBS])
    log_prob, entropy, kl = agent.judge(outputs, minibatch[sb.ACTION_DIST_INPUTS], minibatch[sb.ACTIONS])
    ratio = (log_prob - minibatch[sb.ACTION_LOGP]).exp()
    advantages, limit = minibatch[sb.ADVANTAGES], SETTINGS["clip_param"]
    policy_loss = -torch.min(advantages * ratio, advantages * ratio.clamp(1 - limit, 1 + limit)).mean()
    targets, old_values, limit = minibatch[sb.VALUE_TARGETS], minibatch[sb.VF_PREDS], SETTINGS["vf_clip_param"]
    clipped = old_values + (values - old_values).clamp(-limit, limit)
    value_loss = torch.max((values - targets) ** 2, (clipped - targets) ** 2).mean()
    loss = policy_loss + SETTINGS["kl_coeff"] * kl + SETTINGS["vf_loss_coeff"] * value_loss
    loss = loss - SETTINGS["entropy_coeff"] * entropy
    return loss, torch.stack((loss, policy_loss, value_loss, entropy, kl)).detach()


def categorical(logits, old_logits, actions):
    """Log-probabilities [B] of choices; means of the entropy, and of the KL divergence from the old distribution."""
    log_p, old = torch.log_softmax(logits, -1), torch.log_softmax(old_logits, -1)
    log_prob = log_p.gather(1, actions[:, None])[:, 0]
    return log_prob, -(log_p.exp() * log_p).sum(-1).mean(), (old.exp() * (old - log_p)).sum(-1).mean()


def normal(outputs, old_outputs, actions):
    """As `categorical`, for independent normal distributions: means, then logarithms of the deviations."""
    (mean, log_std), (old_mean, old_log_std) = outputs.chunk(2, -1), old_outputs.chunk(2, -1)
    log_prob = -0.5 * ((actions - mean) / log_std.exp()).square() - log_std - 0.5 * math.log(2 * math.pi)
    entropy = log_std + 0.5 * math.log(2 * math.pi * math.e)
    moved = ((2 * old_log_std).exp() + (old_mean - mean).square()) / (2 * (2 * log_std).exp())
    kl = log_std - old_log_std + moved - 0.5
    return log_prob.sum(-1), entropy.sum(-1).mean(), kl.sum(-1).mean()


def row(rounds: Rounds, side: str, what: str, bar: str = "") -> Row:
    return Row.of(rounds, "plain", what, "ms", side, peer_name="plain torch", bar=bar)


def on_cpu(widths: list[int], sizes: list[int], rounds: int, minibatches: int) -> list[Row]:
    rows = []
    for width in widths:
        for size in sizes:
            work = Work(width, size, minibatches)
            difference = work.check()
            assert difference < 1e-3, f"the plain loop learns something else: a weight differs by {difference:.2g}"
            result = alternate(
                rounds, numpy=work.ours("numpy"), torch=work.ours("torch"), plain=work.plain(), limit=work.products()
            )
            what = f"{width}x{width}, minibatch {size}"
            rows.append(
                row(result, "numpy", f"numpy learner, {what}", bar="<= 0.7" if width == 64 and size < 300 else "")
            )
            rows.append(row(result, "torch", f"torch learner, {what}"))
    return rows


def large_product() -> float:
    """GFLOP/s of one core."""
    a, out = np.ones((LARGE, LARGE), np.float32), np.empty((LARGE, LARGE), np.float32)
    started = time.perf_counter()
    for _ in range(5):
        np.matmul(a, a, out=out)
    return 5 * 2 * LARGE**3 / (time.perf_counter() - started) / 1e9


def row_updates(rounds: int, minibatches: int) -> list[Row]:
    """How much of a core the numpy learner's steps use."""
    work = Work(64, 1024, minibatches)
    learner, gflop = work.ours("numpy"), work.gflop()
    found = alternate(rounds, ours=lambda: gflop / learner() * 1e3, limit=large_product)
    return [Row.of(found, "", "row updates on one core, 64x64, minibatch 1024", "GFLOP/s", bar=">= 40")]


def two_learners(rounds: int, minibatches: int) -> list[Row]:
    """In updates of the usual length, and in ten times as long ones."""
    rows = []
    for count in (minibatches, 10 * minibatches):
        work = Work(64, 256, count)
        (one, of_one), (two, of_two) = work.group(0), work.group(2)
        with of_one, of_two:
            found = alternate(rounds, ours=two, one=one)
        what = f"two learners, 64x64, minibatch 256, {work.steps} steps"
        # A time: 1.5 times as fast.
        rows.append(Row.of(found, "one", what, "ms", peer_name="one learner", bar="<= 0.667 peer"))
    return rows


def on_cuda(widths: list[int], sizes: list[int], rounds: int, minibatches: int) -> list[Row]:
    if not torch.cuda.is_available():
        print(f"# CUDA skipped: torch {torch.__version__} finds no device here", flush=True)
        return []
    print(f"# {torch.cuda.get_device_name()}, CUDA {torch.version.cuda}", flush=True)
    rows = []
    for width in widths:
        for size in sizes:
            work = Work(width, size, minibatches)
            result = alternate(rounds, torch=work.ours("torch", "cuda"), plain=work.plain("cuda"))
            rows.append(row(result, "torch", f"torch learner on CUDA, {width}x{width}, {size}", bar="<= 0.5 peer"))
    return rows


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--widths", type=int, nargs="+", default=[64, 256], help="of the two hidden layers")
    parser.add_argument("--sizes", type=int, nargs="+", default=[128, 256, 1024], help="rows of a minibatch")
    parser.add_argument("--minibatches", type=int, default=4, help="in a batch")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(machine())
    print(f"two towers, 4 observations, 2 actions, {EPOCHS} epochs; threads: torch {options.threads}, BLAS 1")
    cases = options.widths, options.sizes, options.rounds, options.minibatches
    more = [*row_updates(options.rounds, options.minibatches), *two_learners(options.rounds, options.minibatches)]
    table([*on_cpu(*cases), *more, *on_cuda(*cases)])


if __name__ == "__main__":
    main()
