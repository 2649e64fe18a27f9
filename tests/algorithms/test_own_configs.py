"""Config and algorithm classes that are written in RLlib's way: own attributes, and setup(config)."""

import inspect
import pickle

import pytest

from rllib import DQN, PG, PPO, Algorithm, AlgorithmConfig, PPOConfig
from rllib.algorithms.base.registry import ALGORITHMS, get_algorithm_class


class Mine(PPO):
    def setup(self, config):
        super().setup(config)
        self.factor = config.factor


class MineConfig(PPOConfig):
    def __init__(self, algo_class=None):
        super().__init__(algo_class or Mine)
        self.factor = 3
        self.lr = 1e-3

    def training(self, *, factor=None, **kwargs):
        super().training(**kwargs)
        if factor is not None:
            self.factor = factor
        return self


def small(config):
    return config.environment("CartPole-v1").training(train_batch_size=32, sgd_minibatch_size=32, num_sgd_iter=1)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_super_setup_takes_a_config_in_every_algorithm(name):
    """Classes of RLlib's form call it so, whether or not the algorithm has a setup of its own."""
    inspect.signature(get_algorithm_class(name).setup, follow_wrapped=False).bind("self", "config")


def test_a_config_has_attributes_of_its_own():
    config = small(MineConfig()).training(factor=5, lr=2e-3)
    assert (config.factor, config.lr, config["factor"]) == (5, 2e-3, 5)
    assert MineConfig().factor == 3, "its default"
    assert "factor" not in PPOConfig.settings
    assert config.copy().factor == 5 and config.changes()["factor"] == 5
    with config.build() as algo:
        assert isinstance(algo, Mine) and algo.factor == 5
        algo.train()


def test_a_dict_sets_them():
    assert MineConfig.from_dict({"factor": 7}).factor == 7
    assert MineConfig().training(factor=8).to_dict()["factor"] == 8


def test_an_attribute_that_the_constructor_does_not_set_is_refused():
    with pytest.raises(AttributeError, match="has no setting 'factr'"):
        MineConfig().factr = 3
    with pytest.raises(AttributeError, match="has no setting"):
        PPOConfig().factor = 3


def test_a_process_that_has_not_made_one_reads_it():
    pickled = pickle.dumps(MineConfig().training(factor=9))
    del MineConfig.settings["factor"]
    assert pickle.loads(pickled).factor == 9


def test_a_checkpoint_brings_them_back(tmp_path):
    with small(MineConfig()).training(factor=4).build() as algo:
        algo.save(str(tmp_path))
    with Mine.from_checkpoint(tmp_path, load_user_code=True) as again:
        assert again.config.factor == 4


@pytest.mark.parametrize("base", [PPO, DQN])
def test_setup_with_and_without_the_config(base):
    class With(base):
        def setup(self, config):
            super().setup(config)
            self.mine = config.train_batch_size

    class Without(base):
        def setup(self):
            super().setup()
            self.mine = "none"

    for kind, expected in ((With, 8), (Without, "none")):
        config = kind.get_default_config().environment("CartPole-v1").training(train_batch_size=8)
        if base is PPO:
            config.training(sgd_minibatch_size=8)
        with config.build() as algo:
            assert algo.mine == expected


class FromScratch(Algorithm):
    """Derived from Algorithm itself, as in RLlib, and without a config class."""

    loss = PG.loss
    make_postprocess = PG.make_postprocess

    def training_step(self):
        settings = {"lr": self.config.lr, "vf_loss_coeff": 0.0, "entropy_coeff": 0.0, "shuffle": False}
        return {trainee.policy_id: trainee.learn_on_batch(batch, **settings) for trainee, batch in self.train_batches()}


class WithDefaults(FromScratch):
    @classmethod
    def get_default_config(cls):
        return DefaultsConfig(cls)


class DefaultsConfig(AlgorithmConfig):
    def __init__(self, algo_class=None):
        super().__init__(algo_class or WithDefaults)
        self.factor = 2


@pytest.mark.parametrize("kind", [FromScratch, WithDefaults])
def test_an_algorithm_without_a_config_class_has_that_of_its_default_config(kind, tmp_path):
    settings = {"env": "CartPole-v1", "num_rollout_workers": 0, "train_batch_size": 32}
    with kind(config=settings) as algo:
        assert algo.train()["timesteps_total"] >= 32
        assert type(algo.config) is (DefaultsConfig if kind is WithDefaults else AlgorithmConfig)
        path = algo.save(str(tmp_path))
    with kind.from_checkpoint(path, load_user_code=True) as again:
        assert again.iteration == 1 and type(again.config) is type(algo.config)
    with AlgorithmConfig(algo_class=kind).update_from_dict(settings).build() as algo:
        assert isinstance(algo, kind)
