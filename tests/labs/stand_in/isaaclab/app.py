"""As isaaclab.app: the application, which is to start before torch is imported (source/isaaclab/isaaclab/app)."""

import sys

started = []


class App:
    """As the SimulationApp."""

    def __init__(self):
        self.closed, self.left = False, 20

    def is_running(self) -> bool:
        self.left -= 1
        return self.left > 0

    def close(self) -> None:
        self.closed = True


class AppLauncher:
    def __init__(self, launcher_args=None, **kwargs):
        self.arguments, self.loaded = dict(vars(launcher_args)), {"torch", "gymnasium"} & set(sys.modules)
        self.app = App()
        started.append(self)

    @staticmethod
    def add_app_launcher_args(parser) -> None:
        parser.add_argument("--headless", action="store_true")
        parser.add_argument("--enable_cameras", action="store_true")
        parser.add_argument("--device", default="cpu")
