"""HyperBand (arXiv:1603.06560), with pausing.

With R = max_t and s_max = floor(log_eta R), bracket s = s_max, ..., 0 starts n = ceil((s_max + 1) / (s + 1) eta^s)
trials with r = R eta^-s each. When all trials of a bracket have reached r_i = r eta^i, the best floor(n eta^-(i+1))
continue and the others end. Trials join the first bracket with room; after bracket 0 the next band begins with s_max.

Departures: a bracket that is not full when nothing else can run is halved at the size that it has, and takes no further
trials. Trials that fail or end by themselves leave their bracket; at least one of the remaining trials continues. A
trial without a number at r_i (NaN) runs on until it has one, at most to R, and the others of its bracket wait for it.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from rllib.progress import counted
from rllib.runs.entries import read_number, written_number
from rllib.tune.checks import check_number
from rllib.tune.schedulers.base import TrialScheduler, whole_again
from rllib.tune.states import PENDING


@dataclass
class _Bracket:
    """A bracket of trials.

    Attributes:
        s: number of halvings to come at the start.
        size: number of trials that it takes (n).
        rung: number of halvings so far (i).
        live: trials that have not been ended.
        scores: trial id -> score of trials that have reached the rung and wait for the others.
        is_closed: whether no more trials may join.
    """

    s: int
    size: int
    rung: int = 0
    live: list[str] = field(default_factory=list)
    scores: dict[str, float] = field(default_factory=dict)
    is_closed: bool = False


class HyperBandScheduler(TrialScheduler):
    """HyperBand.

    Args:
        time_attr, metric, mode: see TrialScheduler.
        max_t: longest time of a trial (R), in units of time_attr.
        reduction_factor: one of this number of trials continues (eta).
        stop_last_trials: whether trials end at max_t.
    """

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
        max_t: int = 81,
        reduction_factor: float = 3,
        stop_last_trials: bool = True,
    ):
        super().__init__(metric, mode, time_attr)
        check_number("max_t", max_t, ">= 1", least=1)
        check_number("reduction_factor", reduction_factor, "> 1", above=1)
        self.max_t, self.eta, self._stop_last = max_t, reduction_factor, stop_last_trials
        self.s_max = int(whole_again(math.log(max_t) / math.log(reduction_factor)))
        self._brackets: list[_Bracket] = []
        self._bracket_of: dict[str, int] = {}
        self._num_stopped = 0

    def size(self, s: int) -> int:
        """Number of trials with which bracket s starts."""
        return math.ceil(whole_again((self.s_max + 1) / (s + 1) * self.eta**s))

    def milestone(self, bracket: _Bracket) -> float:
        """r_i, the time at which the bracket is halved next, or ends."""
        return whole_again(self.max_t * self.eta ** (bracket.rung - bracket.s))

    def on_trial_add(self, runner, trial) -> None:
        if trial.trial_id in self._bracket_of:
            return
        if not self._brackets or self._brackets[-1].is_closed:
            s = (self._brackets[-1].s - 1) % (self.s_max + 1) if self._brackets else self.s_max
            self._brackets.append(_Bracket(s, self.size(s)))
        bracket = self._brackets[-1]
        bracket.live.append(trial.trial_id)
        bracket.is_closed = len(bracket.live) == bracket.size
        self._bracket_of[trial.trial_id] = len(self._brackets) - 1

    def on_trial_result(self, runner, trial, result: Mapping) -> str:
        self.on_trial_add(runner, trial)
        bracket = self._brackets[self._bracket_of[trial.trial_id]]
        time, score = self.progress(result), self.score(result)
        if time >= self.max_t:
            if self._stop_last:
                return self.STOP
            self.on_trial_complete(runner, trial)  # the others of its bracket need not wait for it any more
            return self.CONTINUE
        if score is None or trial.trial_id not in bracket.live or time < self.milestone(bracket):
            return self.CONTINUE
        bracket.scores[trial.trial_id] = score
        if not self._is_ready(bracket):
            return self.PAUSE
        self._halve(runner, bracket, trial.trial_id)
        if trial.trial_id not in bracket.live:
            return self.STOP
        # After trials of which none reported at its own milestone, one may stand at the next already.
        return self.on_trial_result(runner, trial, result) if time >= self.milestone(bracket) else self.CONTINUE

    def on_trial_complete(self, runner, trial, result=None) -> None:
        index = self._bracket_of.get(trial.trial_id)
        bracket = self._brackets[index] if index is not None else None
        if bracket is None or trial.trial_id not in bracket.live:
            return
        bracket.live.remove(trial.trial_id)
        bracket.scores.pop(trial.trial_id, None)
        if self._is_ready(bracket):
            self._halve(runner, bracket, None)

    on_trial_error = on_trial_remove = on_trial_complete

    def choose_trial_to_run(self, runner):
        waiting = runner.waiting_trials()
        free = [trial for trial in waiting if not self._is_held(trial)]
        is_any_on_its_way = any(len(bracket.scores) < len(bracket.live) for bracket in self._brackets)
        if not free and waiting and not is_any_on_its_way:
            # Nothing is left that could fill the bracket up.
            self._halve_what_waits(runner)
            free = [trial for trial in runner.waiting_trials() if not self._is_held(trial)]
        # Promoted trials first: each that ends frees a checkpoint.
        promoted_first = sorted(free, key=lambda trial: trial.status == PENDING)
        return next(filter(runner.has_resources_for, promoted_first), None)

    def _is_held(self, trial) -> bool:
        index = self._bracket_of.get(trial.trial_id)
        return index is not None and trial.trial_id in self._brackets[index].scores

    def _is_ready(self, bracket: _Bracket) -> bool:
        return bracket.is_closed and bool(bracket.live) and len(bracket.scores) == len(bracket.live)

    def _halve_what_waits(self, runner) -> None:
        for bracket in self._brackets:
            if not bracket.is_closed:
                bracket.is_closed = True
                if bracket.rung == 0:
                    bracket.size = len(bracket.live)
            if self._is_ready(bracket):
                self._halve(runner, bracket, None)

    def _halve(self, runner, bracket: _Bracket, reporting: str | None) -> None:
        """Ends the trials that are not good enough, except the reporting one, which the returned decision ends."""
        keep = max(int(whole_again(bracket.size * self.eta ** -(bracket.rung + 1))), 1)
        ranked = sorted(bracket.scores, key=bracket.scores.__getitem__, reverse=True)
        bracket.live, ended = ranked[:keep], set(ranked[keep:])
        bracket.scores = {}
        bracket.rung += 1
        self._num_stopped += len(ended)
        for trial in [trial for trial in runner.trials if trial.trial_id in ended - {reporting}]:
            runner.stop_trial(trial)

    def is_at_end(self, result: Mapping) -> bool:
        return self._stop_last and self.has_reached(result, self.max_t)

    def debug_string(self) -> str:
        shown = ", ".join(
            f"s={bracket.s}: {counted(len(bracket.live), 'trial')}, {len(bracket.scores)} wait at "
            f"{self.milestone(bracket):g}"
            for bracket in self._brackets
            if bracket.live
        )
        brackets, stopped = counted(len(self._brackets), "bracket"), counted(self._num_stopped, "trial")
        return f"HyperBand: {brackets}, {stopped} stopped; {shown}"

    def get_state(self):
        brackets = [
            {
                **asdict(bracket),
                "scores": {trial_id: written_number(score) for trial_id, score in bracket.scores.items()},
            }
            for bracket in self._brackets
        ]
        return {"brackets": brackets, "bracket_of": self._bracket_of, "num_stopped": self._num_stopped}

    def set_state(self, state) -> None:
        self._brackets = [
            _Bracket(**{**saved, "scores": {key: read_number(score) for key, score in saved["scores"].items()}})
            for saved in state["brackets"]
        ]
        self._bracket_of, self._num_stopped = dict(state["bracket_of"]), state["num_stopped"]
