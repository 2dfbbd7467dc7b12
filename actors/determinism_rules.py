"""What replays differently, and what to write instead: one table for the static check and the guards of turns.

Codes: EV1xx is wrong in any workflow, EV2xx is wrong unless the author knows better, EV3xx is worth a look.
"""

from __future__ import annotations

from typing import NamedTuple


class Rule(NamedTuple):
    """One kind of call.

    Attributes:
        code: Stable name of the rule, as ``EV101``.
        why: What is wrong with it in workflow code.
        advice: What to do instead.
    """

    code: str
    why: str
    advice: str

    @property
    def severity(self) -> str:
        """``error``, ``warning`` or ``hint``."""
        return {"1": "error", "2": "warning"}.get(self.code[2], "hint")


_ACTIVITY = "in an activity, and call workflow.execute_activity()"

CLOCK = Rule("EV101", "the clock shows another time on replay", "use workflow.now() or workflow.time()")
SLEEP = Rule("EV102", "it stops every run of the process", "await workflow.sleep() or asyncio.sleep()")
RANDOM = Rule("EV103", "it gives other numbers on replay", "use workflow.random(), seeded once for each run")
UUID = Rule("EV103", "it gives another id on replay", "use workflow.uuid4()")
ENVIRONMENT = Rule(
    "EV104",
    "the process that replays may have another environment",
    "pass the value as an argument of the workflow, or read it " + _ACTIVITY,
)
FILES = Rule("EV105", "files are not in the journal", "do file work " + _ACTIVITY)
NETWORK = Rule("EV106", "the network is not in the journal", "do network work " + _ACTIVITY)
PROCESSES = Rule("EV107", "it happens again at every replay", "start programs and processes " + _ACTIVITY)
THREADS = Rule(
    "EV108",
    "what other threads do comes in another order on replay",
    "put the blocking call in a plain 'def' activity; for concurrency use asyncio.create_task()",
)
LOOPS = Rule(
    "EV109",
    "workflow code has one loop already",
    "await the coroutine, or start it with asyncio.create_task()",
)
INPUT = Rule("EV110", "nobody answers on replay", "let a signal or an update bring the answer")
SET_ORDER = Rule(
    "EV201", "a set has another order in another process", "use a list or a dict, or iterate over sorted(...)"
)
MODULE_STATE = Rule(
    "EV202",
    "all runs of the process share it, and a restart empties it",
    "keep it on self, or pass it as an argument",
)
UNAWAITED = Rule(
    "EV203",
    "nothing waits for it: it may never begin, and nobody sees its failure",
    "put await before it, or keep asyncio.create_task(...) of it and await that",
)
PRINT = Rule("EV301", "it prints again at every replay", "use workflow.logger")
ADDRESSES = Rule("EV302", "it differs between processes", "use a value of your own, or hashlib")


def _names(rule: Rule, module: str, names: str) -> dict[str, Rule]:
    prefix = f"{module}." if module else ""
    return {prefix + name: rule for name in names.split()}


CLOCKS = _names(
    CLOCK,
    "time",
    "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns process_time process_time_ns",
)
RANDOM_FUNCTIONS = _names(
    RANDOM,
    "random",
    "random uniform triangular randint choice randrange sample shuffle choices normalvariate lognormvariate "
    "expovariate vonmisesvariate gammavariate gauss betavariate paretovariate weibullvariate getrandbits "
    "randbytes seed",
) | _names(RANDOM, "secrets", "choice randbelow randbits token_bytes token_hex token_urlsafe")
URANDOM = _names(RANDOM, "os", "urandom getrandom")
UUIDS = _names(UUID, "uuid", "uuid1 uuid4 uuid6 uuid7")

#: Calls by their dotted names, wrong with any arguments. Builtins have no dot.
CALLS: dict[str, Rule] = {
    **CLOCKS,
    **_names(CLOCK, "time", "thread_time thread_time_ns clock_gettime clock_gettime_ns"),
    **_names(CLOCK, "datetime", "datetime.now datetime.utcnow datetime.today date.today"),
    **_names(SLEEP, "", "time.sleep signal.pause signal.sigwait select.select"),
    **RANDOM_FUNCTIONS,
    **URANDOM,
    **_names(
        RANDOM, "", "random.SystemRandom secrets.SystemRandom numpy.random.default_rng numpy.random.rand"
    ),
    **UUIDS,
    **_names(
        ENVIRONMENT,
        "os",
        "getenv getenvb getpid getppid getcwd getlogin cpu_count uname getloadavg get_terminal_size",
    ),
    **_names(ENVIRONMENT, "platform", "node platform system release version machine uname python_version"),
    **_names(ENVIRONMENT, "pathlib", "Path.cwd Path.home"),
    **_names(ENVIRONMENT, "", "socket.gethostname socket.getfqdn getpass.getuser"),
    **_names(
        FILES,
        "os",
        "open read write stat lstat listdir scandir walk fwalk mkdir makedirs remove unlink removedirs rmdir "
        "rename renames replace link symlink readlink truncate chmod chown utime access path.exists path.isfile "
        "path.isdir path.getsize path.getmtime path.getctime path.realpath",
    ),
    **_names(FILES, "shutil", "copy copy2 copyfile copyfileobj copytree move rmtree disk_usage which"),
    **_names(
        FILES,
        "tempfile",
        "mkstemp mkdtemp NamedTemporaryFile TemporaryFile TemporaryDirectory SpooledTemporaryFile gettempdir",
    ),
    **_names(FILES, "", "open io.open codecs.open glob.glob glob.iglob sqlite3.connect dbm.open shelve.open"),
    **_names(
        NETWORK,
        "socket",
        "socket socketpair create_connection create_server getaddrinfo gethostbyname gethostbyname_ex "
        "gethostbyaddr getnameinfo",
    ),
    **_names(NETWORK, "requests", "get post put patch delete head options request Session session"),
    **_names(NETWORK, "httpx", "get post put patch delete head options request stream Client AsyncClient"),
    **_names(NETWORK, "aiohttp", "ClientSession request"),
    **_names(NETWORK, "urllib", "request.urlopen request.urlretrieve"),
    **_names(NETWORK, "http.client", "HTTPConnection HTTPSConnection"),
    **_names(NETWORK, "", "smtplib.SMTP smtplib.SMTP_SSL ftplib.FTP urllib3.request urllib3.PoolManager"),
    **_names(
        NETWORK,
        "asyncio",
        "open_connection start_server open_unix_connection start_unix_server",
    ),
    **_names(PROCESSES, "subprocess", "run call check_call check_output Popen getoutput getstatusoutput"),
    **_names(PROCESSES, "asyncio", "create_subprocess_exec create_subprocess_shell"),
    **_names(
        PROCESSES,
        "os",
        "system popen fork forkpty posix_spawn posix_spawnp spawnl spawnv spawnve execv execve execl execvp "
        "kill killpg putenv unsetenv",
    ),
    **_names(PROCESSES, "multiprocessing", "Process Pool Queue SimpleQueue Manager Pipe"),
    **_names(THREADS, "threading", "Thread Timer"),
    **_names(THREADS, "_thread", "start_new_thread start_joinable_thread"),
    **_names(THREADS, "concurrent.futures", "ThreadPoolExecutor ProcessPoolExecutor InterpreterPoolExecutor"),
    **_names(THREADS, "multiprocessing.pool", "ThreadPool"),
    **_names(THREADS, "asyncio", "to_thread run_coroutine_threadsafe"),
    **_names(LOOPS, "asyncio", "run Runner new_event_loop"),
    **_names(INPUT, "", "input getpass.getpass"),
    **_names(PRINT, "", "print"),
    **_names(ADDRESSES, "", "hash id"),
}

#: Calls that are wrong without arguments only: they take the clock or the system's entropy then.
CALLS_WITHOUT_ARGUMENTS: dict[str, Rule] = {
    **_names(CLOCK, "time", "localtime gmtime ctime asctime"),
    **_names(RANDOM, "", "random.Random"),
}

#: Methods that only one kind of object has, by name.
METHODS: dict[str, Rule] = _names(THREADS, "", "run_in_executor call_soon_threadsafe")
#: Methods of paths; looked for in files that import pathlib.
PATH_METHODS: dict[str, Rule] = _names(FILES, "", "read_text read_bytes write_text write_bytes iterdir")

#: Values whose mere use is wrong.
VALUES: dict[str, Rule] = {
    **_names(ENVIRONMENT, "", "os.environ os.environb"),
}

#: Calls by their dotted names that do their work, or tell how it ended, only when they are awaited.
AWAITED: dict[str, Rule] = {
    **_names(
        UNAWAITED,
        "everact.workflow",
        "execute_activity execute_activity_method execute_child_workflow race sleep sleep_until start_child_workflow "
        "start_detached wait_condition wait_for_children wait_for_signal",
    ),
    **_names(UNAWAITED, "asyncio", "sleep wait wait_for"),
}


def _events(rule: Rule, names: str) -> dict[str, tuple[str, Rule]]:
    return {name: (name.removesuffix(".__new__"), rule) for name in names.split()}


#: What the interpreter reports of itself (``sys.audit``): the name to show and the rule. All routes to the same thing
#: (libraries, aliases, C code) end here.
EVENTS: dict[str, tuple[str, Rule]] = {
    **_events(
        FILES,
        "open os.listdir os.scandir os.walk os.fwalk os.mkdir os.remove os.rmdir os.rename os.link os.symlink "
        "os.truncate os.chmod os.chown os.utime os.chdir os.setxattr os.getxattr os.listxattr os.removexattr "
        "os.lockf glob.glob pathlib.Path.glob pathlib.Path.rglob shutil.copyfile shutil.copymode shutil.copystat "
        "shutil.copytree shutil.move shutil.rmtree shutil.make_archive shutil.unpack_archive shutil.chown "
        "tempfile.mkstemp tempfile.mkdtemp sqlite3.connect dbm.open fcntl.flock fcntl.lockf mmap.__new__",
    ),
    **_events(
        NETWORK,
        "socket.__new__ socket.connect socket.bind socket.sendto socket.sendmsg socket.getaddrinfo "
        "socket.gethostbyname socket.gethostbyaddr socket.getnameinfo socket.getservbyname urllib.Request "
        "http.client.connect http.client.send ftplib.connect imaplib.open poplib.connect smtplib.connect",
    ),
    **_events(ENVIRONMENT, "socket.gethostname os.putenv os.unsetenv"),
    **_events(
        PROCESSES,
        "subprocess.Popen os.system os.exec os.fork os.forkpty os.posix_spawn os.spawn os.startfile os.kill "
        "os.killpg pty.spawn webbrowser.open",
    ),
    # Threads are reported since Python 3.12, time.sleep since 3.13.
    "_thread.start_new_thread": ("starting a thread", THREADS),
    "_thread.start_joinable_thread": ("starting a thread", THREADS),
    "time.sleep": ("time.sleep", SLEEP),
    "builtins.input": ("input", INPUT),
}
