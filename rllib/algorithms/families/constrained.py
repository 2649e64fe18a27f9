"""Algorithms that keep the cost of an episode below a limit, by a Lagrange multiplier (constrained MDPs).

    max J_r(pi)  subject to  J_c(pi) <= d      becomes      min over lambda >= 0, max over pi:  J_r - lambda (J_c - d)

as PPO-Lagrangian and SAC-Lagrangian do (Ray, Achiam and Amodei 2019, Benchmarking Safe Exploration in Deep
Reinforcement Learning, section 5). J_c is the mean undiscounted cost of the episodes that have ended since the last
step of the multiplier; what the policy can do about it is estimated with the discount `cost_gamma`.

The multiplier is that of a PID controller (Stooke, Achiam and Abbeel, arXiv:2007.03964, algorithm 2), whose integral
part alone, the default, is gradient ascent projected onto lambda >= 0. Departures from Ray et al.: they take the
softplus of a parameter that Adam moves, which is never zero, so that costs count even below the limit; and they
standardise the advantages of rewards before costs are subtracted. Here it is done afterwards, so the multiplier is a
price in the units of the task: rewards for a unit of cost.

For PPO and its kin workers compute advantages of costs (evaluation/postprocess/cost_advantages.py, attached by
constrained_on_policy.py), and the driver subtracts them times the multiplier.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Self

from rllib.algorithms.base.config import AlgorithmConfig
from rllib.algorithms.base.feature import Feature
from rllib.config.config_object import relation
from rllib.config.conflicts import DEFAULT, Mistake, Remedy, conflict
from rllib.config.sections import at_least, between, only_with, section
from rllib.evaluation.sampling_worker import SampleReport
from rllib.sample_batch import Column

if TYPE_CHECKING:
    from rllib.algorithms.base.algorithm import Algorithm

# Key of the environments' infos in Safety-Gymnasium.
COST = "cost"
COST_CRITIC = "cost_critic"
# Name of the feature, by which checkpoints have its state.
MULTIPLIER = "multiplier"


class ConstrainedConfig(AlgorithmConfig):
    """Settings of a limit on the cost of an episode."""

    @section
    def training(
        self,
        *,
        cost_limit: Annotated[
            float | None,
            "most that an episode may cost, mean over episodes; None: costs do not count",
            at_least(0, finite=True),
        ] = None,
        cost_column: Annotated[
            str | None,
            "key of the environment's info with the cost of a step, which results then report by episode; None: "
            '"cost" with a cost_limit, otherwise no costs',
        ] = None,
        cost_gamma: Annotated[
            float | None,
            "discount of costs per step; None: gamma",
            between(0, 1),
            only_with("limits_costs", otherwise="cost_limit=None"),
        ] = None,
        lagrangian_multiplier_init: Annotated[
            float,
            "the Lagrange multiplier at the beginning: rewards for a unit of cost",
            at_least(0),
            only_with("limits_costs", otherwise="cost_limit=None"),
        ] = 0.0,
        lagrangian_lr: Annotated[
            float,
            "by which it grows with each unit of cost above the limit, in each iteration with episodes",
            at_least(0),
            only_with("limits_costs", otherwise="cost_limit=None"),
        ] = 0.01,
        lagrangian_kp: Annotated[
            float,
            "added to it for each unit of cost that is above the limit now",
            at_least(0),
            only_with("limits_costs", otherwise="cost_limit=None"),
        ] = 0.0,
        lagrangian_kd: Annotated[
            float,
            "added to it for each unit by which the cost has just risen",
            at_least(0),
            only_with("limits_costs", otherwise="cost_limit=None"),
        ] = 0.0,
    ) -> Self: ...

    @property
    def limits_costs(self) -> bool:
        """Whether there is a limit; it may be 0."""
        return self.cost_limit is not None

    @property
    def episode_cost_column(self) -> str | None:
        return COST if self.cost_column is None and self.cost_limit is not None else self.cost_column

    def get_cost_gamma(self) -> float:
        """Discount of costs per step."""
        return self.gamma if self.cost_gamma is None else self.cost_gamma

    def get_info_columns(self) -> tuple[Column, ...]:
        columns, own = super().get_info_columns(), self.episode_cost_column
        return columns if own is None or own in self.info_columns else (*columns, Column(own))

    def without_info_column(self, name: str) -> Remedy:
        own = ("cost_limit", "cost_column") if name == self.episode_cost_column else ()
        return super().without_info_column(name) | {each: None for each in own if self[each] is not None}

    @relation("cost_column", "cost_limit", "info_columns")
    def _check_cost_column(self):
        """The `cost_column` of `info_columns` is a single number of the step."""
        name = self.episode_cost_column
        given = self.info_columns.get(name)
        if given and (list(given.get("shape", [])) or given.get("before_action")):
            others = {column: of for column, of in self.info_columns.items() if column != name}
            return Mistake(
                f"info_columns={{{name!r}: {given}}} must be a single number of the step, since it is the cost_column.",
                ("info_columns", "cost_column", "cost_limit"),
                ({"info_columns": {**others, name: {}}}, {"info_columns": others}),
            )
        return None

    conflicts = (
        conflict(
            "cost_limit",
            "cost_column",
            "policies",
            when=lambda config: config.episode_cost_column is not None and config.is_multi_agent,
            why="cost_limit and cost_column are for environments with one agent: there are no costs by policy",
            remedies=[{"cost_limit": None, "cost_column": None}],
            advice="Leave them out, or subtract the costs from each agent's reward in the environment.",
        ),
        conflict(
            "cost_limit",
            "input_",
            when=lambda config: config.limits_costs and config.has_data,
            why="the limit is compared with episodes of the policy, but input_ has recorded steps",
            remedies=[{"cost_limit": None}, {"input_": DEFAULT}],
        ),
    )


class Multiplier:
    """Lagrange multiplier of a limit on costs, moved by a PID controller (arXiv:2007.03964, algorithm 2).

        delta = J_c - d,   I <- max(0, I + lr delta),   lambda = max(0, I + kp delta + kd max(0, J_c - previous J_c))

    Args:
        limit: d, in units of cost.
        initial: lambda at the beginning, which the integral starts from.
        lr, kp, kd: of the integral, of the excess itself, and of its rise; rewards for a unit of cost, squared.

    Attributes:
        value: lambda.
    """

    def __init__(self, limit: float, initial: float, lr: float, kp: float = 0.0, kd: float = 0.0):
        self.limit, self.value = limit, initial
        self._lr, self._kp, self._kd = lr, kp, kd
        self._integral, self._previous = initial, None

    def update(self, cost: float) -> None:
        """Takes a step after episodes of this mean cost."""
        excess = cost - self.limit
        rise = 0.0 if self._previous is None else max(0.0, cost - self._previous)
        self._integral = max(0.0, self._integral + self._lr * excess)
        self.value = max(0.0, self._integral + self._kp * excess + self._kd * rise)
        self._previous = cost

    def get_state(self) -> dict[str, float | None]:
        """The state, JSON-able."""
        return {"value": self.value, "integral": self._integral, "previous": self._previous}

    def set_state(self, state: dict[str, float | None]) -> None:
        """Restores a state of `get_state`."""
        self.value, self._integral, self._previous = state["value"], state["integral"], state["previous"]


class CostLimit(Feature):
    """A limit on the cost of an episode, with the multiplier that keeps it.

    Args:
        config: settings of the run, with a `cost_limit`.

    Attributes:
        multiplier: multiplier of the costs; its value is the reward for a unit of cost.
    """

    first_values = ("lagrangian_multiplier_init",)

    def __init__(self, config: ConstrainedConfig):
        self._config = config
        self.multiplier = self._first_multiplier()
        # Of the episodes that have ended since the multiplier's last step.
        self._episode_costs: list[float] = []

    def take_in(self, report: SampleReport, batch: Any) -> None:
        self._episode_costs += [episode.episode_cost for episode in report.episodes]

    def on_sample(self, acts_by_policy: bool) -> None:
        """Moves the multiplier by the episodes that have ended since the last time, if the policy has acted in them."""
        costs, self._episode_costs = self._episode_costs, []
        if costs and acts_by_policy:
            self.multiplier.update(sum(costs) / len(costs))

    def stats(self) -> dict[str, float]:
        return {"lagrangian_multiplier": self.multiplier.value, "cost_limit": self.multiplier.limit}

    def get_state(self) -> dict[str, Any]:
        return self.multiplier.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        self.multiplier.set_state(state)

    def begin_again(self, changed: Mapping[str, Any]) -> None:
        self.multiplier = self._first_multiplier()

    def _first_multiplier(self) -> Multiplier:
        config = self._config
        return Multiplier(
            config.cost_limit,
            config.lagrangian_multiplier_init,
            config.lagrangian_lr,
            config.lagrangian_kp,
            config.lagrangian_kd,
        )


def cost_limit_of(config: ConstrainedConfig) -> dict[str, CostLimit]:
    """The limit by the settings, as `make_features` returns it; empty without one."""
    return {MULTIPLIER: CostLimit(config)} if config.limits_costs else {}


def price_of_costs(algorithm: "Algorithm") -> float | None:
    """Reward for a unit of cost, at present; None without a limit."""
    limit = algorithm.features.get(MULTIPLIER)
    return None if limit is None else limit.multiplier.value
