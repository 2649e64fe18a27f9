"""An experiment without processes: the runner's side of the scheduler protocol, with trials whose curves are known.

A trial has weights (a number) that each step changes by `step(weights, config)`; its results say {"score": weights}
unless `curve(config, iteration)` says something else. Trials step in turns, so everything that happens is exact.
"""

PENDING, RUNNING, PAUSED, TERMINATED, ERROR = "PENDING", "RUNNING", "PAUSED", "TERMINATED", "ERROR"


class SimTrial:
    def __init__(self, trial_id, config):
        self.trial_id, self.experiment_tag, self.config = trial_id, trial_id, dict(config)
        self.status, self.last_result, self.evaluated_params = PENDING, {}, dict(config)
        self.weights, self.iteration = 0.0, 0
        self.saved = None  # (weights, result) of a function's own newest checkpoint
        self.of_state = {}  # the result at its weights, which may be another trial's

    def __repr__(self):
        return f"{self.trial_id}({self.status}, {self.iteration})"


class Simulator:
    def __init__(
        self, scheduler, configs, curve=None, step=None, slots=10**9, max_iterations=10**9, saves_at=None, is_slow=False
    ):
        """An experiment that has not begun.

        saves_at: iterations at which trials save themselves, as functions do; None: they are saved when asked.
        is_slow: whether a takeover is carried out a round later, from what its source is then.
        """
        self.scheduler, self.curve, self.slots, self.max_iterations = scheduler, curve, slots, max_iterations
        self.saves_at, self.is_slow = saves_at, is_slow
        self.coming = []  # takeovers that are not carried out yet
        self.step = step or (lambda weights, config: weights)
        self.trials = [SimTrial(f"t{index:03d}", config) for index, config in enumerate(configs)]
        self.files, self.exploits, self.failing = {}, [], set()
        for trial in self.trials:
            scheduler.on_trial_add(self, trial)

    # ---- the protocol

    def waiting_trials(self):
        taking = [trial for trial, *_ in self.coming]
        return [trial for trial in self.trials if trial.status in (PENDING, PAUSED) and trial not in taking]

    def has_resources_for(self, trial):
        return sum(other.status == RUNNING for other in self.trials) < self.slots

    def pause_trial(self, trial):
        trial.status = PAUSED

    def stop_trial(self, trial):
        if trial.status not in (TERMINATED, ERROR):
            trial.status = TERMINATED
            self.scheduler.on_trial_complete(self, trial, trial.last_result)

    def saved_state(self, trial):
        if self.saves_at is None:
            return None
        return trial.saved[1] if trial.saved else {}

    def exploit(self, trial, source, config):
        self.exploits.append((trial.trial_id, source.trial_id))
        if self.is_slow:
            trial.status = PAUSED
            self.coming.append((trial, source, config))
        else:
            self._take_over(trial, source, config)

    def _take_over(self, trial, source, config):
        weights, iteration = source.weights, source.iteration
        if self.saves_at is not None:
            trial.saved = source.saved
            weights, iteration = source.saved[0], source.saved[1]["training_iteration"]
        trial.weights, trial.iteration, trial.config = weights, iteration, dict(config)
        trial.of_state = source.of_state if self.saves_at is None else source.saved[1]
        self.scheduler.on_trial_takeover(self, trial, trial.of_state)

    def write_file(self, name, text, append=False):
        self.files[name] = self.files.get(name, "") * append + text

    # ---- the loop

    def run(self, rounds=10**9):
        """Steps every running trial once a round, in the order of the trials."""
        while rounds and any(trial.status not in (TERMINATED, ERROR) for trial in self.trials):
            rounds -= 1
            while (chosen := self.scheduler.choose_trial_to_run(self)) is not None:
                chosen.status = RUNNING
            running = [trial for trial in self.trials if trial.status == RUNNING]
            due = list(self.coming)
            if not running and not due:
                break
            for trial in running:
                if trial.status == RUNNING:
                    self._step(trial)
            for each in due:
                self.coming.remove(each)
                if each[1].status != TERMINATED:  # the runner calls a takeover off whose source has ended
                    self._take_over(*each)
        return self

    def _step(self, trial):
        if trial.trial_id in self.failing:
            trial.status = ERROR
            self.scheduler.on_trial_error(self, trial)
            return
        trial.iteration += 1
        trial.weights = self.step(trial.weights, trial.config)
        score = self.curve(trial.config, trial.iteration) if self.curve else trial.weights
        trial.last_result = {"training_iteration": trial.iteration, "score": score, "config": trial.config}
        trial.of_state = trial.last_result
        if self.saves_at is not None and trial.iteration in self.saves_at:
            trial.saved = (trial.weights, trial.last_result)
        if trial.iteration >= self.max_iterations:
            self.stop_trial(trial)
            return
        decision = self.scheduler.on_trial_result(self, trial, trial.last_result)
        if decision == "STOP":
            self.stop_trial(trial)
        elif decision == "PAUSE":
            self.pause_trial(trial)

    def iterations(self):
        return [trial.iteration for trial in self.trials]
