"""Resources of one machine, in whole units of 1/10000 so that fractions add up exactly."""

from __future__ import annotations

from ..calls.options import RESOURCE_UNITS

Request = tuple[tuple[str, int], ...]


def units(quantities: dict[str, float]) -> Request:
    """Resources by name as a request: sorted, in units."""
    return tuple(sorted((name, round(quantity * RESOURCE_UNITS)) for name, quantity in quantities.items()))


def quantities(request) -> dict[str, float]:
    """A request (or dict) in units as resources by name, whole numbers as int."""
    return {
        name: amount // RESOURCE_UNITS if amount % RESOURCE_UNITS == 0 else amount / RESOURCE_UNITS
        for name, amount in dict(request).items()
    }


class Resources:
    """The resources of a session, total and free.

    Free CPUs may go below zero: blocked tasks lend theirs and take them back when they wake, and actors may be started
    while all CPUs are busy. Nothing that needs a CPU starts until enough are free again.

    Args:
        total: request of everything there is.
        gpu_ids: devices, one per whole GPU; or one, of which `total` has a fraction.
    """

    def __init__(self, total: Request, gpu_ids: tuple[str, ...] = ()):
        self.total = dict(total)
        self.free = dict(total)
        share = min(RESOURCE_UNITS, self.total.get("GPU", 0) // max(1, len(gpu_ids)))
        self._gpus = dict.fromkeys(gpu_ids, share)

    def fits(self, request: Request) -> bool:
        """Whether all of it is free now."""
        free = self.free
        for name, amount in request:
            if amount > free.get(name, 0):
                return False
            if name == "GPU" and not self.choose_gpus(request):
                return False
        return True

    def take(self, request: Request) -> tuple[str, ...]:
        """Books a request, free or not; the GPUs that belong to it."""
        for name, amount in request:
            self.free[name] = self.free.get(name, 0) - amount
        if not self._gpus:
            return ()
        chosen = self.choose_gpus(request)
        share = dict(request).get("GPU", 0) // max(1, len(chosen))
        for gpu in chosen:
            self._gpus[gpu] -= share
        return chosen

    def give_back(self, request: Request, gpus: tuple[str, ...] = ()) -> None:
        """The opposite of `take`."""
        for name, amount in request:
            self.free[name] += amount
        if gpus:
            share = dict(request).get("GPU", 0) // len(gpus)
            for gpu in gpus:
                self._gpus[gpu] += share

    @property
    def unused(self) -> bool:
        """Whether nothing is booked."""
        return all(amount == self.total.get(name, 0) for name, amount in self.free.items())

    def split(self, bundles: list[Request]) -> list[Resources] | None:
        """Books bundles. Returns the free resources of each, or None, and books nothing, if they do not fit."""
        pools = []
        for request in bundles:
            if not self.fits(request):
                for pool in pools:
                    self.join(pool)
                return None
            pools.append(Resources(request, self.take(request)))
        return pools

    def join(self, bundle: Resources) -> None:
        """Gives a bundle back that nothing uses."""
        self.give_back(tuple(bundle.total.items()), tuple(bundle._gpus))

    def choose_gpus(self, request: Request) -> tuple[str, ...]:
        """The GPUs that `take` would choose: whole ones, or the fullest on which a fraction still fits; () for none."""
        amount = dict(request).get("GPU", 0)
        if amount == 0:
            return ()
        if amount >= RESOURCE_UNITS:
            whole = [gpu for gpu, free in self._gpus.items() if free == RESOURCE_UNITS]
            count = amount // RESOURCE_UNITS
            return tuple(whole[:count]) if len(whole) >= count else ()
        fitting = [gpu for gpu, free in self._gpus.items() if free >= amount]
        return (min(fitting, key=lambda gpu: self._gpus[gpu]),) if fitting else ()
