"""Resources of a trial: of its process, and of the processes that it starts.

`{"cpu": 2, "gpu": 1}`, Ray 0.8's `{"cpu": 1, "extra_cpu": 4}`, a PlacementGroupFactory of bundles, and the value of a
trainable's `default_resource_request(config)` all become one `Resources`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runtime.errors import UnschedulableError

_NAMES = {"cpu": "CPU", "gpu": "GPU", "memory": "memory"}


@dataclass(frozen=True)
class Resources:
    """The resources of one trial.

    Args:
        own: resource -> quantity for the trial's own process.
        others: resource -> quantity for all processes that it starts, together.
    """

    own: Mapping[str, float]
    others: Mapping[str, float]

    @classmethod
    def default(cls) -> "Resources":
        """One CPU."""
        return cls({"CPU": 1}, {})

    @classmethod
    def of(cls, given) -> "Resources":
        """Resources of any spelling.

        Raises:
            TypeError, ValueError: for anything else.
        """
        if given is None:
            return cls.default()
        if isinstance(given, Resources):
            return given
        if isinstance(given, PlacementGroupFactory):
            return cls(_bundle(given.bundles[0]), _sum(map(_bundle, given.bundles[1:])))
        if not isinstance(given, Mapping):
            raise TypeError(
                f'resources are given as {{"cpu": 2, "gpu": 1}} or PlacementGroupFactory([...]), but got {given!r:.80}'
            )
        given = dict(given)
        custom, more = given.pop("custom_resources", None) or {}, given.pop("extra_custom_resources", None) or {}
        extra = {name.removeprefix("extra_"): given.pop(name) for name in list(given) if name.startswith("extra_")}
        return cls({"CPU": 1, **_bundle({**given, **custom})}, _bundle({**extra, **more}))

    def total(self) -> dict[str, float]:
        """Quantities of all its processes together."""
        return _sum([self.own, self.others])

    def within(self, total: Mapping[str, float], what: str) -> tuple["Resources", str | None]:
        """The resources that this session can give, and a notice if they are less.

        CPUs of the processes that a trial starts (rollout workers) may be shared; other resources may not.

        Raises:
            UnschedulableError: if the trial can never fit, with the needed and the existing resources.
        """
        need = self.total()
        lacking = [
            name
            for name, quantity in need.items()
            if (self.own.get(name, 0) if name == "CPU" else quantity) > total.get(name, 0)
        ]
        if lacking:
            asked = ", ".join(f"{name}: {need[name]:g}" for name in lacking)
            have = ", ".join(f"{name}: {quantity:g}" for name, quantity in sorted(total.items()) if name != "memory")
            raise UnschedulableError(
                f"{what} needs {asked}, which this session can never give; it has {have or 'nothing'}. Ask for less "
                "(resources_per_trial, tune.with_resources, num_rollout_workers), or give the session more: "
                "runtime.init(num_cpus=..., num_gpus=..., resources={...})."
            )
        have = total.get("CPU", 0)
        if need.get("CPU", 0) <= have:
            return self, None
        notice = (
            f"{what} wants {need['CPU']:g} CPUs and there are {have:g}, so its processes share them: trials run one "
            "at a time"
        )
        return Resources(self.own, {**self.others, "CPU": have - self.own.get("CPU", 0)}), notice

    def actor_options(self) -> dict:
        """Options of runtime.remote for the trial's own process."""
        custom = {name: quantity for name, quantity in self.own.items() if name not in ("CPU", "GPU", "memory")}
        options = {"num_cpus": self.own.get("CPU", 0), "num_gpus": self.own.get("GPU", 0), "resources": custom}
        return {**options, "memory": int(self.own.get("memory", 0))}


class PlacementGroupFactory:
    """Bundles of resources: the first for the trial's own process, the others for processes that it starts.

    Args:
        bundles: [{"CPU": 1}, {"CPU": 1, "GPU": 1}, ...].
        strategy: accepted; everything runs on one machine.
    """

    def __init__(self, bundles: Sequence[Mapping[str, float]], strategy: str = "PACK"):
        if not bundles:
            raise ValueError("a PlacementGroupFactory needs at least one bundle, like [{'CPU': 1}]")
        self.bundles, self.strategy = [dict(bundle) for bundle in bundles], strategy


def _bundle(given: Mapping[str, float]) -> dict[str, float]:
    bundle = {}
    for name, quantity in given.items():
        if isinstance(quantity, bool) or not isinstance(quantity, (int, float)) or not quantity >= 0:
            raise ValueError(f"resources: {name} must be a number >= 0, but got {quantity!r}")
        bundle[_NAMES.get(name.lower(), name)] = quantity
    return {name: quantity for name, quantity in bundle.items() if quantity or name == "CPU"}


def _sum(bundles) -> dict[str, float]:
    total: dict[str, float] = {}
    for bundle in bundles:
        for name, quantity in bundle.items():
            total[name] = total.get(name, 0) + quantity
    return total
