"""The client: the verbs of a runtime from another process."""

# The implementations below their overloads take `*args: *Ts`, or mypy refuses the overloads.
# pyright: reportInvalidTypeVarUse=false

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, Unpack, overload

import msgspec

from ..actors.addresses import address_of
from ..actors.async_blocks import AsyncBlock
from ..actors.client_interceptors import (
    ClientOutboundInterceptor,
    CountWorkflowsInput,
    ListWorkflowsInput,
    StartWorkflowInput,
)
from ..actors.definitions import workflow_definition
from ..actors.descriptions import WorkflowSummary
from ..actors.handles import WorkflowHandle
from ..actors.intercepted_clients import InterceptingMessenger
from ..actors.interceptors import Interceptor, check_interceptors
from ..actors.listing import PAGE_SIZE, WorkflowListing, WorkflowPage
from ..actors.options import (
    StartOptions,
    check_option_names,
    check_request_id,
    check_status,
    check_text,
    check_workflow_id,
    each_of,
    microseconds,
)
from ..actors.start_options import plain_option
from ..actors.typing import R, Ts, W, WorkflowClass
from ..actors.workflow_types import named_type
from ..journal.events import Header
from ..journal.ids import random_id
from ..journal.payloads import PayloadConverter
from ..journal.type_converters import TypeConverter, TypeUpgrade
from .connecting import Connecting
from .connection import Connection
from .remote import RemoteMessenger, with_classes, with_headers
from .remote_activities import RemoteActivityAccess


class _Started(msgspec.Struct):
    """The answer to a start."""

    workflow_id: str
    run_id: str


class _Count(msgspec.Struct):
    """How many runs there are."""

    count: int


class _Page(msgspec.Struct):
    """A page of a list as it travels."""

    workflows: list[WorkflowSummary]
    next_page_token: str | None


#: How long a call may take, a restart of the program included.
TIMEOUT = timedelta(seconds=30)
_PREFIX = "unix:"


class Client(RemoteActivityAccess, AsyncBlock):
    """Talks to the ``Runtime`` of another process; made by ``connect``, and used in that event loop.

    Use it as ``async with Client.connect(...) as client``, or call ``close``. Handles are those of the runtime.

    Attributes:
        name: Name of the runtime, the cluster part of addresses.
    """

    _written = "Client.connect(...)"
    _make_messenger = RemoteMessenger
    #: Called with a text when the program does not answer; None: it is logged.
    _say: Callable[[str], None] | None = None

    def __init__(
        self,
        name: str,
        connection: Connection,
        converter: PayloadConverter,
        interceptors: Sequence[Interceptor] = (),
    ) -> None:
        self.name = name
        self._connection = connection
        self._messenger: Any = self._make_messenger(name, connection, converter)  # has the calls of Messenger
        self._clients: ClientOutboundInterceptor | None = None
        if interceptors:
            self._messenger = InterceptingMessenger(self._messenger, self, interceptors)
            self._clients = self._messenger.chain

    @classmethod
    def connect(
        cls,
        url: str,
        *,
        timeout: timedelta | float = TIMEOUT,
        converters: Iterable[TypeConverter[Any] | TypeUpgrade] = (),
        interceptors: Sequence[Interceptor] = (),
    ) -> Connecting[Self]:
        """Connect to a running program: by ``async with``, or by ``await`` and then ``close``.

        Args:
            url: ``unix:DIR``, with the directory of the journal that the program has open.
            timeout: How long each call may take beyond what it waits for a run, a timedelta or seconds. When the
                program is restarted a call goes on within this time.
            converters: As of ``Runtime``, for arguments and results of classes of your own.
            interceptors: Code of yours around the calls of this client and its handles; the first is the outermost.

        Raises:
            RuntimeUnreachableError: Nobody listens there.
            ValueError: The url is none of this form.
        """
        return Connecting(cls._connect(url, timeout, converters, interceptors))

    @classmethod
    async def _connect(
        cls,
        url: str,
        timeout: timedelta | float,  # noqa: ASYNC109
        converters: Iterable[TypeConverter[Any] | TypeUpgrade],
        interceptors: Sequence[Interceptor],
    ) -> Self:
        check_text("the url of a Client", url)
        journal = url.removeprefix(_PREFIX)
        if not url.startswith(_PREFIX) or not journal:
            raise ValueError(
                f"Client.connect takes 'unix:DIR' with the directory of a journal on this machine, not {url!r}"
            )
        seconds = microseconds("timeout", timeout) / 1_000_000
        checked = check_interceptors(each_of("interceptors", interceptors))
        converter = PayloadConverter(converters=converters)
        connection = Connection(journal, seconds, converter, cls._say)
        try:
            return cls(await connection.connect(), connection, converter, checked)
        except BaseException:
            await connection.close()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of the connections; what was sent is not undone."""
        await self._connection.close()

    @overload
    async def spawn(
        self, workflow: Callable[[W, *Ts], Awaitable[R]], /, *args: *Ts, **options: Unpack[StartOptions]
    ) -> WorkflowHandle[W, R]: ...
    @overload
    async def spawn(
        self, workflow: WorkflowClass[W, *Ts, R], /, *args: *Ts, **options: Unpack[StartOptions]
    ) -> WorkflowHandle[W, R]: ...
    @overload
    async def spawn(
        self, workflow: str, /, *args: Any, **options: Unpack[StartOptions]
    ) -> WorkflowHandle[Any, Any]: ...
    async def spawn(self, workflow: Any, /, *args: *Ts, **options: Any) -> Any:
        """Start a workflow in the other process; returns once the start is durable.

        Arguments, options and errors are those of ``Runtime.spawn``.

        Raises:
            RuntimeUnreachableError: Nobody listens any more.
            CallTimeoutError: There was no answer in time; repeat with the same id and request id.
            CallRefusedError: The program does not know the call.
        """
        if self._clients is None:
            return await self._start_workflow(workflow, args, options)
        name, _ = named_type(workflow)
        start = StartWorkflowInput(name, list(args), options, {}, (name, workflow))
        return await self._clients.start_workflow(start)

    async def _start_workflow(
        self,
        workflow: Any,
        args: Sequence[Any],
        options: dict[str, Any],
        headers: tuple[Header, ...] = (),
    ) -> WorkflowHandle[Any, Any]:
        name, definition = named_type(workflow)
        check_text("the name of a workflow type", name, may_be_empty=True)
        check_option_names("start", options, StartOptions)
        codec = None if definition is None else definition.codec
        values = self._messenger.encoded(codec, args, f"argument of workflow {name}")
        options = {key: plain_option(key, value) for key, value in options.items()}
        if "id" in options:
            options["id"] = check_workflow_id(options["id"])
        elif options.get("request_id"):
            raise ValueError("request_id needs an id: a repeat is recognised by both")
        else:
            options["id"] = random_id()
        options["request_id"] = check_request_id(options.get("request_id")) or random_id()
        body = {"workflow": name, "args": values, "options": options}
        body |= with_classes(definition is not None) | with_headers(headers)
        repeat = {"id": options["id"], "request_id": options["request_id"]}
        data = await self._connection.call("POST", "workflows", body=body, repeat=repeat)
        started = self._connection.read(data, _Started)
        handle: WorkflowHandle[Any, Any] = WorkflowHandle(
            self._messenger, started.workflow_id, started.run_id, definition
        )
        return handle

    @overload
    async def execute(
        self, workflow: Callable[[W, *Ts], Awaitable[R]], /, *args: *Ts, **options: Unpack[StartOptions]
    ) -> R: ...
    @overload
    async def execute(
        self, workflow: WorkflowClass[W, *Ts, R], /, *args: *Ts, **options: Unpack[StartOptions]
    ) -> R: ...
    @overload
    async def execute(self, workflow: str, /, *args: Any, **options: Unpack[StartOptions]) -> Any: ...
    async def execute(self, workflow: Any, /, *args: *Ts, **options: Any) -> Any:
        """Start a workflow and wait for its result: ``spawn`` and ``result`` in one."""
        handle = await self.spawn(workflow, *args, **options)
        return await handle.result()

    @overload
    def ref(self, workflow: str, kind: WorkflowClass[W, *Ts, R], /) -> WorkflowHandle[W, R]: ...
    @overload
    def ref(self, workflow: str, /) -> WorkflowHandle[Any, Any]: ...
    def ref(self, workflow: str, kind: Any = None, /) -> Any:
        """A handle by workflow id or address; as ``Runtime.ref``."""
        definition = workflow_definition(kind) if kind is not None else None
        address = address_of(workflow, self.name)
        handle: WorkflowHandle[Any, Any] = WorkflowHandle(
            self._messenger, address.workflow_id, address.run_id, definition
        )
        return handle

    def list_workflows(
        self,
        *,
        workflow_type: str | None = None,
        status: str | None = None,
        limit: int | None = None,
        page_size: int = PAGE_SIZE,
        next_page_token: str | None = None,
    ) -> WorkflowListing:
        """List durable runs, newest first; as ``Runtime.list_workflows``. One page at a time is in memory."""
        asked = ListWorkflowsInput(workflow_type, status, limit, page_size, next_page_token)
        if self._clients is None:
            return self._list_workflows(asked)
        return self._clients.list_workflows(asked)

    def _list_workflows(self, asked: ListWorkflowsInput) -> WorkflowListing:
        async def read(size: int | None, token: str | None) -> WorkflowPage:
            query = {
                "type": asked.workflow_type,
                "status": asked.status,
                "page_size": size,
                "next_page_token": token,
            }
            data = await self._connection.call("GET", "workflows", query=query)
            found = self._connection.read(data, _Page)
            return WorkflowPage(found.workflows, found.next_page_token)

        check_status(asked.status)
        return WorkflowListing(read, asked.limit, asked.page_size, asked.next_page_token, at_once=PAGE_SIZE)

    async def count_workflows(self, *, workflow_type: str | None = None, status: str | None = None) -> int:
        """Count durable runs; as ``Runtime.count_workflows``."""
        if self._clients is None:
            return await self._count_workflows(workflow_type, status)
        return await self._clients.count_workflows(CountWorkflowsInput(workflow_type, status))

    async def _count_workflows(self, workflow_type: str | None, status: str | None) -> int:
        query = {"type": workflow_type, "status": status}
        data = await self._connection.call("GET", "workflow-count", query=query)
        return self._connection.read(data, _Count).count
