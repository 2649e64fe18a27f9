"""Running a program in this process."""

import os
import sys
import types
from pathlib import Path

from rllib.compat.programs.ray_files import SOURCES, sources_of


def run_program(script: str, arguments: list[str]) -> None:
    """Runs a program as `python script.py ARGUMENTS` does.

    Raises:
        SystemExit: the program has raised it, or there is no such file.
    """
    path = Path(script)
    try:
        code = compile(path.read_bytes(), script, "exec")
    except OSError as error:
        raise SystemExit(f"{script} cannot be read: {error.strerror}") from None
    if (sources := sources_of(path)) is not None:
        os.environ.setdefault(SOURCES, str(sources))
    sys.argv[:] = [script, *arguments]
    if not sys.flags.safe_path:
        sys.path[0] = str(path.resolve().parent)
    # A separate module, which stays: classes of the program are looked up in __main__ when they are pickled.
    sys.modules["__main__"] = main = types.ModuleType("__main__")
    main.__file__ = script
    exec(code, vars(main))


def main(command: str, about: str | None) -> None:
    """The shell's command `python -m COMMAND SCRIPT [ARGUMENTS]`.

    Raises:
        SystemExit: for --help, and without a script.
    """
    usage = f"usage: python -m {command} SCRIPT [ARGUMENTS]"
    if len(sys.argv) < 2:
        print(usage, file=sys.stderr)
        raise SystemExit(2)
    if sys.argv[1] in ("-h", "--help"):
        print(f"{usage}\n\n{about}")
        raise SystemExit
    run_program(sys.argv[1], sys.argv[2:])
