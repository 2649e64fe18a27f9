"""The settings of recorded data: what a run learns from instead of, or beside, its environment."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from rllib.config.config_object import ConfigObject, relation
from rllib.config.sections import Merged, above, section
from rllib.config.setting_types import shortened
from rllib.offline.options import read_options

SAMPLER = "sampler"
UPDATES_PER_ITERATION = 1000
_EMPTY: dict = {}
# Keys of input_config that are not options of reading: RLlib's, for input_="dataset".
_OF_RLLIB = ("format", "paths")


class OfflineDataConfig(ConfigObject):
    """The section offline_data."""

    # Whether the algorithm can learn from recorded steps, and whether it has to.
    learns_from_data: ClassVar[bool] = False
    needs_data: ClassVar[bool] = False
    # Why it cannot, after its name.
    without_data: ClassVar[str] = "learns from steps of its own policy, and recorded ones would be wrong"
    # Whether batches can be mixtures of sources, or of recorded and sampled steps.
    mixes_data: ClassVar[bool] = False

    @section
    def offline_data(
        self,
        *,
        input_: Annotated[
            Any,
            '"sampler": the environment; a path, pattern or list of them; arrays by name; a Dataset; or {source: share '
            'of each batch}, where "sampler" may be a source',
        ] = SAMPLER,
        input_config: Annotated[
            dict, "options of reading: dones, actions, check, on_error, policy, max_episode_steps", Merged
        ] = _EMPTY,
        input_read_schema: Annotated[dict, "our column names -> those of the files: {'obs': 'o_t'}", Merged] = _EMPTY,
        actions_in_input_normalized: Annotated[
            bool | None, "recorded actions are in [-1, 1], which spans the bounds; None: as the data tells"
        ] = None,
        input_fraction_of_best: Annotated[
            float | None, "share of the episodes, the ones with the highest returns, that is learned from", above(0)
        ] = None,
        normalize_observations: Annotated[
            bool, "observations with mean 0 and deviation 1 over the data; checkpoints act by the same numbers"
        ] = False,
        reward_scale: Annotated[float, "recorded rewards are multiplied by it", above(0, finite=True)] = 1.0,
        reward_shift: Annotated[float, "and this is added to the product"] = 0.0,
    ) -> Self:
        """Recorded steps to learn from: files, arrays, or a mixture with the environment's."""

    @property
    def algorithm_name(self) -> str:
        """Name of the algorithm, for messages."""
        return type(self).__name__.removesuffix("Config")

    @property
    def is_offline(self) -> bool:
        """Whether all samples are recorded ones."""
        return self.input_ != SAMPLER and SAMPLER not in self.shares()

    @property
    def has_data(self) -> bool:
        """Whether some samples are recorded ones."""
        return self.input_ != SAMPLER

    @property
    def normalizes_by_data(self) -> bool:
        """Whether the policy has a filter of observations with the statistics of the data."""
        return self.has_data and self.normalize_observations

    def iteration_minima(self) -> tuple[float, int, int]:
        """Seconds, steps sampled and steps trained on, after which an iteration of `train` may end.

        From recorded data alone it is so many updates, if none of the three was set: the data has no pace of its own.
        """
        names = "min_time_s_per_iteration", "min_sample_timesteps_per_iteration", "min_train_timesteps_per_iteration"
        if self.is_offline and not any(name in self.changes() for name in names):
            return 0, UPDATES_PER_ITERATION * self.train_batch_size, 0
        return tuple(self[name] or 0 for name in names)

    def shares(self) -> dict[Any, float]:
        """Source -> its share of each batch, where `input_` is a mixture; {} otherwise."""
        given = self.input_
        numbers = isinstance(given, Mapping) and all(
            isinstance(share, int | float) and not isinstance(share, bool) for share in given.values()
        )
        return dict(given) if numbers and given else {}

    def read_options(self) -> dict[str, Any]:
        """Options of reading, by the fields of ReadOptions."""
        options = {name: value for name, value in self.input_config.items() if name not in _OF_RLLIB}
        if self.input_read_schema:
            options["schema"] = self.input_read_schema
        if self.actions_in_input_normalized is not None:
            options["actions"] = "normalized" if self.actions_in_input_normalized else "environment"
        return options

    @relation("input_")
    def _check_input(self):
        name = self.algorithm_name
        if self.needs_data and not self.has_data:
            return (
                f'{name} learns from recorded data, but input_="sampler". Use .offline_data(input_="PATH"); '
                "rllib record CHECKPOINT --to PATH makes some."
            )
        if self.has_data and not self.learns_from_data:
            return (
                f"{name} {self.without_data}: input_={shortened(self.input_)}. Use BC, MARWIL, IQL or CQL, or DQN, SAC "
                "or TD3, whose replay takes them."
            )
        shares = self.shares()
        if shares and not self.mixes_data:
            return (
                f"{name} goes through all recorded rows in turn, without shares: input_={shortened(self.input_)}. Use "
                "a list of the sources, .offline_data(input_=[...])."
            )
        if shares and (min(shares.values()) <= 0 or abs(sum(shares.values()) - 1) > 1e-6):
            return (
                f"input_={shortened(self.input_)} must have shares above 0 that sum up to 1, but they sum up to "
                f"{sum(shares.values()):g}."
            )
        return None

    @relation("input_config", "input_read_schema")
    def _check_input_config(self):
        try:
            read_options(self.read_options())
        except (TypeError, ValueError) as error:
            return f"input_config={shortened(self.input_config)}: {error}"
        if self.input_ == "dataset" and "paths" not in self.input_config:
            return "input_='dataset' needs the files: .offline_data(input_config={'format': 'json', 'paths': [...]})."
        return None

    @relation("input_", "clip_rewards", "normalize_returns", "observation_filter")
    def _check_conversions(self):
        if not self.has_data:
            return None
        if self.get("normalize_returns", False) or self.get("clip_rewards", None):
            return (
                "clip_rewards and normalize_returns change rewards while they are sampled, but these are recorded. Use "
                ".offline_data(reward_scale=..., reward_shift=...)."
            )
        if self.is_offline and self.get("observation_filter", "NoFilter") != "NoFilter":
            return (
                f"observation_filter={self.observation_filter!r} counts observations while they are sampled, but these "
                "are recorded. Use .offline_data(normalize_observations=True), whose numbers come from the data."
            )
        return None
