"""Surroundings of user code while the local engine runs it: its context, placement, resources and environment."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import sys
from collections.abc import Iterator

from ...remote.actors import handle_from_state
from ...runtime_context import RuntimeContext
from ...runtime_env import environment_dict, merged
from ..placement_groups import PlacementGroups, Placements
from ..resources import Resources, units
from .jobs import Job
from .values import References


class Contexts:
    """The contexts of the jobs on the stack.

    Args:
        outermost: of the driver.
        environment: environment of the session.
        references: where tasks get their ids.
        resources, groups, placements: from which a job gets its resources.
    """

    def __init__(
        self,
        outermost: RuntimeContext,
        environment: str,
        references: References,
        resources: Resources,
        groups: PlacementGroups,
        placements: Placements,
    ):
        self._contexts, self._environments = [outermost], [environment]
        self._references, self._resources, self._groups, self._placements = references, resources, groups, placements

    @property
    def current(self) -> RuntimeContext:
        """Context of the running code."""
        return self._contexts[-1]

    @contextlib.contextmanager
    def running(self, job: Job) -> Iterator[None]:
        """The context in which user code runs. Only actors occupy resources: tasks run one at a time."""
        actor = job.actor
        options = actor.options if actor is not None else job.options
        placement, pool = actor.placement if actor is not None else job.placement, self._resources
        if job.placement is not None:
            pool = self._groups.pool(job.placement, units(options.request()))
        if job.creates:
            actor.pool, actor.gpu_ids, actor.holds = pool, pool.take(units(options.held())), True
        gpu_ids = actor.gpu_ids if actor is not None else pool.choose_gpus(units(options.request()))
        held = options.held() if actor is not None else options.request()
        name = actor.name if actor is not None else options.name or job.label.split(" ")[-1][:-2]
        actor_id = actor.id.hex() if actor is not None else None
        task_id = self._references.new_id().hex()
        self._contexts.append(
            dataclasses.replace(
                self._contexts[0],
                actor_id=actor_id,
                task_id=task_id,
                name=name,
                gpu_ids=gpu_ids,
                resources=held,
                placement=placement,
                was_current_actor_reconstructed=actor is not None and actor.restarts > 0,
                _make_handle=actor
                and functools.partial(handle_from_state, actor.id, actor.cls.name, actor.cls.methods_of(actor.options)),
            )
        )
        around, self._placements.current = self._placements.current, placement
        if actor is not None:
            actor.busy = True
        try:
            own = options.environment if actor is not None else options.runtime_env
            self._environments.append(merged(self._environments[-1], own))
            try:
                with _environment(environment_dict(self._environments[-1])):
                    yield
            finally:
                self._environments.pop()
        finally:
            self._contexts.pop()
            self._placements.current = around
            if actor is not None:
                actor.busy = False


def run_coroutine(coroutine):
    """Runs a coroutine to its end on a new event loop, though another loop may be running further up the stack."""
    import asyncio  # takes long, and few sessions need it

    with _no_loop_around():
        return asyncio.run(coroutine)


def run_async_generator(generator):
    """Yields the values of an async generator, which runs to its next `yield` whenever one is asked for."""
    import asyncio

    async def step():
        return await anext(generator)

    with contextlib.closing(asyncio.new_event_loop()) as loop:
        try:
            while True:
                with _no_loop_around():
                    value = loop.run_until_complete(step())
                yield value
        except StopAsyncIteration:
            return
        finally:
            with _no_loop_around():
                loop.run_until_complete(generator.aclose())


@contextlib.contextmanager
def _no_loop_around():
    import asyncio

    outer = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(outer)


@contextlib.contextmanager
def _environment(environment):
    variables, directory = environment.get("env_vars", {}), environment.get("working_dir")
    before = {name: os.environ.get(name) for name in variables}
    if directory:  # first: it may have been removed
        cwd = os.getcwd()
        os.chdir(directory)
        sys.path.insert(0, directory)
    os.environ.update(variables)
    try:
        yield
    finally:
        if directory:
            os.chdir(cwd)
            sys.path.remove(directory)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
