"""Scripted episodes as recorded data: in every format that is read, by our writers and as others write them."""

import json
from dataclasses import dataclass

import msgspec
import numpy as np
from gymnasium.spaces import Box, Discrete

from rllib.offline import Dataset
from tests.witness.checks import Step
from tests.witness.doors.scripted import ACTION_SPACE, OBSERVATION_SPACE
from tests.witness.script import ACTION_REWARD, BOTH, TERMINATED, Episode, Family, episode, observation

BOX = Box(-1.0, 1.0, (1,), np.float32)


@dataclass(frozen=True)
class Recording:
    """Whole episodes of one agent.

    Attributes:
        family: of the scripts.
        serials, num_episodes: names of the episodes.
        is_box: whether actions are numbers in [-1, 1], not choices.
    """

    family: Family
    serials: range = range(3)
    num_episodes: int = 7
    is_box: bool = False

    @property
    def action_space(self) -> Box | Discrete:
        return BOX if self.is_box else ACTION_SPACE

    @property
    def scripts(self) -> list[Episode]:
        return [episode(self.family, serial, number) for serial in self.serials for number in range(self.num_episodes)]

    def steps(self) -> dict[Step, float]:
        """The action of each step."""
        return {
            (script.serial, script.number, 0, i): self._action(script, i)
            for script in self.scripts
            for i in range(len(script.events))
        }

    def _action(self, script: Episode, i: int) -> float:
        drawn = int(np.random.default_rng((script.serial, script.number, i)).integers(8))
        return (drawn - 3.5) / 4 if self.is_box else float(drawn % 2)

    def of(self, script: Episode) -> dict[str, np.ndarray]:
        """The columns of an episode."""
        life, count = script.lives[0], len(script.events)
        seen = np.stack([observation(script.serial, script.number, 0, i) for i in range(count + 1)])
        actions = np.array([self._action(script, i) for i in range(count)], np.float32 if self.is_box else np.int64)
        end, is_last = script.events[-1].end, np.arange(count) == count - 1
        return {
            "obs": seen[:-1],
            "new_obs": seen[1:],
            "actions": actions[:, None] if self.is_box else actions,
            "rewards": (np.array(life.rewards) + ACTION_REWARD * actions).astype(np.float32),
            "terminateds": is_last & (end in (TERMINATED, BOTH)),
            "truncateds": is_last & (end != TERMINATED),
            "eps_id": np.full(count, script.serial * 100 + script.number),
            "t": np.arange(count),
        }

    def columns(self) -> dict[str, np.ndarray]:
        """The columns of all episodes, one after the other."""
        parts = [self.of(script) for script in self.scripts]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def dataset(self) -> Dataset:
        spaces = {"observation_space": OBSERVATION_SPACE, "action_space": self.action_space}
        return Dataset.from_columns(self.columns(), **spaces)


def _saved(ending):
    def write(recording, folder):
        recording.dataset().save(folder / f"steps.{ending}")
        return folder / f"steps.{ending}"

    return write


def _interleaved(recording, folder):
    """Arrays with a row of each episode in turn."""
    columns = recording.columns()
    order = np.lexsort((columns["eps_id"], columns["t"]))
    return {name: column[order] for name, column in columns.items()}


def _table(recording, folder):
    import pandas

    columns = recording.columns()
    return pandas.DataFrame({name: list(column) if column.ndim > 1 else column for name, column in columns.items()})


def _d4rl(recording, folder):
    """Without next observations."""
    import h5py

    columns = recording.columns()
    names = {"observations": "obs", "actions": "actions", "rewards": "rewards"}
    names |= {"terminals": "terminateds", "timeouts": "truncateds"}
    with h5py.File(folder / "steps.hdf5", "w") as file:
        for theirs, ours in names.items():
            file[theirs] = columns[ours]
    return folder / "steps.hdf5"


def _ray_lines(recording, folder):
    """A batch of two episodes a line, as RLlib's JsonWriter leaves them without compression."""
    parts = [recording.of(script) for script in recording.scripts]
    with open(folder / "output-1.json", "w") as file:
        for pair in zip(parts[::2], [*parts[1::2], None]):
            line = {"type": "SampleBatch"}
            for name in parts[0]:
                line[name] = np.concatenate([part[name] for part in pair if part is not None]).tolist()
            file.write(json.dumps(line) + "\n")
    return folder


def _ray_agents(recording, folder):
    """MultiAgentBatches, of which another policy has rows as well."""
    with open(folder / "output-1.json", "w") as file:
        for script in recording.scripts:
            columns = {name: column.tolist() for name, column in recording.of(script).items()}
            other = {name: column[:1] for name, column in columns.items()}
            batches = {"p": columns, "q": other}
            file.write(json.dumps({"type": "MultiAgentBatch", "count": 1, "policy_batches": batches}) + "\n")
    return folder


def _step_lines(recording, folder):
    """A step a line."""
    columns = recording.columns()
    with open(folder / "steps.jsonl", "w") as file:
        for row in range(len(columns["obs"])):
            file.write(json.dumps({name: column[row].tolist() for name, column in columns.items()}) + "\n")
    return folder


def _packed(array):
    """An array as msgpack_numpy writes it."""
    array = np.asarray(array)
    return {b"nd": True, b"type": array.dtype.str, b"kind": b"", b"shape": array.shape, b"data": array.tobytes()}


def _ray_episodes(recording, folder):
    """Ray's newest form: a column `item` with an episode a row."""
    import pyarrow
    import pyarrow.parquet

    def buffer(values):
        return {"data": _packed(values), "lookback": 0, "finalized": True, "space": None}

    items = []
    for script in recording.scripts:
        columns = recording.of(script)
        seen = np.concatenate([columns["obs"], columns["new_obs"][-1:]])
        state = {
            "id_": f"{script.serial}-{script.number}", "agent_id": None, "observations": buffer(seen),
            "actions": buffer(columns["actions"]), "rewards": buffer(columns["rewards"]), "infos": None,
            "extra_model_outputs": None, "is_terminated": bool(columns["terminateds"][-1]),
            "is_truncated": bool(columns["truncateds"][-1]), "t_started": 0, "t": len(columns["t"]),
        }  # fmt: skip
        items.append(msgspec.msgpack.encode(state))
    table = pyarrow.table({"item": pyarrow.array(items, pyarrow.binary())})
    pyarrow.parquet.write_table(table, folder / "steps.parquet")
    return folder / "steps.parquet"


def _minari(recording, folder):
    """The variable MINARI_DATASETS_PATH names the folder."""
    import minari
    from minari.data_collector import EpisodeBuffer

    buffers = []
    for number, script in enumerate(recording.scripts):
        columns = recording.of(script)
        buffers.append(
            EpisodeBuffer(
                id=number,
                observations=np.concatenate([columns["obs"], columns["new_obs"][-1:]]),
                actions=columns["actions"],
                rewards=columns["rewards"].tolist(),
                terminations=columns["terminateds"].tolist(),
                truncations=columns["truncateds"].tolist(),
            )
        )
    spaces = {"observation_space": OBSERVATION_SPACE, "action_space": recording.action_space}
    minari.create_dataset_from_buffers("witness/steps-v0", buffer=buffers, **spaces)
    return "minari:witness/steps-v0"


# Name of a form -> function of a Recording and a folder that writes it and returns what `input_` names.
FORMS = {
    "arrays": lambda recording, folder: recording.columns(),
    "dataset": lambda recording, folder: recording.dataset(),
    "interleaved": _interleaved,
    "table": _table,
    **{ending: _saved(ending) for ending in ("json", "npz", "parquet", "hdf5")},
    "d4rl": _d4rl,
    "ray_lines": _ray_lines,
    "ray_agents": _ray_agents,
    "step_lines": _step_lines,
    "ray_episodes": _ray_episodes,
    "minari": _minari,
}
# Forms that do not say what followed an episode's last step.
WITHOUT_NEXT = ("d4rl",)
