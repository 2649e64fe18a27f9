"""The settings of recorded data: what a run learns from instead of, or in addition to, its environment."""

import dataclasses
import functools
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self

from rllib.config.config_object import ConfigObject, relation
from rllib.config.conflicts import DEFAULT, Mistake, conflict
from rllib.config.sections import Merged, Range, above, at_least, between, only_with, section
from rllib.notices import shortened
from rllib.offline.dataset import Dataset
from rllib.offline.formats import is_table
from rllib.offline.options import ReadOptions, read_options
from rllib.offline.stream import Unread
from rllib.offline.writing.rolling import MAX_FILE_SECONDS, MAX_FILE_SIZE, PACKED
from rllib.offline.writing.step_formats import OF_RUNS, checked_format, default_format
from rllib.registered import INPUTS
from rllib.replay.disk import MEMORY
from rllib.replay.gpu import GPU
from rllib.storage.local_path import expanded

SAMPLER = "sampler"
# The output that is a directory in that of the run, and the one whose path is in output_config.
LOG_DIR = "logdir"
IN_CONFIG = "dataset"
_PACKED = list(PACKED)
# Keys of output_config, unless output is a function.
_OF_OUTPUT = ("format", "path", "max_num_samples_per_file")
UPDATES_PER_ITERATION = 1000
_EMPTY: dict = {}
_NO_DATA = "input_='sampler' is no recorded data"
_NOT_READ = "no data is read by it: input_ is 'sampler', or a Dataset, which was read before"
# Keys of input_config that are not options of reading: RLlib's, for input_="dataset".
_OF_RLLIB = ("format", "paths")


# Settings that say how long an iteration is at least.
_MINIMA = "min_time_s_per_iteration", "min_sample_timesteps_per_iteration", "min_train_timesteps_per_iteration"


def _is_twice_as_long(minimum: str, config) -> bool:
    """Whether a minimum and dataset_num_iters_per_learner both say how long an iteration is."""
    return config.is_offline and config.dataset_num_iters_per_learner is not None and minimum in config.changes()


class OfflineDataConfig(ConfigObject):
    """The section offline_data."""

    # Whether the algorithm can learn from recorded steps, and whether it has to.
    learns_from_data: ClassVar[bool] = False
    needs_data: ClassVar[bool] = False
    # Whether its workers have steps, which can be written; the ones of evolution have returns alone.
    has_steps: ClassVar[bool] = True
    # Why it cannot, after its name.
    without_data: ClassVar[str] = "learns from its own policy's steps, and recorded ones would be wrong"
    # Whether batches can be mixtures of sources, or of recorded and sampled steps.
    mixes_data: ClassVar[bool] = False

    @section
    def offline_data(
        self,
        *,
        input_: Annotated[
            Any,
            '"sampler": the environment; a path, pattern, "minari:ID" or list of them; arrays by name, a table, a '
            "Dataset; a function of an IOContext, or its registered name; or {source: share of each batch}, where "
            '"sampler" may be a source',
        ] = SAMPLER,
        input_config: Annotated[
            dict,
            "options of reading: dones, actions, densities, check, on_error, policy, max_episode_steps, ends",
            Merged,
            only_with("_reads_data", otherwise=_NOT_READ),
        ] = _EMPTY,
        input_read_schema: Annotated[
            dict,
            "our column names -> those of the files: {'obs': 'o_t'}, or {'obs': ['x', 'y']} of single numbers",
            Merged,
            only_with("_reads_data", otherwise=_NOT_READ),
        ] = _EMPTY,
        actions_in_input_normalized: Annotated[
            bool | None,
            "recorded actions are in [-1, 1], which spans the bounds; None: as the data tells",
            only_with("_reads_data", otherwise=_NOT_READ),
        ] = None,
        input_fraction_of_best: Annotated[
            float | None,
            "share of the episodes, the ones with the highest returns, that is learned from",
            Range(0, 1, low_open=True),
            only_with("has_data", otherwise=_NO_DATA),
        ] = None,
        dataset_num_iters_per_learner: Annotated[
            int | None,
            "updates of an iteration from recorded data alone; None: 1,000, unless .reporting() sets least numbers",
            at_least(1),
        ] = None,
        offline_validation_fraction: Annotated[
            float, "share of the episodes, drawn at random, that is not learned from but evaluated on", between(0, 1)
        ] = 0.0,
        normalize_observations: Annotated[
            bool,
            "observations with mean 0 and deviation 1 over the data; checkpoints act by the same numbers",
            only_with("has_data", otherwise=_NO_DATA),
        ] = False,
        offline_memory: Annotated[
            int | str,
            'bytes that recorded data may take in memory; more is kept in files of a temporary directory. "auto": half '
            "of what is free",
            only_with("_reads_data", otherwise=_NOT_READ),
        ] = "auto",
        reward_scale: Annotated[
            float,
            "recorded rewards are multiplied by it",
            above(0, finite=True),
            only_with("has_data", otherwise=_NO_DATA),
        ] = 1.0,
        reward_shift: Annotated[
            float, "and this is added to the product", only_with("has_data", otherwise=_NO_DATA)
        ] = 0.0,
        output: Annotated[
            Any,
            'sampled steps are written: a directory; "logdir": `output` in that of the run; "dataset": the path in '
            "output_config; a function of an IOContext that returns a writer with write(batch); None: they are not",
        ] = None,
        output_config: Annotated[
            dict,
            'format ("parquet", "json" or "npz") and path; for a function, what it reads in the IOContext',
            Merged,
            only_with("output"),
        ] = _EMPTY,
        output_compress_columns: Annotated[
            list[str], "columns that files of JSON have packed; []: none", only_with("output")
        ] = _PACKED,
        output_max_file_size: Annotated[
            int, "bytes after which the next file begins", above(0), only_with("output")
        ] = MAX_FILE_SIZE,
        output_max_rows_per_file: Annotated[
            int | None, "steps after which the next file begins; None: any number", above(0), only_with("output")
        ] = None,
        output_max_file_seconds: Annotated[
            float,
            "seconds after which the next file begins; a killed process loses the open one",
            above(0),
            only_with("output"),
        ] = MAX_FILE_SECONDS,
        output_write_episodes: Annotated[
            bool,
            "an episode is written when it is over, its steps together; False: fragment by fragment",
            only_with("output"),
        ] = True,
    ) -> Self:
        """Recorded steps: files, arrays, or a mixture with the environment's to learn from, and files to write."""

    @property
    def algorithm_name(self) -> str:
        """Name of the algorithm, for messages."""
        return type(self).__name__.removesuffix("Config")

    @property
    def is_offline(self) -> bool:
        """Whether all samples are recorded ones."""
        return self.has_data and SAMPLER not in self.shares()

    def mistakes(self, undecided: Collection[str] = ()) -> Iterator[Mistake]:
        """All mistakes in the settings, without remedies that take the data from an algorithm that needs it."""
        for mistake in super().mistakes(undecided):
            kept = [each for each in mistake.remedies if not (self.needs_data and each.get("input_") == "sampler")]
            yield dataclasses.replace(mistake, remedies=tuple(kept)) if kept else mistake

    @property
    def has_data(self) -> bool:
        """Whether some samples are recorded ones."""
        return not (isinstance(self.input_, str) and self.input_ == SAMPLER)  # a table compares each of its cells

    @property
    def normalizes_by_data(self) -> bool:
        """Whether the policy has a filter of observations with the statistics of the data."""
        return self.has_data and self.normalize_observations

    @property
    def storage_on_disk(self) -> str | None:
        """ "disk" or the directory where the replay is kept; None if it is in memory or on a GPU, or there is none."""
        storage = (self.get("replay_buffer_config", None) or {}).get("storage", MEMORY)
        return None if storage in (MEMORY, GPU) else storage

    def iteration_minima(self) -> tuple[float, int, int]:
        """Seconds, steps sampled and steps trained on, after which an iteration of `train` may end.

        All are 0 where `updates_per_iteration` says it.
        """
        if self.updates_per_iteration:
            return 0, 0, 0
        return tuple(self[name] or 0 for name in _MINIMA)

    @property
    def updates_per_iteration(self) -> int:
        """Updates after which an iteration from recorded data alone may end; 0: its minima say it.

        It is dataset_num_iters_per_learner, or UPDATES_PER_ITERATION if neither that nor a minimum was set.
        """
        if not self.is_offline:
            return 0
        if self.dataset_num_iters_per_learner is not None:
            return self.dataset_num_iters_per_learner
        return 0 if any(name in self.changes() for name in _MINIMA) else UPDATES_PER_ITERATION

    # [(the function in `input_`, what it has returned)], until that is taken.
    _made_input: Sequence[tuple[Any, Any]] = ()

    def keep_input(self, made: Any) -> None:
        """Keeps what the function in `input_` has returned, so that it need not be called a second time."""
        self._made_input = [(self.input_, made)]

    def take_input(self, function: Callable) -> tuple[Any, ...]:
        """(what the function has returned,) once if it is kept, else ()."""
        kept = self._made_input
        return (kept.pop()[1],) if kept and kept[0][0] is function else ()

    def shares(self) -> dict[Any, float]:
        """Source -> its share of each batch, where `input_` is a mixture; {} otherwise."""
        given = self.input_
        numbers = isinstance(given, Mapping) and all(
            isinstance(share, int | float) and not isinstance(share, bool) for share in given.values()
        )
        return dict(given) if numbers and given else {}

    @property
    def has_user_reader(self) -> bool:
        """Whether a function of the user's makes a source, which may read its own keys in input_config."""
        return any(callable(each) or (isinstance(each, str) and each in INPUTS) for each in self.sources())

    def sources(self) -> list[Any]:
        """What `input_` names, without "sampler"."""
        given = list(self.shares()) or [self.input_]
        return [each for each in given if not (isinstance(each, str) and each == SAMPLER)]

    def read_options(self) -> dict[str, Any]:
        """Options of reading, by the fields of ReadOptions."""
        known = [field.name for field in dataclasses.fields(ReadOptions)] if self.has_user_reader else self.input_config
        options = {name: self.input_config[name] for name in known if name in self.input_config}
        options = {name: value for name, value in options.items() if name not in _OF_RLLIB}
        if self.input_read_schema:
            options["schema"] = self.input_read_schema
        if self.actions_in_input_normalized is not None:
            options["actions"] = "normalized" if self.actions_in_input_normalized else "environment"
        return options

    def output_path(self) -> str:
        """Path of the directory that `output` names."""
        return os.fspath(self.output_config["path"] if self.output == IN_CONFIG else self.output)

    def output_format(self) -> str:
        """Format of the files that are written."""
        return self.output_config.get("format") or default_format()

    conflicts = (
        conflict(
            "output",
            "input_",
            when=lambda config: config.output is not None and config.is_offline,
            why="sampled steps are written, but all are recorded ones",
            remedies=[{"output": None}],
        ),
        conflict(
            "output",
            when=lambda config: config.output is not None and not config.has_steps,
            why="algorithms that play whole episodes, such as ES, keep no steps",
            remedies=[{"output": None}],
        ),
        conflict(
            "clip_rewards",
            "input_",
            when=lambda config: config.clip_rewards and config.has_data,
            why="it changes rewards while they are sampled, but these are recorded",
            remedies=[{"clip_rewards": None}],
            note="reward_scale and reward_shift change recorded ones.",
        ),
        conflict(
            "normalize_returns",
            "input_",
            when=lambda config: config.normalize_returns and config.has_data,
            why="it changes rewards while they are sampled, but these are recorded",
            remedies=[{"normalize_returns": False}],
            note="reward_scale and reward_shift change recorded ones.",
        ),
        conflict(
            "time_limit_ends_episode",
            "input_",
            when=lambda config: config.time_limit_ends_episode and config.has_data,
            why="it changes flags while steps are sampled, but these are recorded",
            remedies=[{"time_limit_ends_episode": False}],
            note="input_config={'dones': 'terminated'} takes recorded ends for terminations, where one flag says both.",
        ),
        conflict(
            ("observation_filter", "MeanStdFilter"),
            "input_",
            when=lambda config: config.observation_filter != "NoFilter" and config.has_data,
            why="it counts observations while they are sampled, but these are recorded",
            remedies=[
                {"observation_filter": "NoFilter", "normalize_observations": True},
                {"observation_filter": "NoFilter"},
            ],
            note="The numbers of normalize_observations come from the data.",
        ),
        conflict(
            "reward_scale",
            "reward_shift",
            "input_",
            when=lambda config: config._scales_a_part,
            why="they change recorded rewards, but not those of the sampler that they are mixed with",
            remedies=[{"reward_scale": 1.0, "reward_shift": 0.0}],
            note="A wrapper changes the environment's rewards, and the recorded ones are changed in the data.",
        ),
        conflict(
            "offline_validation_fraction",
            "input_",
            when=lambda config: config.offline_validation_fraction and not config.has_data,
            why="recorded episodes are held back, and there are none",
            remedies=[{"offline_validation_fraction": 0.0}],
            examples=[{"input_": "PATH"}],
        ),
        conflict(
            ("offline_validation_fraction", 1.0),
            why="it would leave nothing to learn from",
            remedies=[{"offline_validation_fraction": 0.1}],
        ),
        conflict(
            "dataset_num_iters_per_learner",
            "input_",
            when=lambda config: config.dataset_num_iters_per_learner is not None and not config.is_offline,
            why="it counts updates from recorded data alone, but some samples are the environment's",
            remedies=[
                {
                    "dataset_num_iters_per_learner": None,
                    "min_train_timesteps_per_iteration": lambda config: (
                        config.dataset_num_iters_per_learner * config.train_batch_size
                    ),
                },
                {"dataset_num_iters_per_learner": None},
            ],
        ),
        *(
            conflict(
                "dataset_num_iters_per_learner",
                minimum,
                when=functools.partial(_is_twice_as_long, minimum),
                reads=("input_",),
                why="both say how long an iteration is",
                remedies=[{"dataset_num_iters_per_learner": None}, {minimum: DEFAULT}],
            )
            for minimum in _MINIMA
        ),
    )

    @relation("output", "output_config", "input_")
    def _check_output(self) -> Mistake | None:
        """`output` names a directory of this machine, or is a function; `output_config` has known keys."""
        if self.output is None or callable(self.output) or not self.has_steps or self.is_offline:
            return None
        names, without = ("output", "output_config"), {"output": None}
        if not isinstance(self.output, str | os.PathLike):
            given = shortened(self.output)
            problem = f"output={given} must be a directory, 'logdir', or a function that makes a writer."
            return Mistake(problem, names, ({"output": LOG_DIR}, without))
        if unknown := [name for name in self.output_config if name not in _OF_OUTPUT]:
            problem = f"output_config has {', '.join(map(repr, unknown))}, but its keys are {', '.join(_OF_OUTPUT)}."
            return Mistake(problem, names, ({"output_config": {}} if self.output != IN_CONFIG else without,))
        if self.output == IN_CONFIG and "path" not in self.output_config:
            example = {"output_config": {"format": "json", "path": "DIRECTORY"}}
            return Mistake("output='dataset' needs a directory.", names, (without,), examples=(example,))
        try:
            checked_format(self.output_format(), OF_RUNS)
        except ValueError as error:
            problem = f"output_config={shortened(self.output_config)}: {error}"
            return Mistake(problem, names, ({"output_config": {"format": default_format()}},), advice=None)
        if "://" in (path := expanded(self.output_path())):
            problem = f"output={path!r} is not on this machine."
            return Mistake(problem, names, (without,), advice="Give a directory, and copy the files afterwards.")
        return None

    @relation("input_")
    def _check_input(self) -> Mistake | None:
        """`input_` is data where the algorithm needs it, and none where it cannot learn from it; shares sum up to 1."""
        name, given = self.algorithm_name, shortened(self.input_)
        if self.needs_data and not self.has_data:
            return Mistake(
                f"{name} learns from recorded data, but input_='sampler'.",
                ("input_",),
                examples=({"input_": "PATH"},),
                note="rllib record CHECKPOINT --to PATH makes some.",
            )
        if self.has_data and not self.learns_from_data:
            return Mistake(
                f"{name} {self.without_data}: input_={given}.",
                ("input_",),
                ({"input_": SAMPLER},),
                note="BC, MARWIL, IQL or CQL learn from recorded steps, and DQN, SAC or TD3, whose replay takes them.",
            )
        shares = self.shares()
        if list(shares) == [SAMPLER]:
            return Mistake(f"input_={given} is the environment alone.", ("input_",), ({"input_": SAMPLER},))
        for source in shares or [self.input_]:
            if (problem := no_source(source)) is not None:
                remedies = () if self.needs_data else ({"input_": SAMPLER},)
                return Mistake(f"input_={given}: {problem}", ("input_",), remedies, examples=({"input_": "PATH"},))
        if shares and not self.mixes_data:
            recorded = [source for source in shares if source != SAMPLER]
            problem = f"{name} goes through all recorded rows in turn, without shares: input_={given}."
            return Mistake(problem, ("input_",), ({"input_": recorded},))
        if shares and (min(shares.values()) <= 0 or abs(sum(shares.values()) - 1) > 1e-6):
            problem = (
                f"input_={given} must have shares above 0 that sum up to 1, but the least is "
                f"{min(shares.values()):g}, and they sum up to {sum(shares.values()):g}."
            )
            return Mistake(problem, ("input_",), ({"input_": _summing_up(shares)},))
        return None

    @relation("input_config", "input_read_schema", "actions_in_input_normalized")
    def _check_input_config(self) -> Mistake | None:
        """`input_config` has the options of reading, and with input_="dataset" the paths."""
        names = "input_config", "input_read_schema", "actions_in_input_normalized"
        try:
            read_options(self.read_options())
        except (TypeError, ValueError) as error:
            problem = str(error)
            if "input_read_schema" not in problem:
                problem = f"input_config={shortened(self.input_config)}: {problem}"
            defaults = {name: self.settings[name].default for name in names}
            return Mistake(problem, names, (defaults,), advice=None)
        is_dataset = isinstance(self.input_, str) and self.input_ == "dataset"
        if is_dataset and "paths" not in self.input_config:
            return Mistake(
                "input_='dataset' needs the files.",
                ("input_", "input_config"),
                ({"input_": SAMPLER},),
                advice="Use .offline_data(input_config={'format': 'json', 'paths': [...]}).",
            )
        return None

    @relation("offline_memory")
    def _check_memory_of_data(self) -> Mistake | None:
        """`offline_memory` is "auto", or bytes >= 1."""
        given = self.offline_memory
        if given != "auto" and (isinstance(given, bool) or not isinstance(given, int) or given < 1):
            problem = f"offline_memory={shortened(given)} must be 'auto' or bytes, at least 1."
            return Mistake(problem, ("offline_memory",), ({"offline_memory": "auto"},), note="8 * 2**30 are 8 GiB.")
        return None

    @property
    def _scales_a_part(self) -> bool:
        """Whether the recorded ones of mixed rewards are changed alone."""
        return SAMPLER in self.shares() and (self.reward_scale, self.reward_shift) != (1.0, 0.0)


def no_source(source: Any) -> str | None:
    """Why no data can be read from what `input_` names; None if it may be."""
    if isinstance(source, list | tuple):
        if source and all(isinstance(each, str | os.PathLike) for each in source):
            return None
        return "a list is one of paths. Datasets and arrays are joined by Dataset.concat([...])."
    if isinstance(source, Mapping) and not source:
        return "there is no column."
    if isinstance(source, str | os.PathLike | Mapping | Dataset | Unread) or callable(source) or is_table(source):
        return None
    return (
        "data is a path, a pattern or a list of them, arrays by name, a table, a Dataset, or a function that returns "
        f"one of these, but this is {type(source).__name__}."
    )


def _summing_up(shares: Mapping[Any, float]) -> dict[Any, float]:
    """The shares above 0 divided by their sum; equal ones where there are none."""
    positive = {source: share for source, share in shares.items() if share > 0} or dict.fromkeys(shares, 1.0)
    return {source: round(share / sum(positive.values()), 9) for source, share in positive.items()}
