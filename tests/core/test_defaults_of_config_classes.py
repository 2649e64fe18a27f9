"""Networks and learners that a config class has by default, as RLlib's algorithms of one's own name them."""

from rllib import PPOConfig
from rllib.core import RLModuleSpec, TorchLearner
from tests.core.small_module import Small
from tests.envs import CountingEnv


class Other(Small):
    pass


class OfConfig(Small):
    def setup(self):
        self.model_config = {"width": self.model_config["fcnet_hiddens"][0]}
        super().setup()


class Noted(TorchLearner):
    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        self.metrics.log_value((module_id, type(self).__name__), 1.0, window=1)
        return super().compute_loss_for_module(module_id=module_id, config=config, batch=batch, fwd_out=fwd_out)


class NotedToo(Noted):
    pass


class OwnConfig(PPOConfig):
    def get_default_rl_module_spec(self):
        return RLModuleSpec(module_class=Small, model_config={"width": 4})

    def get_default_learner_class(self):
        return Noted if self.framework_str == "torch" else None


def small(config: PPOConfig) -> PPOConfig:
    config.environment(CountingEnv, env_config={"lengths": [4]}).env_runners(num_env_runners=0)
    return config.training(train_batch_size=8, minibatch_size=8, num_epochs=1)


def test_a_config_class_names_its_network_and_learner():
    with small(OwnConfig()).build() as algo:
        module = algo.get_module()
        assert type(module) is Small and module.hidden.out_features == 4
        assert algo.train()["learners"]["default_policy"]["Noted"] == 1.0


def test_what_the_config_names_goes_before_them():
    spec = RLModuleSpec(module_class=Other, model_config={"width": 5})
    config = small(OwnConfig()).rl_module(rl_module_spec=spec).training(learner_class=NotedToo)
    with config.build() as algo:
        assert type(algo.get_module()) is Other and algo.get_module().hidden.out_features == 5
        assert "NotedToo" in algo.train()["learners"]["default_policy"]


def test_a_network_without_settings_has_those_of_the_config():
    class Wide(PPOConfig):
        def get_default_rl_module_spec(self):
            return RLModuleSpec(module_class=OfConfig)

    with small(Wide()).training(model={"fcnet_hiddens": [7]}).build() as algo:
        assert algo.get_module().hidden.out_features == 7
        algo.train()
