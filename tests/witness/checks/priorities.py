"""Prioritised replay (arXiv:1511.05952), by a list of priorities that is kept beside it."""

from collections.abc import Callable, Iterable

import numpy as np

from rllib import sample_batch as sb


def check_priorities(
    events: Iterable, errors_of: Callable, *, alpha: float, epsilon: float, capacity: int, keys=(sb.OBS,)
) -> int:
    """Checks which rows a replay gives, their weights, and whose TD errors come back.

    Args:
        events: calls of the replay, in order (reader.Event).
        errors_of: function of drawn columns that gives the absolute TD error of each row; None: they are not checked.
        alpha, epsilon: p = (|TD error| + epsilon)^alpha.
        capacity: rows.
        keys: columns by which a row is known.

    Returns:
        Number of draws.
    """
    p: dict[int, float] = {}
    rows: dict[int, bytes] = {}
    largest, draws, drawn = 1.0, 0, None
    for event in events:
        columns = event.columns
        if event.method == "add":
            count = len(columns[keys[0]])
            assert len(event.numbers) == count, f"{len(event.numbers)} numbers for {count} rows"
            for i, number in enumerate(event.numbers):
                assert number not in rows, f"row {number} is numbered again"
                p[number], rows[number] = largest, _row(columns, i, keys)
                p.pop(number - capacity, None)
        elif event.method == "sample":
            draws, drawn = draws + 1, columns
            numbers = columns[sb.INDICES].tolist()
            for i, number in enumerate(numbers):
                assert number in p, f"row {number} was drawn, and is not in the replay"
                assert rows[number] == _row(columns, i, keys), f"what was drawn as row {number} is another one"
            total = sum(p.values())
            weights = np.array([(len(p) * p[number] / total) ** -event.beta for number in numbers])
            wanted = weights / weights.max()
            assert np.allclose(columns[sb.WEIGHTS], wanted, rtol=1e-5), f"weights {columns[sb.WEIGHTS]}, not {wanted}"
        else:
            assert np.array_equal(columns[sb.INDICES], drawn[sb.INDICES]), "errors of other rows than were drawn"
            if errors_of is not None:
                wanted = errors_of(drawn)
                given = np.abs(columns[sb.TD_ERRORS])
                assert np.allclose(given, wanted, rtol=1e-3, atol=1e-3), f"TD errors {given}, not {wanted}"
            for number, error in zip(columns[sb.INDICES].tolist(), np.abs(columns[sb.TD_ERRORS]).tolist()):
                p[number] = (error + epsilon) ** alpha
                largest = max(largest, p[number])
    return draws


def _row(columns, i: int, keys) -> bytes:
    return b"".join(np.ascontiguousarray(columns[name][i]).tobytes() for name in keys)
