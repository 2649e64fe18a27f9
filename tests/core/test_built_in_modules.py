"""RLlib's default modules and catalogs, where a description names them."""

import pytest

from rllib import PPOConfig
from rllib.core import DefaultPPOTorchRLModule, PPOCatalog, PPOTorchRLModule, RLModule, RLModuleSpec
from tests.envs import CountingEnv


def config(spec) -> PPOConfig:
    config = PPOConfig().environment(CountingEnv, env_config={"lengths": [4]}).env_runners(num_env_runners=0)
    config.training(train_batch_size=8, minibatch_size=8, num_epochs=1)
    return config.rl_module(rl_module_spec=spec)


@pytest.mark.parametrize("module_class", [DefaultPPOTorchRLModule, PPOTorchRLModule, None])
def test_a_default_module_is_the_built_in_network(module_class):
    spec = RLModuleSpec(module_class=module_class, model_config={"fcnet_hiddens": [3]}, catalog_class=PPOCatalog)
    with config(spec).build() as algo:
        algo.train()
        assert algo.policy.spec.architecture.is_built_in
        assert algo.config.model["fcnet_hiddens"] == [3]


def test_a_class_that_derives_from_one_is_refused_with_the_way():
    class Mine(RLModule):
        pass

    class Masked(Mine, DefaultPPOTorchRLModule):
        pass

    with pytest.raises(TypeError, match=r"Masked derives from the default module .* derives from TorchRLModule"):
        config(RLModuleSpec(module_class=Masked))
    with pytest.raises(TypeError, match=r"made by a run alone: algo\.get_module"):
        DefaultPPOTorchRLModule(observation_space=None)

    class MyCatalog(PPOCatalog):
        pass

    with pytest.raises(TypeError, match="there are no catalogs"):
        config(RLModuleSpec(catalog_class=MyCatalog))
