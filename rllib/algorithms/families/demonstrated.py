"""Demonstrations, and a reward that a discriminator learns from them: settings, and what makes the part.

A policy in training owns the part (rllib/imitation/learned_reward.py). The environment and its rewards stay as they
are; what an algorithm learns from is replaced where its batches arrive.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from rllib import sample_batch as sb
from rllib.algorithms.base import wiring
from rllib.algorithms.base.config import AlgorithmConfig
from rllib.algorithms.base.recorded.data import data_of
from rllib.algorithms.base.recorded.settings import no_source
from rllib.config.config_object import relation
from rllib.config.conflicts import Mistake, conflict
from rllib.config.nested import NestedSettings
from rllib.config.sections import Checked, Keys, Merged, above, at_least, between, section
from rllib.evaluation import seeding
from rllib.imitation.learned_reward import LearnedReward
from rllib.imitation.settings import (
    ACTION,
    INPUTS,
    NEXT_OBSERVATION,
    OBSERVATION,
    R1,
    TERMINATED,
    UNIT_NORM,
    DiscriminatorSettings,
)
from rllib.losses.discriminator import LEAST_SQUARES, REWARD_FORMS
from rllib.models.arithmetic.activations import ACTIVATION_NAMES
from rllib.notices import shortened
from rllib.offline.dataset import Dataset, LackingColumnError
from rllib.offline.stream import Unread

if TYPE_CHECKING:
    from rllib.algorithms.base.algorithm import Algorithm
    from rllib.algorithms.base.trainee import Trainee

DISCRIMINATOR_FILE = "discriminator.safetensors"
_ACTIVATION = Literal[tuple(ACTIVATION_NAMES)]
_SOURCE = "Use .offline_data(demonstrations='PATH'); rllib record CHECKPOINT --to PATH makes some."
_NO_KEYS: list[str] = []
_INPUTS = [OBSERVATION, ACTION]


class DiscriminatorModel(NestedSettings, setting="discriminator_model"):
    """The keys of `discriminator_model`."""

    fcnet_hiddens: Annotated[list[int], "widths of the hidden layers", at_least(1)] = (64, 64)
    fcnet_activation: Annotated[_ACTIVATION, "their activation"] = "tanh"
    normalize: Annotated[
        bool, "each number of an observation gets mean 0 and deviation 1 over the rows of both sides so far"
    ] = True


_MODEL = DiscriminatorModel.defaults()


def _is_penalty(given: float | Mapping) -> bool:
    weight = given[R1] if isinstance(given, Mapping) and list(given) == [R1] else given
    return isinstance(weight, int | float) and not isinstance(weight, bool) and 0 <= weight < float("inf")


class DemonstratedConfig(AlgorithmConfig):
    """Settings of demonstrations and of a discriminator."""

    @section
    def offline_data(
        self,
        *,
        demonstrations: Annotated[
            Any,
            'steps of the expert: a path, pattern, "minari:ID" or list of them, arrays by name, a table, a Dataset, or '
            "a function that returns one of these; rewards are not read",
        ] = None,
        num_demonstrations: Annotated[int | None, "the first episodes of them; None: all", at_least(1)] = None,
    ) -> Self: ...

    @section
    def training(
        self,
        *,
        discriminator_inputs: Annotated[
            list[Literal[INPUTS]],
            'parts of a step that the discriminator reads: "obs", "actions", "next_obs", "terminated"',
        ] = _INPUTS,
        discriminator_observation_keys: Annotated[
            list[str], "keys of Dict observations that it reads; []: all"
        ] = _NO_KEYS,
        discriminator_model: Annotated[
            dict,
            "its network: fcnet_hiddens, fcnet_activation, normalize",
            Merged,
            Keys(DiscriminatorModel),
        ] = _MODEL,
        discriminator_lr: Annotated[float, "its learning rate (Adam)", above(0, finite=True)] = 3e-3,
        discriminator_updates: Annotated[int, "its gradient steps on each train batch", at_least(1)] = 16,
        discriminator_batch_size: Annotated[int, "rows of each side in one of them", at_least(1)] = 256,
        gradient_penalty: Annotated[
            float | dict,
            "weight of (|gradient of the logit| - 1)^2 at rows between both sides'; or {'r1': weight} of |gradient|^2 "
            "at the expert's; 0: none",
            Checked(_is_penalty, "a number of 0 or more, or {'r1': number}"),
        ] = 1.0,
        label_smoothing: Annotated[float, "weight of the other side's label", between(0, 0.5)] = 0.0,
        reward_form: Annotated[
            Literal[tuple(REWARD_FORMS)],
            'reward of a logit l, where D = sigmoid(l) is 1 for the expert: "gail" -log(1 - D), "airl" l, "log_d" '
            'log D, "fairl" -l e^l, "lsgan" max(0, 1 - (l - 1)^2 / 4) with a least-squares loss',
        ] = "gail",
        absorbing: Annotated[
            bool,
            "terminated episodes continue in a state with a learned reward r, worth r / (1 - gamma); False: they are "
            "worth 0, so that rewards of one sign make episodes long, or short",
        ] = True,
        generator_buffer: Annotated[
            int | None, "train batches whose rows are the policy's side; None: the newest alone", at_least(1)
        ] = None,
        reward_normalize: Annotated[
            bool, "learned rewards are divided by the standard deviation of their discounted sums"
        ] = True,
        reward_clip: Annotated[
            float | None, "bound of learned rewards after that; None: there is none", above(0)
        ] = 10.0,
        imitation_coeff: Annotated[float | list, "factor of the learned reward, or a schedule", at_least(0)] = 1.0,
        task_reward_coeff: Annotated[
            float | list, "factor of the environment's reward, which is added; or a schedule", at_least(0)
        ] = 0.0,
    ) -> Self: ...

    conflicts = (
        conflict(
            "absorbing",
            "gamma",
            when=lambda config: config.absorbing and config.gamma >= 1,
            why="the absorbing state is worth its reward / (1 - gamma)",
            remedies=[{"gamma": 0.99}, {"absorbing": False}],
        ),
        conflict(
            "normalize_returns",
            "reward_normalize",
            why="the first divides rewards of the environment, which learned ones replace, and the second these",
            remedies=[{"normalize_returns": False}, {"reward_normalize": False}],
        ),
        conflict(
            "time_limit_ends_episode",
            when=lambda config: config.time_limit_ends_episode and config._reads_ends,
            why="it makes the policy's truncated episodes terminated ones, but not those of the demonstrations, and "
            "the discriminator reads how episodes end",
            remedies=[{"time_limit_ends_episode": False}],
            note="An environment can terminate its episodes at the limit, and demonstrations say terminateds there.",
        ),
        conflict(
            "label_smoothing",
            "reward_form",
            when=lambda config: config.label_smoothing and config.reward_form == LEAST_SQUARES,
            why="the labels of the least-squares loss are 1 and -1",
            remedies=[{"label_smoothing": 0.0}, {"reward_form": "gail"}],
        ),
        conflict(
            "discriminator_inputs",
            when=lambda config: not {OBSERVATION, NEXT_OBSERVATION} & set(config.discriminator_inputs),
            why="an observation, before or after the action, is what a reward is of",
            remedies=[{"discriminator_inputs": [OBSERVATION, ACTION]}],
        ),
    )

    @relation("demonstrations")
    def _check_demonstrations(self) -> Mistake | None:
        """`demonstrations` is recorded data."""
        if self.demonstrations is None:
            return Mistake(
                f"{self.algorithm_name} learns a reward from demonstrations, and there are none.",
                ("demonstrations",),
                advice=_SOURCE,
            )
        if (problem := no_source(self.demonstrations)) is not None:
            return Mistake(
                f"demonstrations={shortened(self.demonstrations)}: {problem}", ("demonstrations",), advice=_SOURCE
            )
        return None

    @property
    def _reads_data(self) -> bool:
        return not isinstance(self.demonstrations, Dataset)

    @property
    def is_shaped(self) -> bool:
        """Whether the logit is AIRL's."""
        return False

    @property
    def reads_next_observations(self) -> bool:
        """Whether the discriminator reads what followed each step."""
        return NEXT_OBSERVATION in self.discriminator_inputs

    @property
    def _reads_ends(self) -> bool:
        """Whether the discriminator treats terminated episodes otherwise than truncated ones."""
        return self.absorbing or self.is_shaped or TERMINATED in self.discriminator_inputs

    @property
    def asks_policy(self) -> bool:
        """Whether the policy is asked what it would do in demonstrated steps."""
        return self.is_shaped

    @property
    def reads_actions(self) -> bool:
        """Whether demonstrations need actions."""
        return ACTION in self.discriminator_inputs or self.asks_policy

    @property
    def parts_read(self) -> list[str]:
        """Keys of Dict observations that demonstrations need; []: all."""
        keys = [] if self.asks_policy else self.discriminator_observation_keys
        return [*keys, self.action_mask_key] if keys and self.action_mask_key else keys

    def discriminator_settings(self) -> DiscriminatorSettings:
        """The settings as the discriminator reads them."""
        model, penalty = DiscriminatorModel(self.discriminator_model), self.gradient_penalty
        return DiscriminatorSettings(
            inputs=tuple(self.discriminator_inputs),
            hiddens=tuple(model.fcnet_hiddens),
            activation=model.fcnet_activation,
            normalize=model.normalize,
            lr=self.discriminator_lr,
            updates=self.discriminator_updates,
            batch_size=self.discriminator_batch_size,
            gradient_penalty=float(penalty[R1] if isinstance(penalty, Mapping) else penalty),
            penalty=R1 if isinstance(penalty, Mapping) else UNIT_NORM,
            label_smoothing=self.label_smoothing,
            reward_form=self.reward_form,
            is_shaped=self.is_shaped,
            absorbing=self.absorbing,
            gamma=self.gamma,
            generator_buffer=self.generator_buffer or 1,
            reward_normalize=self.reward_normalize,
            reward_clip=self.reward_clip,
        )


def demonstrations(algorithm: "Algorithm") -> Dataset | None:
    """Reads the demonstrations of a run; None in one that was restored to act, without them.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if they cannot be read, are of other spaces, or have too few episodes.
    """
    if isinstance(algorithm.config.demonstrations, Unread):
        return None
    config, limit = algorithm.config, wiring.time_limit_of(algorithm._rollout_settings.env)
    spaces = algorithm.observation_space, algorithm.action_space
    try:
        read = {"reads_actions": config.reads_actions, "parts_read": config.parts_read}
        dataset = data_of("demonstrations", config, *spaces, limit, **read)
    except LackingColumnError as error:
        if error.column == sb.ACTIONS and not config.is_shaped:
            clones = ", and nothing clones them (bc_coeff, bc_pretrain_updates)" if config.asks_policy else ""
            error.add_note(
                "Demonstrations of what was seen alone are imitated with .training(discriminator_inputs=['obs', "
                f"'next_obs']){clones}."
            )
        raise
    count = config.num_demonstrations
    if count is None:
        return dataset
    if count > dataset.num_episodes:
        problem = f"num_demonstrations={count}, but {dataset.source} has {dataset.num_episodes:,} episodes."
        remedies = {"num_demonstrations": dataset.num_episodes}, {"num_demonstrations": None}
        raise config.error(Mistake(problem, ("num_demonstrations", "demonstrations"), remedies))
    return dataset.taking(range(count))


def refuse_unread(config: DemonstratedConfig) -> None:
    """Refuses to learn in a run that was restored without its demonstrations.

    Raises:
        RuntimeError: if it was.
    """
    if isinstance(config.demonstrations, Unread):
        config.demonstrations.next()  # raises


def learned_reward(trainee: "Trainee", demonstrated: Dataset | None) -> LearnedReward:
    """The reward of a policy in training; its discriminator is a part that checkpoints hold."""
    config, algorithm = trainee.config, trainee.algorithm
    reward = LearnedReward(
        config.discriminator_settings(),
        trainee.policy,
        demonstrated,
        config,
        seeding.generator(algorithm.seed, seeding.DISCRIMINATOR_WEIGHTS, trainee.number),
        observation_keys=config.discriminator_observation_keys,
        action_mask_key=config.action_mask_key,
        device="cuda" if config.num_gpus and not config.num_learners else "cpu",
    )
    trainee.saved[DISCRIMINATOR_FILE] = reward.discriminator
    return reward
