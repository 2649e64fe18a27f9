"""Checkpoints of an earlier version, one of each family of algorithms, are read to the bit and trained on from.

They were made at 553e63c6 by `tools/equal_bits.py keep`, which says how.
"""

import json
from pathlib import Path

import pytest
from equal_bits import ROOT, weights_of

from rllib import Algorithm

FAMILIES = Path(__file__).parent / "checkpoints" / "families"


@pytest.mark.parametrize("name", sorted(path.name for path in FAMILIES.iterdir()))
def test_it_continues(name, monkeypatch):
    monkeypatch.chdir(ROOT)  # recorded data is named by a relative path
    kept = json.loads((FAMILIES / name / "kept.json").read_text())
    with Algorithm.from_checkpoint(FAMILIES / name) as algo:
        assert weights_of(algo) == kept["weights"]
        result = algo.train()
        assert result["training_iteration"] == 4
        assert result["timesteps_total"] > kept["timesteps_total"]
        assert weights_of(algo) != kept["weights"]
