"""GAIL: generative adversarial imitation learning (Ho and Ermon, arXiv:1606.03476).

PPO with another reward. A discriminator learns to tell the policy's steps from demonstrated ones, and a step is
rewarded by how much it is taken for the expert's: no reward of the environment is needed. Departures from the paper:
PPO in place of TRPO, and those of rllib/imitation/discriminator.py.

A reward that is always above 0 ("gail") makes longer episodes better, and one always below 0 ("log_d") shorter ones,
whatever the expert does. With `absorbing=True` terminated episodes go on in a state with a learned reward of its own
(DAC, arXiv:1809.02925), so that the end of an episode is imitated, too.
"""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np

from rllib import sample_batch as sb
from rllib.algorithms.base import wiring
from rllib.algorithms.base.recorded.data import data_of
from rllib.algorithms.base.recorded.settings import no_source
from rllib.algorithms.ppo import PPO, PPOConfig, PPOTrainee
from rllib.config.config_object import relation
from rllib.config.conflicts import Mistake, conflict
from rllib.config.nested import NestedSettings
from rllib.config.sections import Checked, Keys, Merged, above, at_least, between, section
from rllib.evaluation import seeding
from rllib.evaluation.postprocess.advantages import AdvantageEstimator, RecomputedAdvantages
from rllib.imitation.learned_reward import LearnedReward
from rllib.imitation.settings import (
    ACTION,
    INPUTS,
    NEXT_OBSERVATION,
    OBSERVATION,
    R1,
    UNIT_NORM,
    DiscriminatorSettings,
)
from rllib.losses.discriminator import REWARD_FORMS
from rllib.models.arithmetic.activations import ACTIVATION_NAMES
from rllib.notices import shortened
from rllib.offline.dataset import Dataset
from rllib.offline.stream import Unread
from rllib.sample_batch import SampleBatch

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


class GAILConfig(PPOConfig):
    """Settings of GAIL: a PPOConfig whose reward is learned from demonstrations."""

    without_memory: ClassVar[str] = "a discriminator reads single steps, and values are computed without a state"

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
        lr=3e-4,
        lambda_=0.95,
        train_batch_size=2048,
        sgd_minibatch_size=256,
        num_sgd_iter=4,
        clip_param=0.2,
        kl_coeff=0.0,
        # Values of absorbing states are far from 0.
        vf_clip_param=None,
        grad_clip=0.5,
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
        discriminator_lr: Annotated[float, "its learning rate (Adam)", above(0, finite=True)] = 3e-4,
        discriminator_updates: Annotated[int, "its gradient steps on each train batch", at_least(1)] = 16,
        discriminator_batch_size: Annotated[int, "rows of each side in one of them", at_least(1)] = 256,
        gradient_penalty: Annotated[
            float | dict,
            "weight of (|gradient of the logit| - 1)^2 at rows between both sides'; or {'r1': weight} of |gradient|^2 "
            "at the expert's; 0: none",
            Checked(_is_penalty, "a number of 0 or more, or {'r1': number}"),
        ] = 10.0,
        label_smoothing: Annotated[float, "weight of the other side's label", between(0, 0.5)] = 0.0,
        reward_form: Annotated[
            Literal[tuple(REWARD_FORMS)],
            'reward of a logit l, where D = sigmoid(l) is 1 for the expert: "gail" -log(1 - D), "airl" l, "log_d" '
            'log D, "fairl" -l e^l, "lsgan" max(0, 1 - (l - 1)^2 / 4) with a least-squares loss',
        ] = "gail",
        absorbing: Annotated[
            bool,
            "terminated episodes go on in a state with a learned reward r, worth r / (1 - gamma); False: they are "
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

    refuses: ClassVar[dict[str, str]] = {"use_critic": "values of learned rewards are bootstrapped from"}
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
            ("observation_filter", "MeanStdFilter"),
            "demonstrations",
            when=lambda config: config.observation_filter != "NoFilter",
            why="steps that are sampled would be filtered, and demonstrated ones are not",
            remedies=[{"observation_filter": "NoFilter"}],
            note="The discriminator has statistics of its own.",
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
        return True  # demonstrations

    @property
    def is_shaped(self) -> bool:
        """Whether the logit is AIRL's."""
        return False

    @property
    def reads_next_observations(self) -> bool:
        """Whether the discriminator reads what followed each step."""
        return NEXT_OBSERVATION in self.discriminator_inputs

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


class GAILTrainee(PPOTrainee):
    """A policy that learns by PPO from a reward that is learned from demonstrations.

    Attributes:
        reward: replaces the rewards of train batches (rllib/imitation/learned_reward.py); None in an algorithm that was
            restored to act, without demonstrations.
    """

    def prepare(self) -> None:
        super().prepare()
        config, algorithm = self.config, self.algorithm
        self.reward: LearnedReward | None = None
        if isinstance(config.demonstrations, Unread):
            return
        rng = seeding.generator(algorithm.seed, seeding.DISCRIMINATOR_WEIGHTS, self.number)
        self.reward = LearnedReward(
            config.discriminator_settings(),
            self.policy,
            demonstrations(algorithm),
            config,
            rng,
            observation_keys=config.discriminator_observation_keys,
            action_mask_key=config.action_mask_key,
            device="cuda" if config.num_gpus and not config.num_learners else "cpu",
        )
        self.saved[DISCRIMINATOR_FILE] = self.reward.discriminator

    def update(self, batch: SampleBatch, now: int) -> dict[str, Any]:
        """Trains the discriminator on a train batch, then learns from its rewards; see PPOTrainee."""
        config, coefficients = self.config, self.scheduled("imitation_coeff", "task_reward_coeff", at=now)
        if self.reward is None:
            config.demonstrations.next()  # raises
        with self.algorithm.metrics.timer("learn"):
            found = self.reward.add_to(batch, self.rng, *coefficients.values())
            lambda_ = config.lambda_ if config.use_gae else 1.0
            steps = RecomputedAdvantages(batch, self.policy, config.gamma, lambda_, standardize=False).steps
        if self.novelty is None and not config.recompute_advantages:
            return super().update(steps, now) | found
        for name in (sb.ADVANTAGES, sb.VALUE_TARGETS):
            batch[name] = np.zeros(batch.count, np.float32)
            batch[name][batch[sb.LOSS_MASK]] = steps[name]
        return super().update(batch, now) | found


def demonstrations(algorithm: "GAIL") -> Dataset:
    """Reads the demonstrations of a run.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if they cannot be read, are of other spaces, or have too few episodes.
    """
    config, limit = algorithm.config, wiring.time_limit_of(algorithm._rollout_settings.env)
    dataset = data_of("demonstrations", config, algorithm.observation_space, algorithm.action_space, limit)
    count = config.num_demonstrations
    if count is None:
        return dataset
    if count > dataset.num_episodes:
        problem = f"num_demonstrations={count}, but {dataset.source} has {dataset.num_episodes:,} episodes."
        remedies = {"num_demonstrations": dataset.num_episodes}, {"num_demonstrations": None}
        raise config.error(Mistake(problem, ("num_demonstrations", "demonstrations"), remedies))
    return dataset.taking(range(count))


class GAIL(PPO):
    """Imitation by PPO and a discriminator."""

    config_class = GAILConfig
    trainee_class = GAILTrainee
    takes_tensors = False
    trains_several = False
    samples_sequences = True
    reported_stats = (
        *PPO.reported_stats,
        "imitation_reward_mean", "absorbing_reward", "discriminator_accuracy_expert", "discriminator_accuracy_policy",
        "discriminator_loss", "discriminator_entropy", "gradient_penalty",
    )  # fmt: skip

    def learned_reward(
        self, observations: Any, actions: Any, next_observations: Any = None, terminateds: np.ndarray | None = None
    ) -> np.ndarray:
        """What has been learned of steps: the reward of `reward_form`, before it is divided; of AIRL g.

        Args:
            observations, actions: [B, ...] each as the environment gives and takes them; of Dict and Tuple spaces dicts
                and tuples of such arrays.
            next_observations: the observations after the actions, where `discriminator_inputs` has "next_obs".
            terminateds: bool [B], where it has "terminated"; None: no step ends an episode.

        Returns:
            float32 [B].

        Raises:
            ValueError: for next observations that are missing, and for values that are not of the spaces.
        """
        if next_observations is None and NEXT_OBSERVATION in self.config.discriminator_inputs:
            raise ValueError("the discriminator reads next_obs: give next_observations, too")
        columns = {sb.OBS: observations, sb.ACTIONS: actions}
        more = {sb.NEXT_OBS: next_observations, sb.TERMINATEDS: terminateds}
        columns |= {name: column for name, column in more.items() if column is not None}
        spaces = {"observation_space": self.observation_space, "action_space": self.action_space}
        return self.trainee.reward.of(Dataset.from_columns(columns, source="the steps", check=False, **spaces))

    def make_postprocess(self, policy_id: str) -> AdvantageEstimator:
        estimator = super().make_postprocess(policy_id)
        if not self.config.reads_next_observations:
            return estimator
        return dataclasses.replace(estimator, every_final_observation=True)
