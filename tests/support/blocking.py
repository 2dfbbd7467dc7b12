"""Stand still at a fault point until a test lets go."""

import threading


class Blocked:
    """Arm it at a fault point: ``reached`` says that somebody stands there, ``go`` lets them pass."""

    def __init__(self):
        self.reached = threading.Event()
        self.go = threading.Event()

    def __call__(self):
        self.reached.set()
        assert self.go.wait(20)
