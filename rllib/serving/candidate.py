"""The policy that is on trial while another one is served."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from rllib.serving.loaded_policy import LoadedPolicy, load_policy
from rllib.serving.model import QUICK_S, Model, Served, check_promises, identity_of

logger = logging.getLogger(__name__)


class Candidate:
    """Takes up the candidate's checkpoint when there is one, and forgets it when it has gone.

    Args:
        path: path of its checkpoint.
        model: the policy that is served, with the same spaces.
        load_user_code: as for load_policy.

    Attributes:
        served: the candidate in use; None: there is none.
    """

    def __init__(self, path: Path, model: Model, load_user_code: bool):
        self._path, self._model, self._load_user_code = path, model, load_user_code
        self._identity: tuple | None = None
        self._loaded: Served | None = None
        self.served: Served | None = None

    async def look(self, on_first: Callable[[Served], None]) -> None:
        """Looks whether the candidate has changed.

        Args:
            on_first: called with the candidate before it acts for the first time.
        """
        try:
            identity = identity_of(self._path)
        except OSError:
            self.served = self._identity = None
            return
        if identity == self._identity:
            return
        self._identity = identity
        try:
            policy, seconds = await asyncio.get_running_loop().run_in_executor(None, self._load)
        except Exception as error:  # it was dropped meanwhile, or is damaged
            logger.warning("the candidate cannot act: %s", error)
            self.served = None
            return
        if self._loaded is None:
            self._loaded = Served(policy.policy_id, policy, seconds < QUICK_S)
            on_first(self._loaded)
        self._loaded.policy = policy
        self.served = self._loaded

    def _load(self) -> tuple[LoadedPolicy, float]:
        policy = load_policy(self._path, load_user_code=self._load_user_code)
        check_promises(self._model.policy, policy)
        return policy, self._model.warm_up(policy)
