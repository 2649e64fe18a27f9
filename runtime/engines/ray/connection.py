"""The connection of a driver to a Ray cluster."""

from __future__ import annotations

import logging
import os
import socket
import sys

import ray

from ... import worker_imports
from ...errors import RuntimeFailure
from ..base import EngineConfig
from .engine import RayEngine, report_unseen_errors
from .worker import Session

CONNECT_S = 5.0
START_ONLY = ("num_cpus", "num_gpus", "resources", "object_store_memory")


def start(config: EngineConfig) -> RayEngine:
    """Joins the cluster that `address` or RAY_ADDRESS names, or one of this machine, or starts one here.

    Raises:
        ConnectionError: no cluster answers.
        ValueError: arguments that only the start of a cluster takes, together with an address.
    """
    owns_connection = not ray.is_initialized()
    if owns_connection:
        _connect(config)
    preload = (*worker_imports.names(), *config.preload)
    try:
        engine = RayEngine(Session(os.urandom(8).hex(), preload, tuple(sys.path), RayEngine), owns_connection)
        engine.resources()
    except BaseException:
        if owns_connection:
            ray.shutdown()
        raise
    report_unseen_errors(engine)
    return engine


def _connect(config):
    given = dict(config.given)
    address = given.get("address") or os.environ.get("RAY_ADDRESS")
    if address not in (None, "local"):
        for name in START_ONLY:
            if name in given:
                raise ValueError(
                    f"{name}={given[name]!r} belongs to the start of a cluster (ray start, or its file), and "
                    f"address={address!r} joins one; leave one of them out"
                )
        _check_reachable(address)
    try:
        ray.init(**given, log_to_driver=config.log_to_driver, logging_level=logging.WARNING)
    except BaseException as error:
        ray.shutdown()  # a client that was refused would stay half connected
        if isinstance(error, RuntimeError):
            raise RuntimeFailure(f"Ray does not start or join: {error}") from error
        raise


def _check_reachable(address):
    """Ray itself tries for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():  # "auto" and the like are Ray's to resolve
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
    except OSError as error:
        raise ConnectionError(
            f"no Ray cluster answers at {address} ({error}). `ray status` on its head node says whether it runs; "
            "without an address, one is started here."
        ) from None
