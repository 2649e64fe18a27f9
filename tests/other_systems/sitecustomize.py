"""Makes rllib and runtime see another system than Linux, in an interpreter that has this directory in PYTHONPATH.

The variable OTHER_SYSTEM names it: "darwin" or "win32". Modules of rllib and runtime, and the main program, import
modules without the names that only Linux has, or only Unix; sys.platform is the other system's. Other packages see
Linux: on the other system they have code of their own. Processes that are started inherit all of it.
"""

import builtins
import importlib
import os
import sys
from importlib.machinery import PathFinder, SourceFileLoader
from types import ModuleType

SYSTEM = os.environ.get("OTHER_SYSTEM", "")
PACKAGES = ("rllib", "runtime")
# Directories of the kernel.
KERNEL = ("/proc", "/sys", "/dev")
# Module -> names that it does not have on another system; a prefix ends in "*".
LINUX_ALONE = {
    "os": "eventfd* EFD_* memfd_create MFD_* pidfd_open P_PIDFD sched_getaffinity sched_setaffinity posix_fallocate "
    "posix_fadvise POSIX_FADV_* copy_file_range splice SPLICE_* setns unshare CLONE_* getrandom GRND_* listxattr "
    "getxattr setxattr removexattr O_PATH O_TMPFILE O_DIRECT O_NOATIME preadv pwritev RWF_*",
    "select": "epoll EPOLL*",
    "signal": "pidfd_send_signal sigtimedwait sigwaitinfo SIGRTMIN SIGRTMAX",
    "socket": "AF_UNIX SOCK_SEQPACKET AF_NETLINK AF_VSOCK",
    "mmap": "MADV_HUGEPAGE MADV_DONTFORK MADV_REMOVE MAP_POPULATE",
    "resource": "prlimit",
}
UNIX_ALONE = {
    "os": "fork* register_at_fork getuid geteuid getgid getegid getgroups getpgid getpgrp getsid getresuid getresgid "
    "set*id setgroups killpg nice sysconf* confstr* pathconf* statvfs fstatvfs pread pwrite mkfifo mknod fchmod fchown "
    "chown lchown chroot fchdir getloadavg uname wait wait3 wait4 waitid WNOHANG WIF* WEXIT* P_* posix_* POSIX_* tc* "
    "openpty ctermid O_CLOEXEC O_NONBLOCK O_NOFOLLOW O_DIRECTORY O_SYNC O_DSYNC O_NOCTTY O_NDELAY sched_* SCHED_* "
    "sendfile sync fdatasync lockf F_* readv writev pipe2 getpriority setpriority PRIO_* ttyname major minor makedev",
    "signal": "SIGKILL SIGUSR1 SIGUSR2 SIGHUP SIGQUIT SIGALRM SIGCHLD SIGPIPE SIGSTOP SIGTSTP SIGCONT SIGWINCH "
    "pthread_* setitimer getitimer alarm pause sigwait sigpending siginterrupt ITIMER_*",
    "select": "poll POLL*",
    "mmap": "MADV_* MAP_* PROT_*",
    "faulthandler": "register unregister",
    "time": "tzset clock_gettime* clock_settime* pthread_getcpuclockid",
    "socket": "sendmsg_afalg send_fds recv_fds SO_REUSEPORT",
}
UNIX_MODULES = (
    *("curses", "fcntl", "grp", "posix", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty"),
    *("_posixshmem", "_posixsubprocess"),
)


class Narrowed(ModuleType):
    """A module without some of its names.

    Args:
        real: the module.
        hidden: names, and prefixes that end in "*".
        instead: name -> its value here.
    """

    def __init__(self, real: ModuleType, hidden: str, instead: dict):
        super().__init__(real.__name__)
        prefixes = tuple(name[:-1] for name in hidden.split() if name.endswith("*"))
        self.__dict__.update(_real=real, _hidden=frozenset(hidden.split()), _prefixes=prefixes, _instead=instead)
        for name in ("__doc__", "__spec__", "__loader__", "__package__"):
            self.__dict__.pop(name, None)

    def __getattr__(self, name):
        if name in self._instead:
            return self._instead[name]
        if name in self._hidden or (self._prefixes and name.startswith(self._prefixes)):
            raise AttributeError(f"module {self._real.__name__!r} has no attribute {name!r} on {SYSTEM}")
        return getattr(self._real, name)

    def __setattr__(self, name, value):
        setattr(self._real, name, value)


def _instead() -> dict[str, dict]:
    """Module -> name -> what it is on the other system."""
    changed = {"sys": {"platform": SYSTEM}}
    if SYSTEM != "win32":
        return changed
    import ctypes
    import mmap

    class Map(mmap.mmap):
        def __new__(cls, fileno, length, tagname=None, access=mmap.ACCESS_DEFAULT, offset=0):
            return super().__new__(cls, fileno, length, access=access, offset=offset)

        @property
        def madvise(self):
            raise AttributeError("madvise")

    def library(name, *arguments, **options):
        if name is None:
            raise TypeError("bad argument type for built-in operation")
        return ctypes.CDLL(name, *arguments, **options)

    def open_file(path, flags, mode=0o777, *, dir_fd=None):
        if dir_fd is not None:
            raise NotImplementedError("dir_fd unavailable on this platform")
        if os.path.isdir(path):
            raise PermissionError(13, "Permission denied", str(path))
        return os.open(path, flags, mode)

    def rename(source, target, **options):
        if os.path.lexists(target):
            raise FileExistsError(17, "File exists", str(target))
        os.rename(source, target, **options)

    changed["os"] = {"open": open_file, "rename": rename, "O_BINARY": 0}
    changed["mmap"] = {"mmap": Map}
    changed["ctypes"] = {"CDLL": library}
    return changed


def _narrowed() -> dict[str, ModuleType]:
    hidden = {name: LINUX_ALONE.get(name, "") for name in {*LINUX_ALONE, "sys", "ctypes", "faulthandler", "time"}}
    if SYSTEM == "win32":
        for name, names in UNIX_ALONE.items():
            hidden[name] = f"{hidden.get(name, '')} {names}"
    changed = _instead()
    return {n: Narrowed(importlib.import_module(n), names, changed.get(n, {})) for n, names in hidden.items()}


def _own_import(narrowed: dict[str, ModuleType]):
    def find(name, globals=None, locals=None, fromlist=(), level=0):
        if not level and SYSTEM == "win32" and name.partition(".")[0] in UNIX_MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        if not level and name in narrowed:
            return narrowed[name]
        return builtins.__import__(name, globals, locals, fromlist, level)

    return find


class Loader(SourceFileLoader):
    """Runs a module of rllib or runtime with imports of its own."""

    def exec_module(self, module):
        module.__dict__["__builtins__"] = BUILTINS
        super().exec_module(module)


class Finder:
    """Finds modules of rllib and runtime."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] not in PACKAGES:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = Loader(spec.loader.name, spec.loader.path)
        return spec


def _refuse_kernel_files(event: str, arguments: tuple) -> None:
    """Audit hook: files of the kernel are not there for rllib and runtime, whichever module opens them for these."""
    if event != "open" or not isinstance(arguments[0], str | bytes | os.PathLike):
        return
    path = os.fsdecode(arguments[0])
    if path.startswith(KERNEL) and path != os.devnull and _asked_by_us():
        raise FileNotFoundError(2, "No such file or directory", path)


def _asked_by_us() -> bool:
    """Whether the innermost frame outside of the standard library is of rllib or runtime."""
    frame = sys._getframe(2)
    while frame is not None:
        root = frame.f_globals.get("__name__", "").partition(".")[0]
        if root not in sys.stdlib_module_names and root != __name__:
            return root in PACKAGES
        frame = frame.f_back
    return False


if SYSTEM:
    BUILTINS = {**vars(builtins), "__import__": _own_import(_narrowed())}
    sys.meta_path.insert(0, Finder)
    sys.addaudithook(_refuse_kernel_files)
    sys.modules["__main__"].__dict__["__builtins__"] = BUILTINS
