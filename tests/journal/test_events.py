"""The stored form of events: nothing that was written once ever changes its meaning."""

import msgspec
import pytest

from everact.journal import child_events as ce
from everact.journal import events as ev
from everact.journal.failures import Failure
from everact.journal.payloads import NULL, Payload
from everact.journal.run_chain import ChainRecord, NextRun, StartRecord
from everact.journal.saga_events import (
    CompensationCompleted,
    CompensationEscalated,
    CompensationFailed,
    CompensationStarted,
)
from everact.journal.step_events import (
    Checkpoint,
    StepAttemptFailed,
    StepCancelled,
    StepCompleted,
    StepFailed,
    StepStarted,
)

#: Tag and fields of every event, in stored order. Append only: a new field goes to the end, with a default.
FROZEN = {
    "ws": (
        "WorkflowStarted",
        (
            "workflow_id run_id workflow_type args request_id digest memo_names memo headers parent options chain "
            "begins_at last_result last_failure"
        ),
    ),
    "sr": ("SignalReceived", "name args request_id digest redrives headers"),
    "ur": ("UpdateReceived", "name args request_id digest headers"),
    "cr": ("CancelRequested", "reason request_id"),
    "ac": ("ActivityCompleted", "command attempt result"),
    "af": ("ActivityFailed", "command attempt failure retry_state"),
    "at": ("AttemptFailed", "command attempt failure next_at details"),
    "an": ("ActivityCancelled", "command attempt"),
    "ah": ("AttemptNoted", "command attempt details deadline"),
    "tf": ("TimerFired", "command"),
    "rs": ("RunStalled", "kind failure"),
    "rr": ("RunReleased", "reason request_id digest"),
    "rp": ("RunPaused", "reason request_id digest"),
    "ru": ("RunResumed", "reason request_id digest"),
    "as": (
        "ActivityScheduled",
        "command activity_type args start_to_close retry keywords limits repeats headers",
    ),
    "ax": ("ActivityCancelRequested", "command mode"),
    "ts": ("TimerStarted", "command duration deadline"),
    "tc": ("TimerCancelled", "command"),
    "ca": ("ConditionAwaited", "place wait"),
    "cm": ("ConditionMet", "wait"),
    "bf": ("TaskFailed", "task failure"),
    "se": ("SideEffectRecorded", "command result failure"),
    "mu": ("MemoUpserted", "names memo"),
    "uc": ("UpdateCompleted", "update result"),
    "uf": ("UpdateFailed", "update failure rejected"),
    "sk": ("SignalKept", "message name"),
    "sh": ("SignalTaken", "message"),
    "hf": ("HandlerFailed", "message failure name"),
    "wc": ("WorkflowCompleted", "result next"),
    "wf": ("WorkflowFailed", "failure suppressed next"),
    "wx": ("WorkflowCancelled", "reason"),
    "wt": ("WorkflowTerminated", "reason"),
    "wn": (
        "WorkflowContinuedAsNew",
        "workflow_type args options next has_memo memo_names memo carries_cancel headers",
    ),
    "wz": ("WorkflowTimedOut", "option limit next"),
    "al": ("AttemptLost", "command attempt reason counted suspected blamed"),
    "rb": ("RunBlamed", "life what alone"),
    "hs": ("ChildScheduled", "command start close_policy if_running if_closed awaits_start"),
    "hx": ("ChildCancelRequested", "command mode reason"),
    "ds": ("DetachedStart", "command start if_running if_closed"),
    "ss": ("SignalSent", "command workflow_id run_id name args child headers"),
    "cs": ("CancelSent", "command workflow_id run_id reason"),
    "hb": ("ChildStarted", "command run_id"),
    "hn": ("ChildStartFailed", "command error texts"),
    "hc": ("ChildCompleted", "command run_id result"),
    "he": ("ChildFailed", "command run_id failure"),
    "hk": ("ChildCancelled", "command run_id reason"),
    "ht": ("ChildTerminated", "command run_id reason"),
    "md": ("MessageDelivered", "command run_id"),
    "mf": ("MessageFailed", "command error texts"),
    "vp": ("ValuePublished", "key value"),
    "rd": ("RandomDrawn", "draws"),
    "gs": ("CompensationStarted", "saga step name compensation saga_name total command"),
    "gc": ("CompensationCompleted", "saga step name"),
    "gf": ("CompensationFailed", "saga step name failure"),
    "ge": ("CompensationEscalated", "command saga step name failure"),
    "ps": ("StepStarted", "command name outer is_alone"),
    "pa": ("StepAttemptFailed", "command attempt failure next_at is_restored"),
    "pc": ("StepCompleted", "command handled failure checkpoint result field_names fields"),
    "pf": ("StepFailed", "command failure checkpoint field_names fields"),
    "px": ("StepCancelled", "command"),
}

FAILURE = Failure(
    type="Broken",
    bases=("shop.Broken", "builtins.Exception"),
    message="no",
    trace="Traceback",
    details=(Payload("json", b"1"),),
    cause=Failure(type="OSError", kind="timeout", source=("pay", 4, 2)),
    kind="activity",
    non_retryable=True,
    next_delay=7,
    source=("pay", 4, 3),
    group=(Failure(type="A"), Failure(type="B")),
    retry_state="non-retryable error",
)
ARGS = (Payload("json", b'{"a":1}'), NULL, Payload("raw", b"\x00\xff"))
CHECKPOINT = Checkpoint(
    9, 2, 3, 1_700_000_000_000_000, ("gone",), (("uuid4", 4, None), ("random/", 6, 0.5)), (1, 2)
)
RETRY = ev.RetryRecord(5, 1.5, 50, 3, 0.25, ("ValueError",), ("KeyError", "a.B"))
START = StartRecord(60_000_000, 3_600_000_000, RETRY, "0 6 * * *", "Europe/Berlin")
NEXT = NextRun("r2", "cron", 1_700_000_000_000_000)

#: One of each, with the bytes that it had when it was first committed to this repository.
SAMPLES = [
    ev.WorkflowStarted("order-42", "r1", "Order", ARGS, "req", b"\x01\x02"),
    ev.SignalReceived("approve", ARGS, "req", b"\x03"),
    ev.UpdateReceived("change", ARGS, "req", b"\x04"),
    ev.CancelRequested("tired", "req"),
    ev.ActivityCompleted(3, 2, Payload("tagged", b"{}")),
    ev.ActivityFailed(3, 2, FAILURE, "maximum_attempts=2 reached"),
    ev.AttemptFailed(3, 2, FAILURE, 1_700_000_000_000_000),
    ev.ActivityCancelled(3, 2),
    ev.AttemptNoted(3, 2, ARGS, 1_700_000_000_000_000),
    ev.TimerFired(9),
    ev.RunStalled("held", FAILURE),
    ev.RunReleased("the runtime started"),
    ev.RunPaused("look", "req", b"\x05"),
    ev.RunResumed("looked", "req", b"\x06"),
    ev.ActivityScheduled(3, "pay", ARGS, 60_000_000, RETRY, ("currency",)),
    ev.ActivityCancelRequested(3),
    ev.TimerStarted(9, 1_000_000, 1_700_000_001_000_000),
    ev.TimerCancelled(9),
    ev.ConditionAwaited("orders.py:12", 2),
    ev.ConditionMet(2),
    ev.TaskFailed("Task-2", Failure("ValueError")),
    ev.SideEffectRecorded(4, NULL),
    ev.MemoUpserted(("a", "b", "c", "gone"), ARGS),
    ev.UpdateCompleted(5, NULL),
    ev.UpdateFailed(5, FAILURE, True),
    ev.SignalKept(6, "later"),
    ev.SignalTaken(6),
    ev.HandlerFailed(6, FAILURE),
    ev.WorkflowCompleted(NULL),
    ev.WorkflowFailed(FAILURE),
    ev.WorkflowCancelled("tired"),
    ev.WorkflowTerminated("away"),
    ev.AttemptLost(3, 2, "the process died", True, True, False),
    ev.RunBlamed("00ff", "query status", False),
    ev.ValuePublished("progress", Payload("json", b"7")),
    ev.RandomDrawn((("uuid4", 3, 1), ("random/", 3, 2))),
    CompensationStarted(1, 2, "hotel", "cancel_hotel", "trip", 3, 9),
    CompensationCompleted(1, 2, "hotel"),
    CompensationFailed(1, 2, "hotel", Failure("ValueError")),
    CompensationEscalated(9, 1, 2, "hotel", Failure("ValueError")),
    ce.ChildScheduled(7, ev.WorkflowStarted("kid", "r2", "Kid", ARGS), ce.LET_GO, "replace", "refuse", True),
    ce.ChildCancelRequested(7, ce.NEVER_SENT, "tired"),
    ce.DetachedStart(8, ev.WorkflowStarted("other", "r3", "Other", ARGS), "attach", "allow"),
    ce.SignalSent(9, "other", "r3", "go", ARGS, 7),
    ce.CancelSent(10, "other", "", "tired"),
    ce.ChildStarted(7, "r2"),
    ce.ChildStartFailed(7, "WorkflowAlreadyStartedError", ("kid", "r1", "running")),
    ce.ChildCompleted(7, "r2", NULL),
    ce.ChildFailed(7, "r2", FAILURE),
    ce.ChildCancelled(7, "r2", "tired"),
    ce.ChildTerminated(7, "r2", "away"),
    ce.MessageDelivered(9, "r3"),
    ce.MessageFailed(9, "WorkflowNotFoundError", ("other", "")),
    ev.WorkflowContinuedAsNew("Order", ARGS, START, NEXT, True, ("a", "b", "c"), ARGS, True),
    ev.WorkflowTimedOut("run_timeout", 60_000_000, NEXT),
    StepStarted(4, "charge", 2, True),
    StepAttemptFailed(4, 1, Failure("Broken"), 1_700_000_000_000_000, True),
    StepCompleted(4, "on_error", Failure("Broken"), CHECKPOINT, NULL, ("a", "b"), ARGS),
    StepFailed(4, Failure("Broken"), CHECKPOINT, ("a", "b"), ARGS),
    StepCancelled(4),
]
BYTES = {
    "WorkflowStarted": (
        "94a1549197a27773a86f726465722d3432a27231a54f726465729392a46a736f6ec4077b2261223a317d92a46e756c6c"
        "c40092a3726177c40200ffa3726571c40201029090"
    ),
    "SignalReceived": (
        "94a1549195a27372a7617070726f76659392a46a736f6ec4077b2261223a317d92a46e756c6cc40092a3726177c40200"
        "ffa3726571c401039090"
    ),
    "UpdateReceived": (
        "94a1549195a27572a66368616e67659392a46a736f6ec4077b2261223a317d92a46e756c6cc40092a3726177c40200ff"
        "a3726571c401049090"
    ),
    "CancelRequested": ("94a1549193a26372a57469726564a37265719090"),
    "ActivityCompleted": ("94a1549194a26163030292a6746167676564c4027b7d9090"),
    "ActivityFailed": (
        "94a1549195a2616603029ca642726f6b656e92ab73686f702e42726f6b656eb26275696c74696e732e45786365707469"
        "6f6ea26e6fa954726163656261636b9192a46a736f6ec401319ca74f534572726f7290a0a090c0a774696d656f7574c2"
        "ff93a3706179040290a0a86163746976697479c30793a37061790403929ca14190a0a090c0ab6170706c69636174696f"
        "6ec2ffc090a09ca14290a0a090c0ab6170706c69636174696f6ec2ffc090a0b36e6f6e2d726574727961626c65206572"
        "726f72ba6d6178696d756d5f617474656d7074733d3220726561636865649090"
    ),
    "AttemptFailed": (
        "94a1549195a2617403029ca642726f6b656e92ab73686f702e42726f6b656eb26275696c74696e732e45786365707469"
        "6f6ea26e6fa954726163656261636b9192a46a736f6ec401319ca74f534572726f7290a0a090c0a774696d656f7574c2"
        "ff93a3706179040290a0a86163746976697479c30793a37061790403929ca14190a0a090c0ab6170706c69636174696f"
        "6ec2ffc090a09ca14290a0a090c0ab6170706c69636174696f6ec2ffc090a0b36e6f6e2d726574727961626c65206572"
        "726f72cf00060a24181e40009090"
    ),
    "ActivityCancelled": ("94a1549193a2616e03029090"),
    "AttemptNoted": (
        "94a1549195a2616803029392a46a736f6ec4077b2261223a317d92a46e756c6cc40092a3726177c40200ffcf00060a24"
        "181e40009090"
    ),
    "TimerFired": ("94a1549192a27466099090"),
    "RunStalled": (
        "94a1549193a27273a468656c649ca642726f6b656e92ab73686f702e42726f6b656eb26275696c74696e732e45786365"
        "7074696f6ea26e6fa954726163656261636b9192a46a736f6ec401319ca74f534572726f7290a0a090c0a774696d656f"
        "7574c2ff93a3706179040290a0a86163746976697479c30793a37061790403929ca14190a0a090c0ab6170706c696361"
        "74696f6ec2ffc090a09ca14290a0a090c0ab6170706c69636174696f6ec2ffc090a0b36e6f6e2d726574727961626c65"
        "206572726f729090"
    ),
    "RunReleased": ("94a1549192a27272b37468652072756e74696d6520737461727465649090"),
    "RunPaused": ("94a1549194a27270a46c6f6f6ba3726571c401059090"),
    "RunResumed": ("94a1549194a27275a66c6f6f6b6564a3726571c401069090"),
    "RandomDrawn": ("94a1549192a272649293a57575696434030193a772616e646f6d2f03029090"),
    "SignalKept": ("94a1549193a2736b06a56c617465729090"),
    "SignalTaken": ("94a1549192a27368069090"),
    "ActivityScheduled": (
        "94a1549197a2617303a37061799392a46a736f6ec4077b2261223a317d92a46e756c6cc40092a3726177c40200ffce03"
        "9387009705cb3ff80000000000003203cb3fd000000000000091aa56616c75654572726f7292a84b65794572726f72a3"
        "612e4291a863757272656e63799090"
    ),
    "ActivityCancelRequested": ("94a1549192a26178039090"),
    "TimerStarted": ("94a1549194a2747309ce000f4240cf00060a24182d82409090"),
    "TimerCancelled": ("94a1549192a27463099090"),
    "ConditionAwaited": ("94a1549193a26361ac6f72646572732e70793a3132029090"),
    "ConditionMet": ("94a1549192a2636d029090"),
    "TaskFailed": (
        "94a1549193a26266a65461736b2d329caa56616c75654572726f7290a0a090c0ab6170706c69636174696f6ec2ffc090a09090"
    ),
    "SideEffectRecorded": ("94a1549194a273650492a46e756c6cc400c09090"),
    "MemoUpserted": (
        "94a1549193a26d7594a161a162a163a4676f6e659392a46a736f6ec4077b2261223a317d92a46e756c6cc40092a37261"
        "77c40200ff9090"
    ),
    "UpdateCompleted": ("94a1549193a275630592a46e756c6cc4009090"),
    "UpdateFailed": (
        "94a1549194a27566059ca642726f6b656e92ab73686f702e42726f6b656eb26275696c74696e732e457863657074696f"
        "6ea26e6fa954726163656261636b9192a46a736f6ec401319ca74f534572726f7290a0a090c0a774696d656f7574c2ff"
        "93a3706179040290a0a86163746976697479c30793a37061790403929ca14190a0a090c0ab6170706c69636174696f6e"
        "c2ffc090a09ca14290a0a090c0ab6170706c69636174696f6ec2ffc090a0b36e6f6e2d726574727961626c6520657272"
        "6f72c39090"
    ),
    "HandlerFailed": (
        "94a1549193a26866069ca642726f6b656e92ab73686f702e42726f6b656eb26275696c74696e732e457863657074696f"
        "6ea26e6fa954726163656261636b9192a46a736f6ec401319ca74f534572726f7290a0a090c0a774696d656f7574c2ff"
        "93a3706179040290a0a86163746976697479c30793a37061790403929ca14190a0a090c0ab6170706c69636174696f6e"
        "c2ffc090a09ca14290a0a090c0ab6170706c69636174696f6ec2ffc090a0b36e6f6e2d726574727961626c6520657272"
        "6f729090"
    ),
    "WorkflowCompleted": ("94a1549192a2776392a46e756c6cc4009090"),
    "WorkflowFailed": (
        "94a1549192a277669ca642726f6b656e92ab73686f702e42726f6b656eb26275696c74696e732e457863657074696f6e"
        "a26e6fa954726163656261636b9192a46a736f6ec401319ca74f534572726f7290a0a090c0a774696d656f7574c2ff93"
        "a3706179040290a0a86163746976697479c30793a37061790403929ca14190a0a090c0ab6170706c69636174696f6ec2"
        "ffc090a09ca14290a0a090c0ab6170706c69636174696f6ec2ffc090a0b36e6f6e2d726574727961626c65206572726f"
        "729090"
    ),
    "WorkflowCancelled": ("94a1549192a27778a574697265649090"),
    "WorkflowTerminated": ("94a1549192a27774a4617761799090"),
    "AttemptLost": ("94a1549197a2616c0302b07468652070726f636573732064696564c3c3c29090"),
    "RunBlamed": ("94a1549194a27262a430306666ac717565727920737461747573c29090"),
    "ValuePublished": ("94a1549193a27670a870726f677265737392a46a736f6ec401379090"),
    "CompensationStarted": ("94a1549198a267730102a5686f74656cac63616e63656c5f686f74656ca47472697003099090"),
    "CompensationCompleted": ("94a1549194a267630102a5686f74656c9090"),
    "CompensationFailed": (
        "94a1549195a267660102a5686f74656c9caa56616c75654572726f7290a0a090c0ab6170706c69636174696f6ec2ffc0"
        "90a09090"
    ),
    "CompensationEscalated": (
        "94a1549196a26765090102a5686f74656c9caa56616c75654572726f7290a0a090c0ab6170706c69636174696f6ec2ff"
        "c090a09090"
    ),
    "ChildScheduled": (
        "94a1549197a26873079ba27773a36b6964a27232a34b69649392a46a736f6ec4077b2261223a317d92a46e756c6cc400"
        "92a3726177c40200ffa0c400909090c002a77265706c616365a6726566757365c39090"
    ),
    "ChildCancelRequested": ("94a1549194a268780703a574697265649090"),
    "DetachedStart": (
        "94a1549195a26473089ba27773a56f74686572a27233a54f746865729392a46a736f6ec4077b2261223a317d92a46e75"
        "6c6cc40092a3726177c40200ffa0c400909090c0a6617474616368a5616c6c6f779090"
    ),
    "SignalSent": (
        "94a1549197a2737309a56f74686572a27233a2676f9392a46a736f6ec4077b2261223a317d92a46e756c6cc40092a372"
        "6177c40200ff079090"
    ),
    "CancelSent": ("94a1549195a263730aa56f74686572a0a574697265649090"),
    "ChildStarted": ("94a1549193a2686207a272329090"),
    "ChildStartFailed": (
        "94a1549194a2686e07bb576f726b666c6f77416c7265616479537461727465644572726f7293a36b6964a27231a77275"
        "6e6e696e679090"
    ),
    "ChildCompleted": ("94a1549194a2686307a2723292a46e756c6cc4009090"),
    "ChildFailed": (
        "94a1549194a2686507a272329ea642726f6b656e92ab73686f702e42726f6b656eb26275696c74696e732e4578636570"
        "74696f6ea26e6fa954726163656261636b9192a46a736f6ec401319ea74f534572726f7290a0a090c0a774696d656f75"
        "74c2ff93a3706179040290a0c0c0a86163746976697479c30793a37061790403929ea14190a0a090c0ab6170706c6963"
        "6174696f6ec2ffc090a0c0c09ea14290a0a090c0ab6170706c69636174696f6ec2ffc090a0c0c0b36e6f6e2d72657472"
        "7961626c65206572726f72c0c09090"
    ),
    "ChildCancelled": ("94a1549194a2686b07a27232a574697265649090"),
    "ChildTerminated": ("94a1549194a2687407a27232a4617761799090"),
    "MessageDelivered": ("94a1549193a26d6409a272339090"),
    "MessageFailed": ("94a1549194a26d6609b5576f726b666c6f774e6f74466f756e644572726f7292a56f74686572a09090"),
    "WorkflowContinuedAsNew": (
        "94a1549199a2776ea54f726465729392a46a736f6ec4077b2261223a317d92a46e756c6cc40092a3726177c40200ff95"
        "ce03938700ced693a4009805cb3ff80000000000003203cb3fd000000000000091aa56616c75654572726f7292a84b65"
        "794572726f72a3612e4200a9302036202a202a202aad4575726f70652f4265726c696e93a27232a463726f6ecf00060a"
        "24181e4000c393a161a162a1639392a46a736f6ec4077b2261223a317d92a46e756c6cc40092a3726177c40200ffc390"
        "90"
    ),
    "WorkflowTimedOut": (
        "94a1549194a2777aab72756e5f74696d656f7574ce0393870093a27232a463726f6ecf00060a24181e40009090"
    ),
    "StepStarted": ("94a1549195a2707304a663686172676502c39090"),
    "StepAttemptFailed": (
        "94a1549196a2706104019ea642726f6b656e90a0a090c0ab6170706c69636174696f6ec2ffc090a0c0c0cf00060a2418"
        "1e4000c39090"
    ),
    "StepCompleted": (
        "94a1549198a2706304a86f6e5f6572726f729ea642726f6b656e90a0a090c0ab6170706c69636174696f6ec2ffc090a0"
        "c0c097090203cf00060a24181e400091a4676f6e659293a5757569643404c093a772616e646f6d2f06cb3fe000000000"
        "000092010292a46e756c6cc40092a161a1629392a46a736f6ec4077b2261223a317d92a46e756c6cc40092a3726177c4"
        "0200ff9090"
    ),
    "StepFailed": (
        "94a1549196a27066049ea642726f6b656e90a0a090c0ab6170706c69636174696f6ec2ffc090a0c0c097090203cf0006"
        "0a24181e400091a4676f6e659293a5757569643404c093a772616e646f6d2f06cb3fe000000000000092010292a161a1"
        "629392a46a736f6ec4077b2261223a317d92a46e756c6cc40092a3726177c40200ff9090"
    ),
    "StepCancelled": ("94a1549192a27078049090"),
}
#: These were first written when failures had all of their fields.
LATER = {ce.ChildFailed, StepAttemptFailed, StepCompleted, StepFailed}
#: Bytes by which events have grown since: new fields, with nothing in them.
GROWN = {
    "WorkflowStarted": 11,  # two of them: the array has a longer head
    "WorkflowCompleted": 1,
    "WorkflowContinuedAsNew": 1,
    "ChildScheduled": 7,
    "DetachedStart": 7,
    "SignalReceived": 2,
    "UpdateReceived": 1,
    "AttemptFailed": 1,
    "RunReleased": 3,
    "ActivityScheduled": 4,
    "SignalSent": 1,
    "ActivityCancelRequested": 1,
    "HandlerFailed": 1,
    "WorkflowFailed": 2,
}


def classes():
    return ev.AnyEvent.__args__


def test_tags_names_and_field_order_are_frozen():
    found = {cls.__struct_config__.tag: (cls.__name__, " ".join(cls.__struct_fields__)) for cls in classes()}
    assert found == FROZEN


def test_the_failure_and_retry_records_keep_their_field_order():
    assert Failure.__struct_fields__ == (
        "type", "bases", "message", "trace", "details", "cause", "kind", "non_retryable", "next_delay",
        "source", "group", "retry_state", "coded", "run",
    )  # fmt: skip
    assert ev.RetryRecord.__struct_fields__ == (
        "initial_interval", "backoff_coefficient", "maximum_interval", "maximum_attempts", "jitter",
        "retry_on", "non_retryable", "increment",
    )  # fmt: skip
    assert StartRecord.__struct_fields__ == (
        "run_timeout", "execution_timeout", "retry", "cron", "time_zone",
    )  # fmt: skip
    assert ChainRecord.__struct_fields__ == (
        "first_run_id", "continued_run_id", "reason", "attempt", "deadline", "request_id",
    )  # fmt: skip
    assert NextRun.__struct_fields__ == ("run_id", "reason", "begins_at")
    assert ev.LimitsRecord.__struct_fields__ == ("schedule_to_start", "schedule_to_close", "heartbeat")
    assert ev.Header.__struct_fields__ == ("name", "value")
    assert ev.Turn.__struct_fields__ == ("inputs", "outputs", "delivers")
    assert ev.Received.__struct_fields__ == ("inputs",)
    assert (ev.Turn.__struct_config__.tag, ev.Received.__struct_config__.tag) == ("T", "R")


def test_the_default_retry_policy_of_the_format_never_changes():
    """A stored None means these figures, whatever newer versions of Everact take as their default."""
    assert msgspec.structs.astuple(ev.RetryRecord()) == (1_000_000, 2.0, 60_000_000, 10, 0.1, None, (), 0)


def test_there_is_a_sample_of_every_event():
    assert {type(sample) for sample in SAMPLES} == set(classes())


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_bytes_that_were_committed_decode_for_ever(sample):
    committed = bytes.fromhex(BYTES[type(sample).__name__])
    assert ev.decode_record(committed) == ev.Turn((sample,))
    # Failures have gained two fields since: one byte each, None.
    failure = getattr(sample, "failure", None)
    grown = 0 if failure is None or type(sample) in LATER else 2 * sum(1 for _ in failure.tree())
    grown += GROWN.get(type(sample).__name__, 0)
    assert len(ev.encode_record(ev.Turn((sample,)))) == len(committed) + grown
    assert grown or ev.encode_record(ev.Turn((sample,))) == committed


def test_a_failure_is_written_with_the_newer_field():
    record = ev.Turn((), (ev.WorkflowFailed(Failure("ValueError", coded=Payload("zstd", b"?"))),))
    written = (
        "94a154909194a277669eaa56616c75654572726f7290a0a090c0ab6170706c69636174696f6ec2ffc090a092a47a7374"
        "64c4013fc090c090"
    )
    older = (
        written.replace("9194a277669e", "9192a277669d")[:-8] + "90"
    )  # of before WorkflowFailed had a second and a third field
    assert ev.encode_record(record).hex() == written
    assert ev.decode_record(bytes.fromhex(written)) == record
    assert ev.decode_record(bytes.fromhex(older)) == record


@pytest.mark.parametrize(
    "record",
    [
        ev.Received(tuple(SAMPLES[:5])),
        ev.Turn((SAMPLES[4],), (SAMPLES[10], SAMPLES[12])),
        ev.Turn((), (SAMPLES[-1],)),
        ev.Turn((), (SAMPLES[14],), (1, 2, 3)),
        ev.Turn((), ()),
    ],
)
def test_records_come_back_as_they_were(record):
    again = ev.decode_record(ev.encode_record(record))
    assert again == record
    assert type(again) is type(record)


def test_a_record_of_a_newer_version_with_one_more_field_still_reads():
    """Fields are added to the end: an older reader ignores them, a newer one takes the default."""
    newer = msgspec.msgpack.encode(["T", [["tf", 9, "new"]], [], [], "more"])
    assert ev.decode_record(newer) == ev.Turn((ev.TimerFired(9),))
    older = msgspec.msgpack.encode(["T", [["as", 3, "pay"]]])
    assert ev.decode_record(older) == ev.Turn((ev.ActivityScheduled(3, "pay"),))


@pytest.mark.parametrize("body", [b"", b"\xc1", b"x", msgspec.msgpack.encode(["T", [["??", 1]], []])])
def test_bytes_that_are_no_record_are_refused(body):
    with pytest.raises(msgspec.DecodeError):
        ev.decode_record(body)


def test_the_fields_of_an_event_can_be_listed_by_name():
    assert ev.event_fields(ev.TimerStarted(9, 5, 6)) == {"command": 9, "duration": 5, "deadline": 6}


def test_silent_events_and_outcomes_are_events():
    assert set(ev.SILENT) | set(ev.OUTCOMES) <= set(classes())
    assert set(ev.Outcome.__args__) == set(ev.OUTCOMES)
