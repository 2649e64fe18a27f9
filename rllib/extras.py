"""What a user types to install an optional part: messages say it, and it has to reach this library's code.

On the public package index the names `rllib` and `runtime` belong to other projects: to install one of these brings
another package. The distribution has another name.
"""

import functools
import json
from pathlib import Path
from urllib.parse import unquote, urlsplit

# The name under which a package index has this library. What is imported is still `rllib` and `runtime`.
DISTRIBUTION = "rllib-zmq"


def install_hint(extra: str) -> str:
    """The command that installs an extra into the present environment: "pip install 'rllib-zmq[plot]'".

    Where the library was installed from a directory or a file, such as a clone or a wheel, the command names that.

    Args:
        extra: its name in pyproject.toml, or several, "plot,video".
    """
    source, is_editable = _installed_from()
    if source is None:
        return f"pip install '{DISTRIBUTION}[{extra}]'"
    where = "." if source == Path.cwd() else source
    return f"pip install {'-e ' if is_editable else ''}'{where}[{extra}]'"


@functools.cache
def _installed_from() -> tuple[Path | None, bool]:
    """The directory or file that was installed, and whether it is used in place; (None, False): an index, or not known.

    pip notes the first (PEP 610). A clone that was not installed is used in place as well.
    """
    import importlib.metadata  # it takes 20 ms, and few processes miss a package

    try:
        noted = importlib.metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        root = Path(__file__).parents[1]
        return (root, True) if (root / "pyproject.toml").exists() else (None, False)
    url = json.loads(noted) if noted else {}
    parts = urlsplit(url.get("url", ""))
    if parts.scheme != "file":
        return None, False
    return Path(unquote(parts.path)), bool(url.get("dir_info", {}).get("editable"))
