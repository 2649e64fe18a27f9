"""A look at the opcodes of a pickle before anything reads it: what would exhaust stack, memory or time is refused.

Tuples are hashed in C, one inside of the other and without a limit: a pickle of some kilobytes, with a deeply nested
tuple as a key, ends the process. Numbers and tuples can be chosen so that all their hashes are equal, and each key of a
dict is then compared with all that came before. Texts cannot: their hashes differ from process to process.
"""

import pickletools
from collections.abc import Iterable
from itertools import groupby

# An opcode of one byte may make an object of hundreds.
MOST_OPCODES = 10_000_000
# Of tuples in tuples. A dict or list between two ends the hashing.
MOST_NESTED = 100
# Keys of dicts and entries of sets that are tuples or made by a function, and numbers beyond those whose hash is
# themselves: this number may collide.
MOST_COLLIDING = 2_000
# Keys of one dict or set that have the same hash.
_MOST_EQUAL = 100
_OWN_HASH = 2**61 - 1

_TO_MARK = -1
# Opcodes that take values from the stack: how many, and what they leave; None: the value below.
_TAKERS: dict[str, tuple[int, int | None]] = {
    "POP_MARK": (_TO_MARK, None), "APPEND": (1, None), "APPENDS": (_TO_MARK, None), "BUILD": (1, None),
    "SETITEM": (2, None), "SETITEMS": (_TO_MARK, None), "ADDITEMS": (_TO_MARK, None),
    "LIST": (_TO_MARK, 0), "DICT": (_TO_MARK, 0), "FROZENSET": (_TO_MARK, 1),
    "REDUCE": (2, 1), "NEWOBJ": (2, 1), "NEWOBJ_EX": (3, 1), "INST": (_TO_MARK, 1), "OBJ": (_TO_MARK, 1),
    "STACK_GLOBAL": (2, 0), "BINPERSID": (1, 1), "READONLY_BUFFER": (1, 0),
}  # fmt: skip
_TUPLES = {"TUPLE": _TO_MARK, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
# Opcodes whose values get hashed, with the distance from one to the next.
_HASHING = {"SETITEM": 2, "SETITEMS": 2, "DICT": 2, "ADDITEMS": 1, "FROZENSET": 1}
_PUTS, _GETS = {"PUT", "BINPUT", "LONG_BINPUT"}, {"GET", "BINGET", "LONG_BINGET"}
_LONGS = {"INT", "LONG", "LONG1", "LONG4"}
_PUSHED = {each.name: len(each.stack_after) for each in pickletools.opcodes if not each.stack_before}


def check_opcodes(content: bytes, what: str) -> None:
    """Refuses a pickle that would take the reader's stack, memory or time.

    Args:
        content: the pickle.
        what: its name in messages.

    Raises:
        ValueError: if it has too many opcodes, numbers its values by more than its length, nests tuples too deeply, has
            too many keys whose hashes may be equal, or is damaged.
    """
    try:
        _check(content)
    except Exception as error:  # a damaged pickle raises anything
        raise ValueError(f"{what} cannot be read: {error}") from None


def _check(content: bytes) -> None:
    # Of each value on the stack and in the table: how deeply tuples are nested in it; 1 for what a function has made.
    stack: list[int] = []
    marks: list[int] = []
    table: dict[int, int] = {}
    num_colliding = 0
    for count, (code, given, _) in enumerate(pickletools.genops(content)):
        name = code.name
        if count == MOST_OPCODES:
            raise ValueError(f"it holds more than {MOST_OPCODES:,} values")
        if name == "MEMOIZE":
            table[len(table)] = stack[-1]
        elif name in _PUTS:
            # Values are numbered in a table, which is allocated up to the largest number.
            if given > len(content):
                raise ValueError("it numbers more values than it can hold")
            table[given] = stack[-1]
        elif name in _GETS:
            stack.append(table[given])
        elif name == "MARK":
            marks.append(len(stack))
        elif name in _TUPLES:
            depth = 1 + max(_taken(stack, marks, _TUPLES[name]), default=0)
            if depth > MOST_NESTED:
                raise ValueError(f"it nests tuples more than {MOST_NESTED} deep")
            stack.append(depth)
        elif name in _TAKERS:
            number, left = _TAKERS[name]
            taken = _taken(stack, marks, number)
            if name in _HASHING:
                num_colliding += sum(map(bool, taken[:: _HASHING[name]]))
            if left is not None:
                stack.append(left)
        elif name == "POP":
            if marks and marks[-1] == len(stack):
                marks.pop()
            else:
                stack.pop()
        elif name == "DUP":
            stack.append(stack[-1])
        elif name in _PUSHED:
            num_colliding += name in _LONGS and abs(given) >= _OWN_HASH
            stack += [0] * _PUSHED[name]
        elif name != "STOP":
            raise ValueError(f"it has the opcode {name}")
        if num_colliding > MOST_COLLIDING:
            raise ValueError(f"it has more than {MOST_COLLIDING:,} keys or large numbers whose hashes may be equal")


def _taken(stack: list[int], marks: list[int], number: int) -> list[int]:
    """Takes the topmost values from the stack, or all above the last mark."""
    first = marks.pop() if number == _TO_MARK else len(stack) - number
    if first < 0:
        raise ValueError("it takes more values than it has")
    taken = stack[first:]
    del stack[first:]
    return taken


def refuse_collisions(keys: Iterable) -> list:
    """The keys of a dict or set that is being read, as a list.

    Raises:
        ValueError: if too many have one hash.
        TypeError: if one has none.
    """
    keys = list(keys)
    if len(keys) > _MOST_EQUAL:
        for _, equal in groupby(sorted(map(hash, keys))):
            if sum(1 for _ in equal) > _MOST_EQUAL:
                raise ValueError(f"more than {_MOST_EQUAL} of its keys have one hash")
    return keys
