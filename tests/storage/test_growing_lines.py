"""Lines of a growing file: each once, in pieces of any size, whatever happens to the file between two reads."""

import os
import random

import pytest

from rllib.errors import DamagedFileError
from rllib.runs.safe_files import write_whole
from rllib.storage.growing_lines import GrowingLines


def lines(rng: random.Random, number: int) -> bytes:
    return b"".join(b"%d %s\n" % (rng.randrange(10**6), b"x" * rng.choice([0, 3, 5000])) for _ in range(number))


@pytest.mark.parametrize("most_bytes", [1, 100, 1 << 20])
@pytest.mark.parametrize("seed", range(5))
def test_what_is_read_is_the_file_whatever_happens_to_it(tmp_path, seed, most_bytes):
    rng, path = random.Random(seed), tmp_path / "lines"
    path.write_bytes(content := b"")
    reader, read = GrowingLines(path), b""
    for _ in range(30):
        action = rng.choice(["append", "half", "cut", "replace", "write over"])
        if action == "append":
            content += lines(rng, 3)
        elif action == "half":
            content += b"half a line "
        elif action == "cut":  # as a run that goes on from a checkpoint does, and grows again before it is seen
            content = b"".join(content.splitlines(keepends=True)[:2]) + lines(rng, rng.choice([0, 5]))
        else:
            content = lines(rng, rng.choice([1, 9]))
        if action == "replace":
            write_whole(path, content, is_synced=False)
        else:
            path.write_bytes(content)
        new = reader.read(most_bytes)
        while True:
            read = new if reader.was_replaced else read + new
            if not reader.behind_bytes:
                break
            new = reader.read(most_bytes)
        end = content.rfind(b"\n") + 1
        assert read == content[:end], (seed, action)
        assert (reader.position, reader.unfinished_bytes) == (end, len(content) - end)


def test_a_file_that_cannot_be_opened_is_waited_for(tmp_path):
    path = tmp_path / "lines"
    reader = GrowingLines(path)
    with pytest.raises(FileNotFoundError):
        reader.read()
    path.write_bytes(b"1\n")
    assert reader.read() == b"1\n" and not reader.was_replaced
    path.rename(tmp_path / "other")
    os.symlink(tmp_path / "other", path)
    with pytest.raises(DamagedFileError, match="symbolic link"):
        reader.read()
    path.unlink()
    (tmp_path / "other").rename(path)
    assert reader.read() == b"" and not reader.was_replaced
