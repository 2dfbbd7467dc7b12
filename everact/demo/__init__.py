"""The demo: audits the installed packages while its worker process is killed with SIGKILL.

``audit`` is what to read first: the workflows and activities. ``record`` is the plain Python below them, ``worker``
the process that is killed, ``supervisor`` the one that kills it, ``proof`` what the journal shows at the end, and
``report`` puts it on the screen.
"""
