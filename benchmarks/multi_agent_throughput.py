"""Steps of agents a second with several agents: PPO beside one agent on the same task, and beside bare environments.

    python benchmarks/multi_agent_throughput.py --rounds 21
    python benchmarks/multi_agent_throughput.py --no-peers --only poles
    benchmarks/peers/setup ray supersuit && python benchmarks/multi_agent_throughput.py --only peers --rounds 3

Two poles in each of four environments are eight agents, as in eight environments of one pole. Each row is measured with
sampling alone, and with sampling and learning; the sides take turns in short fragments of about a thousand steps. Rates
are of this process's CPU time, so that other programs on the machine count little; beside other libraries, which learn
in several threads or processes, they are of time on the clock, so the machine has to be idle. The environments of Ray
and of SB3 with SuperSuit take 1.7 and 1.2 GB on disk.

The limit is the bare loop: the same environments with random actions, without a library. Poles fall at different times,
and an agent whose pole has fallen waits for the others: "equal lives" are poles that are put up again at once, for 200
steps, which shows what several agents cost without that.

BenchMARL trains IPPO on VMAS's own simple_spread, environments in tensors, beside ours in arrays of numpy (`setup
benchmarl`). JaxMARL has environments and no algorithms in its package, so `--only random` measures simple_spread with
random actions, without any learning: ours and VMAS's on one core, and JaxMARL's in one XLA program, which takes all
cores (`setup jaxmarl`).
"""

import time
from collections.abc import Callable, Iterator

import gymnasium
import numpy as np
from measure import Rounds, Row, alternate, arguments, machine, peer_side, rows, table

BATCH = 1024  # steps of agents in a train batch
MINIBATCH = 256
EPOCHS = 4
SPREAD = "pettingzoo:mpe2.simple_spread_v3"
TIC_TAC_TOE = "pettingzoo:classic.tictactoe_v3"
UNIT = "agent steps/s"


class EqualLives(gymnasium.Wrapper):
    """A pole that is put up again when it falls, for 200 steps."""

    def __init__(self, config: dict | None = None):
        super().__init__(gymnasium.make("CartPole-v1", disable_env_checker=True).unwrapped)

    def reset(self, **options):
        self.steps = 0
        return self.env.reset(**options)

    def step(self, action):
        self.steps += 1
        observation, reward, has_fallen, _, info = self.env.step(action)
        if has_fallen:
            observation, info = self.env.reset()
        return observation, reward, False, self.steps >= 200, info


# ------------------------------------------------------------------------------------------------------------- sides


def build(env, agents: int, envs: int, policies: str | None, workers: int = 0, **env_config):
    """PPO for this environment; policies None: there is one agent in each. Workers share out the environments."""
    from rllib import PPOConfig

    config = PPOConfig().environment(env, env_config=env_config)
    if policies is not None:
        config.multi_agent(policies=policies)
    batch = BATCH // agents
    return (
        config.rollouts(num_rollout_workers=workers, num_envs_per_worker=envs // max(workers, 1))
        .rollouts(rollout_fragment_length=batch // envs)
        .training(train_batch_size=batch, sgd_minibatch_size=min(MINIBATCH, batch), num_sgd_iter=EPOCHS)
        .training(model={"fcnet_hiddens": [64, 64]})
        .reporting(min_time_s_per_iteration=None)
        .debugging(seed=0)
        .build()
    )


def sampling(algo, clock: Callable[[], float] = time.process_time) -> float:
    """Rate of one fragment of all environments."""
    worker = algo.workers.local_worker()
    started = clock()
    _, report = worker.sample()
    return (sum(report.agent_steps.values()) or report.env_steps) / (clock() - started)


def training(algo, clock: Callable[[], float] = time.process_time, iterations: int = 1) -> float:
    """Rate of iterations, each of one train batch."""
    counters = algo.metrics.counters

    def steps() -> int:
        return counters["num_agent_steps_sampled"] or counters["num_env_steps_sampled"]

    before, started = steps(), clock()
    for _ in range(iterations):
        algo.train()
    return (steps() - before) / (clock() - started)


def bare(env, **env_config) -> Callable[[], float]:
    """A side: about a thousand steps of agents of one environment, with random actions."""
    from rllib.env import EnvContext, resolve
    from rllib.env.multi_agent import as_multi_agent

    made = as_multi_agent(resolve(env).make(EnvContext(env_config)))
    rng = np.random.default_rng(0)

    def steps() -> Iterator[int]:
        """Steps the environment, for ever; yields the number of agents that have acted."""
        while True:
            observations, _ = made.reset()
            ended, is_over = set(), False
            while not is_over:
                acting = {agent: seen for agent, seen in observations.items() if agent not in ended}
                observations, _, terminateds, truncateds, _ = made.step(
                    {agent: random_action(made, agent, seen, rng) for agent, seen in acting.items()}
                )
                yield len(acting)
                ended |= {agent for flags in (terminateds, truncateds) for agent, flag in flags.items() if flag}
                is_over = "__all__" in ended or not observations.keys() - ended

    endless = steps()

    def side() -> float:
        started, count = time.process_time(), 0
        while count < BATCH:
            count += next(endless)
        return count / (time.process_time() - started)

    return side


def random_action(env, agent, seen, rng: np.random.Generator) -> int:
    """A random legal action."""
    if isinstance(seen, dict) and "action_mask" in seen:
        return int(rng.choice(np.flatnonzero(seen["action_mask"])))
    return int(rng.integers(env.get_action_space(agent).n))


# -------------------------------------------------------------------------------------------------------------- rows


def row(found: Rounds, what: str, bar: str) -> Row:
    """The row of a case; says its best fragments in a line."""
    best = {side: max(values) for side, values in found.values.items()}
    against = [f"{best['ours'] / best[side]:.2f} of {side}" for side in best if side != "ours"]
    print(f"  {what}: best fragment {best['ours']:,.0f} {UNIT}, {', '.join(against)}", flush=True)
    return Row.of(found, "one agent", what, UNIT, bar=bar, peer_name="one agent" if "one agent" in best else "")


def compare(rounds: int, what: str, several, single, limit, bar: str) -> list[Row]:
    """Rows of sampling alone and of training, beside one agent (or None) and the bare loop."""
    made = []
    for phase, rate in (("sampling", sampling), ("training", training)):
        sides = {"ours": lambda rate=rate: rate(several), "limit": limit}
        if single is not None:
            sides["one agent"] = lambda rate=rate: rate(single)
        made.append(row(alternate(rounds, warm_up=3, **sides), f"{what}, {phase}", bar))
    return made


def poles(rounds: int) -> list[Row]:
    """Eight or sixteen poles, whose agents live unequally long, or equally."""
    from rllib.env import make_multi_agent

    made = []
    for env, lives in (("CartPole-v1", ""), (EqualLives, ", equal lives")):
        for agents, envs, policies, bar in (
            (2, 4, "own", ">= 0.77 peer"),
            (2, 4, "shared", ">= 0.87 peer"),
            (16, 1, "own", ">= 0.33 peer"),
        ):
            copies = make_multi_agent(env)
            limit = bare(copies, num_agents=agents)
            one = build(env, 1, agents * envs, None)
            with one as single, build(copies, agents, envs, policies, num_agents=agents) as several:
                what = f"{agents} agents x {envs}, {policies}{lives}"
                made += compare(rounds, what, several, single, limit, bar)
    return made


def in_turn(rounds: int) -> list[Row]:
    """Tic-tac-toe, where one agent acts in a step."""
    with build(TIC_TAC_TOE, 1, 8, "shared") as several:
        return compare(rounds, "tic-tac-toe x 8", several, None, bare(TIC_TAC_TOE), ">= 0.6 limit")


def spread(rounds: int) -> list[Row]:
    """simple_spread with its three agents."""
    with build(SPREAD, 4, 8, "shared") as several:
        return compare(rounds, "simple_spread x 8", several, None, bare(SPREAD), ">= 0.75 limit")


# ------------------------------------------------------------------------------------------------- many, and in arrays


def build_frozen(count: int):
    """PPO of a learning policy that meets frozen ones, drawn at random, in connect four."""
    from rllib import PPOConfig
    from rllib.env.tasks.connect_four import ConnectFour

    ids = [f"frozen_{number:03}" for number in range(count)]

    def mapping(agent, episode, **kwargs):
        is_main = (agent == "player_0") == (episode.episode_id % 2 == 0)
        return "main" if is_main else ids[int(episode.rng.integers(count))]

    config = PPOConfig().environment(ConnectFour).rollouts(num_rollout_workers=0, num_envs_per_worker=4)
    config.training(train_batch_size=512, sgd_minibatch_size=256, model={"fcnet_hiddens": [64, 64]})
    policies = {"main": None, **dict.fromkeys(ids)}
    return config.multi_agent(policies=policies, policy_mapping_fn=mapping, policies_to_train=["main"]).build()


def frozen(rounds: int) -> list[Row]:
    """500 frozen policies beside 16 of them; prints their memory."""
    import psutil

    process = psutil.Process()
    with build_frozen(16) as few:
        sampling(few)
        before = process.memory_info().rss
        with build_frozen(500) as many:
            sampling(many)
            growth = (process.memory_info().rss - before) / 1e6
            size = few.policies["main"].weights.nbytes / 1e3
            print(f"500 frozen policies of {size:.0f} kB: +{growth:.0f} MB (< 100)")
            found = alternate(rounds, warm_up=3, ours=lambda: sampling(many), peer=lambda: sampling(few))
    return rows(found, "500 frozen policies", UNIT, {"peer": ("16 of them", ">= 0.95 peer")})


def in_arrays(rounds: int) -> list[Row]:
    """simple_spread in arrays beside the same environments one by one."""
    from rllib.env.multi_agent import as_multi_agent
    from rllib.env.tasks.vector_spread import VectorSpread

    def single(config):
        return as_multi_agent(VectorSpread())

    with build(VectorSpread, 4, 8, "shared") as arrays, build(single, 4, 8, "shared") as one_by_one:
        found = alternate(rounds, warm_up=3, ours=lambda: sampling(arrays), peer=lambda: sampling(one_by_one))
    return rows(found, "simple_spread x 8 in arrays", UNIT, {"peer": ("one by one", ">= 2.5 peer")})


def peers(rounds: int, iterations: int) -> list[Row]:
    """Other libraries, in processes of their own, by the clock."""
    from rllib.env.tasks.multi_agent_cartpole import MultiAgentCartPole
    from rllib.env.tasks.vector_spread import VectorSpread

    cases = (
        ("2 agents x 8, own", MultiAgentCartPole, "own", {"num_agents": 2},
         ("ray", "ray_multi_agent_throughput", "Ray 2.60", ">= 50 peer")),
        ("simple_spread x 8", SPREAD, "shared", {},
         ("supersuit", "sb3_spread_throughput", "SB3 + SuperSuit", ">= 1.0 peer")),
        ("simple_spread x 8, 2 workers", SPREAD, "shared", {"workers": 2},
         ("supersuit", "sb3_spread_throughput", "SB3 + SuperSuit", ">= 1.8 peer")),
        ("simple_spread x 8 in arrays", VectorSpread, "shared", {},
         ("benchmarl", "benchmarl_spread_throughput", "BenchMARL on VMAS", "")),
    )  # fmt: skip
    made = []
    for what, env, policies, more, (venv, script, label, bar) in cases:
        with build(env, 1, 8, policies, **more) as several:
            training(several, time.perf_counter, 2)  # the peers warm up as long
            found = alternate(
                rounds,
                warm_up=0,
                ours=lambda several=several: training(several, time.perf_counter, iterations),
                peer=peer_side("agent_steps_per_s", venv, script, "--iterations", iterations),
            )
            made += rows(found, f"{what}, by the clock", UNIT, {"peer": (label, bar)})
    return made


def at_random(rounds: int) -> list[Row]:
    """simple_spread in arrays with random actions, beside environments of other libraries, by the clock."""
    from rllib.env.tasks.vector_spread import VectorSpread

    made = []
    for envs in (8, 1024):
        env, rng = VectorSpread(num_envs=envs), np.random.default_rng(0)
        env.reset(seed=0)

        def ours(env=env, rng=rng, envs=envs) -> float:
            steps = max(100, 20_000 // envs)
            started = time.perf_counter()
            for _ in range(steps):
                env.step(rng.integers(5, size=(envs, env.num_agents)))
            return steps * envs * env.num_agents / (time.perf_counter() - started)

        key, count = "agent_steps_per_s", ("--envs", envs)
        jaxmarl = peer_side(key, "jaxmarl", "jaxmarl_spread", *count, "--steps", max(500, 100_000 // envs))
        vmas = peer_side(key, "benchmarl", "vmas_spread", *count, "--steps", 500)
        found = alternate(rounds, ours=ours, jaxmarl=jaxmarl, vmas=vmas)
        labels = {"jaxmarl": ("JaxMARL", ""), "vmas": ("VMAS", "")}
        made += rows(found, f"simple_spread x {envs}, random actions", UNIT, labels)
    return made


def main() -> None:
    parser = arguments(__doc__, rounds=21)
    cases = {case.__name__: case for case in (poles, in_turn, spread, frozen, in_arrays)}
    parser.add_argument("--only", choices=(*cases, "peers", "random"), help="these rows alone")
    parser.add_argument("--iterations", type=int, default=10, help="of each side beside another library")
    options = parser.parse_args()
    print(machine())
    print(f"medians of {options.rounds} alternating fragments of about {BATCH} {UNIT.partition('/')[0]}")
    made = []
    for name, case in cases.items():
        if options.only in (None, name):
            made += case(options.rounds)
    few = options.rounds if options.only else max(1, options.rounds // 7)
    if not options.no_peers and options.only in (None, "peers"):
        made += peers(few, options.iterations)
    if not options.no_peers and options.only in (None, "random"):
        made += at_random(few)
    table(made)


if __name__ == "__main__":
    main()
