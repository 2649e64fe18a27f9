"""The suites of environments that a name begins with: "gymnax:CartPole-v1" is CartPole-v1 of gymnax."""

from typing import NamedTuple


class Suite(NamedTuple):
    """A suite.

    Attributes:
        package: its name, for messages.
        extra: of this library, which installs it.
        maker: "module:function" of the id and the items of env_config. It gets num_envs as well, and makes a vector of
            this many environments, unless they have several agents. It raises an ImportError where the package is
            missing.
        has_agents: whether the environments have several agents.
    """

    package: str
    extra: str
    maker: str
    has_agents: bool = False


_JITTED = "rllib.env.suites.jitted.suites"
_TUPLES = "rllib.env.suites.tuple_agents"

SUITES = {
    "envpool": Suite("EnvPool", "envpool", "rllib.env.factories.envpool_envs:EnvPoolVector"),
    "gymnax": Suite("gymnax", "gymnax", f"{_JITTED}:gymnax"),
    "craftax": Suite("Craftax", "craftax", f"{_JITTED}:craftax"),
    "pgx": Suite("Pgx", "pgx", f"{_JITTED}:pgx"),
    "jumanji": Suite("Jumanji", "jumanji", f"{_JITTED}:jumanji"),
    "navix": Suite("NAVIX", "navix", f"{_JITTED}:navix"),
    "brax": Suite("Brax", "brax", f"{_JITTED}:brax"),
    "playground": Suite("MuJoCo Playground", "playground", f"{_JITTED}:playground"),
    "vmas": Suite("VMAS", "vmas", "rllib.env.suites.vmas_envs:make_vmas", has_agents=True),
    "lbforaging": Suite("lbforaging", "lbforaging", f"{_TUPLES}:lbforaging", has_agents=True),
    "rware": Suite("RWARE", "rware", f"{_TUPLES}:rware", has_agents=True),
}
