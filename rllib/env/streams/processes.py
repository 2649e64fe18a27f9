"""A stream over N environments that run in a process each, and are stepped at the same time."""

from rllib.env.streams.process import EnvironmentProcess
from rllib.env.streams.sync import SyncStream


class ProcessStream(SyncStream):
    """A SyncStream over `EnvironmentProcess`es: every call is sent to all of them before the first answer is awaited.

    What each of them does is the same as in a loop, so transitions are the same bits. One that hangs or dies raises,
    and is replaced alone, as one that fails in a loop.

    Args:
        as for SyncStream; `envs` are processes whose environments are still being made.
    """

    def reset(self, buffers):
        for process, seed in zip(self._processes(), self._seeds):
            process.begin("reset", seed)
        super().reset(buffers)

    def step(self, actions, buffers, active=None):
        commands = self._to_python(actions)
        for index, (process, command) in enumerate(zip(self._processes(), commands)):
            if active is None or active[index]:
                process.begin("step", command)
        return super().step(actions, buffers, active)

    def close(self):
        for process in self._processes():
            process.begin_close()
        super().close()

    def _begin_resets(self, indices):
        if self._observer is None:  # which may look at an environment before it is reset
            processes = self._processes()
            for index in indices:
                processes[index].begin("reset", self._seeds[index])

    def _processes(self) -> list[EnvironmentProcess]:
        """The processes, without the adapters around environments of the old gym API."""
        return [env if isinstance(env, EnvironmentProcess) else env.env for env in self._envs]
