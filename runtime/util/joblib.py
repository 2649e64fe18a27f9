"""A backend of joblib (and so of scikit-learn) that runs calls in the processes of a session.

register_runtime()
with joblib.parallel_config(backend="runtime"):
    GridSearchCV(...).fit(x, y)
"""

from __future__ import annotations

import joblib
from joblib._parallel_backends import MultiprocessingBackend

from ..api import cluster_resources
from .multiprocessing import Pool


class RuntimeBackend(MultiprocessingBackend):
    """joblib's backend for pools, with a `util.multiprocessing.Pool` as its pool."""

    supports_timeout = True

    def configure(self, n_jobs=1, parallel=None, prefer=None, require=None, **memmapping):
        """Starts the pool: joblib calls this before it runs anything."""
        n_jobs = self.effective_n_jobs(n_jobs)
        if n_jobs == 1:
            raise joblib._parallel_backends.FallbackToBackend(
                joblib._parallel_backends.SequentialBackend(nesting_level=self.nesting_level)
            )
        self.parallel = parallel
        self._pool = Pool(n_jobs)
        return n_jobs

    def effective_n_jobs(self, n_jobs):
        """The number of processes: -1 represents the CPUs of the session, -2 for all but one, and so on."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 has no meaning; give a number of processes, or -1 for all CPUs")
        if n_jobs is None:
            return 1
        if n_jobs < 0:
            return max(1, int(cluster_resources().get("CPU", 1)) + 1 + n_jobs)
        return n_jobs

    def terminate(self):
        """Ends the pool."""
        if self._pool is not None:
            self._pool.terminate()
            self._pool = None
        self.reset_batch_stats()


def register_runtime() -> None:
    """Makes the backend "runtime" known to joblib."""
    joblib.register_parallel_backend("runtime", RuntimeBackend)


def register_ray() -> None:
    """Makes the same backend known as "ray", for programs of Ray."""
    joblib.register_parallel_backend("ray", RuntimeBackend)
