"""Fakes of activities and of child workflows: they go through the real pool, its limits and the journal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from ..actors.activity import info
from ..actors.call_codec import CallCodec
from ..actors.definitions import (
    ActivityDefinition,
    WorkflowDefinition,
    activity_definition,
    workflow_definition,
)
from ..actors.dynamic import DynamicCodec
from ..actors.errors import ActivityError, RuntimeClosedError
from ..actors.options import RetryPolicy
from ..actors.workflow import defn, execute_activity, run, signal
from ..actors.workflow_types import named_type
from ..journal.payloads import PayloadConverter, RawValue
from .errors import LEFT
from .outcomes import Host, MockCall, Outcomes

if TYPE_CHECKING:
    from ..actors.registry import Registry

R = TypeVar("R")

#: Longer than any delay of a fake.
_FOR_EVER = timedelta(days=36_500)


class _Mock(Generic[R]):
    """A fake, until it is taken away: by leaving its block, or with its environment.

    Attributes:
        name: Of what it stands for.
        calls: Every call it has got, in order; each attempt is one.
    """

    def __init__(self, name: str, outcomes: Outcomes, host: Host) -> None:
        self.name = name
        self.calls: list[MockCall] = []
        self._outcomes = outcomes
        self._host = host
        self._definition: ActivityDefinition | None = None
        self._converter: PayloadConverter | None = None
        self._remove: Callable[[_Mock[Any]], None] | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.name!r}, {self.call_count} calls>"

    @property
    def was_called(self) -> bool:
        """Whether it has got a call."""
        return bool(self.calls)

    @property
    def call_count(self) -> int:
        """How many calls it has got, each attempt counted."""
        return len(self.calls)

    def __call__(self, code: Callable[..., Any], /) -> Self:
        """As a decorator: the function answers the calls; its name is the fake from then on.

        Raises:
            TypeError: The fake has an outcome already, or the function does not take the arguments.
        """
        if self._outcomes.is_given:
            raise TypeError(f"the mock of {self._outcomes.what} has an outcome already")
        self._outcomes.use(code)
        self._check()
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._remove is not None:
            self._remove(self)

    def _check(self) -> None:
        assert self._definition is not None
        assert self._converter is not None
        self._outcomes.check(self._definition, self._converter)

    async def _called(self, *args: Any, **kwargs: Any) -> Any:
        self.calls.append(MockCall(args, kwargs, info(), self._host.now()))
        return await self._outcomes.take(self._host, len(self.calls), args, kwargs)


class ActivityMock(_Mock[R]):
    """A fake of an activity; see ``TestEnvironment.mock_activity``."""


class WorkflowMock(_Mock[R]):
    """A fake of a workflow type; see ``TestEnvironment.mock_workflow``."""


def standing_for(
    codec: CallCodec | None, name: str, mock: _Mock[Any], converter: PayloadConverter
) -> ActivityDefinition:
    """The definition of a fake; ``codec`` is that of the real function, None when that is not known."""

    async def called(*args: Any, **kwargs: Any) -> Any:
        return await mock._called(*args, **kwargs)

    async def by_name(_name: str, values: list[RawValue]) -> Any:
        return await mock._called(*[converter.decode(value.payload) for value in values])

    if codec is None or isinstance(codec, DynamicCodec):
        return ActivityDefinition(by_name, "").named(name)
    made = ActivityDefinition(called, name)
    made.codec = codec
    return made


def workflow_standing_for(
    definition: WorkflowDefinition | None, name: str, activity: str
) -> WorkflowDefinition:
    """A workflow type that has one activity, the fake, and its outcome."""

    @defn(name=name)
    class Mocked:
        @run
        async def run(self, *args: Any) -> Any:
            try:
                return await execute_activity(
                    activity,
                    *args,
                    start_to_close_timeout=_FOR_EVER,
                    retry_policy=RetryPolicy(maximum_attempts=1),
                )
            except ActivityError as error:
                raise error.__cause__ or error from None

        @signal(dynamic=True)
        def take(self, name: str, args: list[RawValue]) -> None:
            """Signals of the real type are taken, and nothing is done."""

    made = workflow_definition(Mocked)
    if definition is not None:
        made.codec = definition.codec
    return made


class KnownActivities(dict[str, ActivityDefinition]):
    """Activities by name, with a note of those that were looked for and are not there."""

    def __init__(self, known: Mapping[str, ActivityDefinition], missed: Callable[[str], None]) -> None:
        super().__init__(known)
        self._missed = missed

    def get(self, name: str, default: Any = None) -> Any:
        """The definition of a name."""
        found = super().get(name)
        if found is None:
            self._missed(name)
            return default
        return found


class Mocks:
    """The fakes of one environment, put in place of what its runtimes have registered.

    Attributes:
        missing: Activities that were called, and are neither registered nor mocked; those that nobody was told of.
        is_over: The environment was left; no fake is made any more.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self.is_over = False
        self.missing: list[str] = []
        self._all: list[_Mock[Any]] = []
        self._registry: Registry | None = None
        self._converter: PayloadConverter | None = None
        self._activities: Mapping[str, ActivityDefinition] = {}
        self._workflows: Mapping[str, WorkflowDefinition] = {}
        self._classes: dict[Any, WorkflowDefinition] = {}
        self._real: dict[_Mock[Any], WorkflowDefinition | None] = {}
        self.faked: set[str] = set()  # workflow types that were ever faked

    def use(self, registry: Registry, converter: PayloadConverter) -> None:
        """Put all of them into the registry of a new runtime."""
        self._registry, self._converter = registry, converter
        if type(registry.activities) is dict:  # with a dynamic one, no name is missing
            registry.activities = KnownActivities(registry.activities, self._miss)
        self._activities = dict(registry.activities)
        self._workflows = dict(registry.workflows)
        self._classes = dict(registry._of_class)
        for mock in self._all:
            self._install(mock)

    def _miss(self, name: str) -> None:
        if name not in self.missing:
            self.missing.append(name)

    def add_activity(self, activity: Any, outcomes: dict[str, Any]) -> ActivityMock[Any]:
        """Make a fake of an activity, by function or by name."""
        if isinstance(activity, str):
            name, known = activity, self._activities.get(activity)
            codec = None if known is None else known.codec
        else:
            definition = activity_definition(activity)
            name, codec = definition.name, definition.codec
        if not name:
            raise ValueError(
                "a dynamic activity is mocked by the name of a call, as in mock_activity('charge')"
            )
        mock: ActivityMock[Any] = ActivityMock(name, Outcomes(f"activity {name!r}", **outcomes), self._host)
        assert self._converter is not None
        mock._definition = standing_for(codec, name, mock, self._converter)
        self._add(mock)
        return mock

    def add_workflow(self, workflow: Any, outcomes: dict[str, Any]) -> WorkflowMock[Any]:
        """Make a fake of a workflow type, by class, run method or name."""
        name, definition = named_type(workflow)
        definition = definition or self._workflows.get(name)
        mock: WorkflowMock[Any] = WorkflowMock(name, Outcomes(f"workflow {name!r}", **outcomes), self._host)
        assert self._converter is not None
        codec = None if definition is None else definition.codec
        mock._definition = standing_for(codec, _activity_of(name), mock, self._converter)
        self._real[mock] = definition
        self._add(mock)
        return mock

    def _add(self, mock: _Mock[Any]) -> None:
        if self.is_over:
            raise RuntimeClosedError(LEFT)
        assert self._converter is not None
        mock._converter = self._converter
        mock._check()
        mock._remove = self._take_away
        self._all.append(mock)
        self._install(mock)

    def _install(self, mock: _Mock[Any]) -> None:
        registry = self._registry
        assert registry is not None
        assert mock._definition is not None
        registry.activities[mock._definition.name] = mock._definition
        if isinstance(mock, WorkflowMock):
            self.faked.add(mock.name)
            real = self._real[mock]
            made = workflow_standing_for(real, mock.name, mock._definition.name)
            registry.workflows[mock.name] = made
            if real is not None:
                registry._of_class[real.cls] = made

    def _take_away(self, mock: _Mock[Any]) -> None:
        if mock not in self._all:
            return
        self._all.remove(mock)
        assert self._registry is not None
        assert mock._definition is not None
        _restore(self._registry.activities, self._activities, mock._definition.name)
        if isinstance(mock, WorkflowMock):
            _restore(self._registry.workflows, self._workflows, mock.name)
            real = self._real.pop(mock)
            if real is not None:
                _restore(self._registry._of_class, self._classes, real.cls)
        for other in self._all:  # one that it had replaced
            if other.name == mock.name and type(other) is type(mock):
                self._install(other)


_OF_WORKFLOW = "mock of workflow "


def activity_names(activities: Iterable[str]) -> list[str]:
    """The names that a test knows: without the activities by which workflows are faked."""
    return sorted(name for name in activities if not name.startswith(_OF_WORKFLOW))


def _activity_of(workflow_type: str) -> str:
    return _OF_WORKFLOW + workflow_type


def _restore(present: dict[Any, Any], real: Mapping[Any, Any], name: Any) -> None:
    if name in real:
        present[name] = real[name]
    else:
        present.pop(name, None)
