"""The watch over loops that step environments."""

import os
import threading

from rllib.evaluation.patience import PATIENCE, Patience


def test_a_round_that_hangs_is_reported_once_then_its_process_ends(caplog, monkeypatch):
    ended, left = threading.Event(), threading.Event()

    def end(code):
        ended.set()
        left.wait(20)

    monkeypatch.setattr(os, "_exit", end)
    with Patience(0.1, "the loop", ends_process=True):  # long enough to reach the next line
        assert ended.wait(20)
    left.set()
    reported, end = [record.getMessage() for record in caplog.records]
    assert "does one hang? (sample_timeout_s=0.1) It is at\n" in reported and "ended.wait(20)" in reported
    assert end.startswith("the loop ends its process after") and PATIENCE == 10
