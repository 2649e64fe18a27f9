"""The suites of environments that a name begins with: "gymnax:CartPole-v1" is CartPole-v1 of gymnax."""

from typing import Any, NamedTuple


class Suite(NamedTuple):
    """A suite.

    Attributes:
        package: its name, for messages.
        extra: extra of this library, which installs it; "" where none does.
        maker: "module:function" of the id and the items of env_config. It gets num_envs as well, and makes a vector of
            this many environments, unless they have several agents. It raises an ImportError where the package is
            missing.
        has_agents: whether the environments have several agents.
        install: what to do where no extra installs it.
        is_simulator: whether its environments start a simulator of their own, which takes a minute or more.
        draws: whether its environments take a render_mode.
    """

    package: str
    extra: str
    maker: str
    has_agents: bool = False
    install: str = ""
    is_simulator: bool = False
    draws: bool = False


_JITTED = "rllib.env.suites.jitted.suites"
_TUPLES = "rllib.env.suites.tuple_agents"
_LABS = "rllib.env.suites.labs.simulation"

SUITES = {
    "envpool": Suite("EnvPool", "envpool", "rllib.env.factories.envpool_envs:EnvPoolVector"),
    "gymnax": Suite("gymnax", "gymnax", f"{_JITTED}:gymnax"),
    "craftax": Suite("Craftax", "craftax", f"{_JITTED}:craftax"),
    "pgx": Suite("Pgx", "pgx", f"{_JITTED}:pgx"),
    "jumanji": Suite("Jumanji", "jumanji", f"{_JITTED}:jumanji"),
    "navix": Suite("NAVIX", "navix", f"{_JITTED}:navix"),
    "brax": Suite("Brax", "brax", f"{_JITTED}:brax"),
    "playground": Suite("MuJoCo Playground", "playground", f"{_JITTED}:playground"),
    "isaaclab": Suite(
        "Isaac Lab",
        "",
        f"{_LABS}:isaaclab",
        install="follow its installation guide, and install this library into the same environment",
        is_simulator=True,
    ),
    "mjlab": Suite("mjlab", "mjlab", f"{_LABS}:mjlab", is_simulator=True),
    "vmas": Suite("VMAS", "vmas", "rllib.env.suites.vmas_envs:make_vmas", has_agents=True),
    "lbforaging": Suite("lbforaging", "lbforaging", f"{_TUPLES}:lbforaging", has_agents=True, draws=True),
    "rware": Suite("RWARE", "rware", f"{_TUPLES}:rware", has_agents=True, draws=True),
}


def starts_simulator(env: Any) -> bool:
    """Whether the setting `env` names an environment of a suite that is a simulator."""
    suite = SUITES.get(env.partition(":")[0]) if isinstance(env, str) else None
    return suite is not None and suite.is_simulator
