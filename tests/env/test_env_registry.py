"""What may be given as an environment, and what becomes of it in another process."""

import pickle
import re
import sys
from types import ModuleType

import cloudpickle
import gymnasium
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import SyncVectorEnv

import rllib
from rllib.env import EnvContext, register_env, resolve
from rllib.env.factories import registry
from rllib.env.factories.make import make_environment
from rllib.env.factories.registry import GymnasiumFactory
from rllib.env.multi_agent import make_multi_agent
from rllib.errors import EnvironmentPackageError
from rllib.registered import ENVIRONMENTS
from tests.envs import CountingEnv, SimpleCorridor

CONTEXT = EnvContext({"corridor_length": 4}, worker_index=2, vector_index=1, num_workers=3, num_envs=5)


@pytest.fixture(autouse=True)
def clean_registry(monkeypatch):
    monkeypatch.setattr(ENVIRONMENTS, "_values", {})


def test_id():
    factory = resolve("CartPole-v1")
    assert factory.name == "CartPole-v1"
    env = factory.make(EnvContext())
    assert type(env.unwrapped).__name__ == "CartPoleEnv"
    assert env.spec.max_episode_steps == 500


def test_config_of_an_id_is_its_keywords():
    env = resolve("FrozenLake-v1").make(EnvContext({"map_name": "8x8", "max_episode_steps": 7}))
    assert env.observation_space.n == 64
    assert env.spec.max_episode_steps == 7


def test_id_without_version_takes_the_newest(recwarn):
    assert resolve("FrozenLake").name == "FrozenLake-v1"
    assert not recwarn.list


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    (tmp_path / "corridor_plugin.py").write_text(
        "import gymnasium\n"
        "from tests.envs import CountingEnv\n"
        "gymnasium.register('Plugin-v0', entry_point='tests.envs:CountingEnv', max_episode_steps=9)\n"
        "class Own(CountingEnv): pass\n"
        "def make_own(config): return Own(config)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield
    gymnasium.registry.pop("Plugin-v0", None)
    sys.modules.pop("corridor_plugin", None)


def test_module_and_id(plugin):
    env = resolve("corridor_plugin:Plugin-v0").make(EnvContext())
    assert isinstance(env.unwrapped, CountingEnv)
    assert env.spec.max_episode_steps == 9


def test_module_and_class(plugin):
    assert type(resolve("corridor_plugin:Own").make(EnvContext())).__name__ == "Own"


def test_the_path_of_a_class_as_ray_writes_it(plugin):
    assert type(resolve("corridor_plugin.Own").make(EnvContext())).__name__ == "Own"
    assert type(resolve("tests.envs.CountingEnv").make(EnvContext())) is CountingEnv


@pytest.mark.parametrize("name", ["os:system", "os.system", "subprocess:getoutput", "subprocess:Popen"])
def test_a_string_never_names_a_function_to_run(name):
    with pytest.raises(ValueError, match=f"environment {name!r} names .* which is no environment class"):
        resolve(name)


def test_a_function_of_ours_is_given_registered_or_typed_by_the_user(plugin):
    ways = r"register_env\(name, function\), or type it on the command line.*rllib evaluate --load-user-code"
    with pytest.raises(ValueError, match=ways):
        resolve("corridor_plugin:make_own")
    registry.register_typed_function("corridor_plugin:make_own")
    assert type(resolve("corridor_plugin:make_own").make(EnvContext())).__name__ == "Own"


@pytest.mark.parametrize("name", ["CartPole-v1", "corridor_plugin:Plugin-v0", "corridor_plugin:Own", "a.b"])
def test_other_names_that_the_user_types_are_left_alone(name, plugin):
    registry.register_typed_function(name)
    assert not list(ENVIRONMENTS)


def test_registered_name():
    register_env("corridor", lambda config: SimpleCorridor(config))
    factory = resolve("corridor")
    assert factory.name == "corridor"
    assert factory.make(CONTEXT).end_pos == 4
    register_env("corridor", lambda config: CountingEnv())
    assert isinstance(resolve("corridor").make(CONTEXT), CountingEnv)


def test_register_env_takes_the_function_by_rays_name():
    register_env("by_keyword", env_creator=lambda context: SimpleCorridor(context))
    assert isinstance(resolve("by_keyword").make(EnvContext({"corridor_length": 3})), SimpleCorridor)
    for creators in ({}, {"creator": SimpleCorridor, "env_creator": SimpleCorridor}):
        with pytest.raises(TypeError, match="takes the name and one function or class"):
            register_env("by_keyword", **creators)


def test_register_env_is_on_the_front_door():
    assert rllib.register_env is register_env


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("CartPol-v1", "no environment 'CartPol-v1'. Did you mean 'CartPole-v1'"),
        ("cartpole-v1", "Did you mean 'CartPole-v1'"),
        ("FrozenLake-v0", 'Use "FrozenLake-v1", its version today.'),
        ("LunarLanderContinuous-v2", 'Use "LunarLanderContinuous-v3"'),
        ("Hopper-v1", 'Use "Hopper-v5"'),
        ("CartPole-v9", "Did you mean 'CartPole-v1'"),
        ("AntBulletEnv-v0", 'use MuJoCo\'s "Ant-v5"'),
        ("RoboschoolHalfCheetah-v1", 'use MuJoCo\'s "HalfCheetah-v5"'),
        ("FetchReach-v1", '"gymnasium_robotics:FetchReach-v1" here, or a newer version, with pip install'),
        ("MiniGrid-Empty-5x5-v0", '"minigrid:MiniGrid-Empty-5x5-v0"'),
        ("dm_control/cartpole-balance-v0", "[dm-control]'"),
        ("bsuite/catch-v0", 'No imported package registers ids of bsuite/: write "module:bsuite/catch-v0"'),
        ("OpenSpiel/chess-v0", "No imported package registers ids of OpenSpiel/"),
        ("MinAtar/Breakout-v1", "No imported package registers ids of MinAtar/"),
        ("GymV21Environment-v0", "any more. Environments of the old gym API are adapted here"),
        ("ale/Pongg-v5", "Did you mean 'ALE/Pong-v5'"),
        ("Taxi-v3", 'Use "Taxi-v4", its version today. Your own'),
        ("Taxi-v5", "Did you mean 'Taxi-v4'? Your own"),
        ("Taxy-v4", "Did you mean 'Taxi-v4'? Your own"),
        ("Reachr-v2", "Did you mean 'Reacher-v5'? Your own"),
        ("mine/corridoor-v0", "Did you mean 'mine/corridor-v0'"),
        ("corridoor", "Did you mean 'corridor'"),
        ("no_such_module:Env-v0", "names the module 'no_such_module', which cannot be found"),
        ("json:Env-v0", "the module 'json' has no environment class 'Env-v0', and registers no such id"),
        ("tests.envs:CountingEnvs", "Did you mean 'CountingEnv'"),
        ("shimmy.no_such_module:Env-v0", "[dm-control]'."),
        ("quite different", "no environment 'quite different'. Your own: pass the class itself"),
        ("", "no environment ''"),
    ],
)
def test_unknown_names_get_the_nearest(name, message):
    for known in ("corridor", "mine/corridor-v0"):
        register_env(known, SimpleCorridor)
    if "Taxi-v4" in message and "Taxi-v4" not in gymnasium.registry:
        pytest.skip("this gymnasium has an earlier Taxi")
    with pytest.raises(ValueError, match=re.escape(message)):
        resolve(name)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("name", ["HalfCheetah", "Hopper", "Walker2d", "Reacher"])
def test_environments_of_mujocos_first_bindings_are_refused_with_the_id_of_today(name, version):
    if f"{name}-v{version}" in gymnasium.registry:
        pytest.skip("this gymnasium still has them")
    with pytest.raises(ValueError, match=f'{name}-v{version}.*Use "{name}-v5"'):
        resolve(f"{name}-v{version}")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("PongDeterministic-v4", 'Use "PongNoFrameskip-v4", whose actions are repeated for 4 frames here, or "A'),
        ("BreakoutDeterministic-v0", 'Use "BreakoutNoFrameskip-v4"'),
        ("Pong-ram-v0", "Use \"ALE/Pong-v5\" with env_config={'obs_type': 'ram'}"),
        ("SpaceInvaders-ramNoFrameskip-v4", 'Use "ALE/SpaceInvaders-v5"'),
        ("ALE/Pong-v4", 'Use "ALE/Pong-v5"'),
    ],
)
def test_earlier_ids_of_atari_are_refused_with_the_id_of_today(name, message):
    pytest.importorskip("ale_py")
    with pytest.raises(ValueError, match=re.escape(message)):
        resolve(name)


@pytest.mark.parametrize("name", ["PongNoFrameskip-v4", "Pong-v4", "ALE/Pong-v5"])
def test_ids_of_atari_that_exist_are_found(name):
    pytest.importorskip("ale_py")
    assert resolve(name).spec.id == name


@pytest.mark.parametrize(
    ("entry_point", "remedy"),
    [
        ("gymnasium.envs.box2d.lunar_lander:LunarLander", r"Use pip install .*\[box2d\]'\."),
        ("somebody.elses:Env", "pip install wheels"),
    ],
)
def test_a_missing_package_is_named_with_what_installs_it(monkeypatch, entry_point, remedy):
    def lacks(*_):
        raise gymnasium.error.DependencyNotInstalled("wheels are not installed, pip install wheels")

    monkeypatch.setattr(gymnasium.envs.registration, "load_env_creator", lacks)
    factory = GymnasiumFactory(gymnasium.envs.registration.EnvSpec("Lacking-v0", entry_point=entry_point))
    with pytest.raises(EnvironmentPackageError, match="'Lacking-v0' needs a package.*" + remedy) as caught:
        make_environment(factory, CONTEXT)
    assert not hasattr(caught.value, "__notes__"), "it is a mistake of the user's, without a traceback"
    with pytest.raises(EnvironmentPackageError):
        rllib.check_env(lambda config: factory.make(CONTEXT))


def test_a_broken_module_shows_its_own_error(tmp_path, monkeypatch):
    (tmp_path / "broken_plugin.py").write_text("import no_such_dependency\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_dependency"):
        resolve("broken_plugin:Env-v0")


@pytest.mark.parametrize("given", [gymnasium.make("CartPole-v1"), SimpleCorridor({"corridor_length": 2})])
def test_instances_are_refused(given):
    with pytest.raises(TypeError, match=r"already made.*lambda config: MyEnv\(config\)"):
        resolve(given)


def test_nothing_and_nonsense():
    with pytest.raises(ValueError, match="no environment was given"):
        resolve(None)
    with pytest.raises(TypeError, match="an environment is an id, a class or a function"):
        resolve(3)
    with pytest.raises(TypeError, match="needs a function that makes the environment"):
        register_env("x", SimpleCorridor({"corridor_length": 2}))


# ---- how creators are called


class Whole:
    def __init__(self, config):
        self.got = config


class WholeByDefault:
    def __init__(self, env_config=None, verbose=False):
        self.got = env_config


class WholeUnnamed:
    def __init__(self, settings):
        self.got = settings


class WholeOptional:
    def __init__(self, settings=None):
        self.got = settings


class ByName:
    def __init__(self, corridor_length=1, render_mode=None):
        self.got = corridor_length


class ByRequiredName:
    def __init__(self, corridor_length):
        self.got = corridor_length


class AnyName:
    def __init__(self, **settings):
        self.got = settings


class Nothing:
    def __init__(self):
        self.got = None


@pytest.mark.parametrize("creator", [Whole, WholeByDefault, WholeUnnamed, WholeOptional, lambda config: Whole(config)])
def test_creators_that_take_the_context(creator):
    got = resolve(creator).make(CONTEXT).got
    assert got == {"corridor_length": 4}
    assert (got.worker_index, got.vector_index, got.num_workers, got.num_envs) == (2, 1, 3, 5)
    assert got.remote is False


@pytest.mark.parametrize(("creator", "got"), [(ByName, 4), (ByRequiredName, 4), (AnyName, {"corridor_length": 4})])
def test_creators_that_take_keywords(creator, got):
    assert resolve(creator).make(CONTEXT).got == got


@pytest.mark.parametrize(("creator", "got"), [(Nothing, None), (ByName, 1), (WholeOptional, None), (AnyName, {})])
def test_creators_without_config(creator, got):
    assert resolve(creator).make(EnvContext()).got == got


@pytest.mark.parametrize("creator", [Nothing, lambda: Nothing()])
def test_a_config_that_nothing_takes(creator):
    with pytest.raises(TypeError, match=r"env_config has 'corridor_length', but .* takes no such argument"):
        resolve(creator).make(CONTEXT)


def test_misspelt_key_of_a_config():
    with pytest.raises(TypeError, match="env_config has 'length', but ByName"):
        resolve(ByName).make(EnvContext({"length": 3}))


def test_vector_env_class_gets_its_number():
    env = resolve(CartPoleVectorEnv).make(EnvContext({"max_episode_steps": 9}, num_envs=5))
    assert (env.num_envs, env.max_episode_steps) == (5, 9)


def test_vector_env_function():
    env = resolve(lambda context: SyncVectorEnv([CountingEnv] * context.num_envs)).make(CONTEXT)
    assert env.num_envs == 5


def test_id_with_a_vector_entry_point_only():
    gymnasium.register("OnlyVector-v0", vector_entry_point=CartPoleVectorEnv)
    try:
        assert resolve("OnlyVector-v0").make(EnvContext(num_envs=3)).num_envs == 3
    finally:
        del gymnasium.registry["OnlyVector-v0"]


# ---- across processes


def test_context_survives_pickling():
    copy = pickle.loads(pickle.dumps(CONTEXT))
    assert copy == CONTEXT
    assert vars(copy) == vars(CONTEXT)


def test_an_id_needs_no_registration_where_it_arrives():
    gymnasium.register("Passing-v0", entry_point=lambda **keywords: CountingEnv(keywords), max_episode_steps=4)
    try:
        message = cloudpickle.dumps(resolve("Passing-v0"))
    finally:
        del gymnasium.registry["Passing-v0"]
    assert pickle.loads(message).make(EnvContext({"lengths": [3]})).spec.max_episode_steps == 4


def test_functions_travel():
    length = 6
    factory = pickle.loads(cloudpickle.dumps(resolve(lambda config: SimpleCorridor({"corridor_length": length}))))
    assert factory.make(EnvContext()).end_pos == 6


class Agents:
    """The names that PettingZoo's environments have, in both APIs."""

    possible_agents = ("a", "b")

    def __init__(self, config=None):
        pass

    def observation_space(self, agent):
        return gymnasium.spaces.Discrete(2)

    action_space = observation_space

    def reset(self, seed=None, options=None):
        pass

    def step(self, action):
        pass


class AEC(Agents):
    def agent_iter(self):
        return iter(self.possible_agents)

    def last(self):
        return None


class RaysAgents(gymnasium.Env):
    observation_space = action_space = gymnasium.spaces.Dict({"a": gymnasium.spaces.Discrete(2)})

    def get_agent_ids(self):
        return {"a"}


@pytest.mark.parametrize("env", [Agents, AEC, RaysAgents])
def test_environments_of_several_agents_are_refused_where_one_is_needed(env):
    with pytest.raises(TypeError, match="environment of several agents, and here one with one agent is needed"):
        make_multi_agent(lambda config: env())({"num_agents": 2})


def test_one_that_is_made_is_refused_as_any_other():
    with pytest.raises(TypeError, match="an environment that is already made was given"):
        resolve(Agents())


def test_a_module_of_pettingzoo_is_an_environment():
    module = ModuleType("pettingzoo.mpe.simple_v3")
    module.parallel_env = Agents
    assert resolve(module).name == "pettingzoo:pettingzoo.mpe.simple_v3"


class NeedsMore(gymnasium.Env):
    def __init__(self, size, config):
        pass


def breaks(config):
    raise TypeError("len() takes exactly one argument (2 given)")


def test_a_constructor_with_other_parameters_is_told_the_contract():
    for env, name in ((NeedsMore, "NeedsMore"), (lambda a, b: None, "<lambda>")):
        with pytest.raises(TypeError, match="missing 1 required positional argument") as raised:
            resolve(env).make(EnvContext({"x": 1}))
        assert any(f"{name}(env_config): one parameter" in note for note in raised.value.__notes__)
    with pytest.raises(TypeError) as raised:
        resolve(breaks).make(EnvContext({}))
    assert not hasattr(raised.value, "__notes__"), "an error of its own"
