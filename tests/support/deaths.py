"""Hard deaths without dying: a journal in memory, and the flight recorder's file that a dead process leaves."""

from everact.actors.marks import ATTEMPT, QUERY, START, TURN, VALIDATOR
from everact.journal.memory_store import MemoryStore
from everact.supervision.flight_recorder import BEGUN, FlightRecorder, excuse, label_of

__all__ = ["ATTEMPT", "QUERY", "START", "TURN", "VALIDATOR", "Grave"]


class Grave:
    """Where lives of one journal leave their recorder's file.

    Args:
        journal: The ``MemoryJournal``.
        directory: For the file.
    """

    def __init__(self, journal, directory):
        self.journal = journal
        self.directory = directory

    def store(self):
        """Open the journal as the next life."""
        store = MemoryStore(self.journal)
        store.directory = str(self.directory)
        return store

    def die(self, *slots, waiting=(), excused=False):
        """The last life has died.

        Args:
            slots: What ran: ``(kind, run key)``, with position, number and label after it.
            waiting: What had begun and did not run.
            excused: Its death was asked for.
        """
        store = MemoryStore(self.journal)
        recorder = FlightRecorder(len(slots) + len(waiting))
        recorder.keep(self.directory, store.journal_id)
        store.close()
        for kind, key, *rest in (*slots, *waiting):
            label = label_of(rest.pop()) if rest and isinstance(rest[-1], str) else b""
            slot = recorder.take()
            recorder.run(slot, kind, key, *rest, *[0] * (2 - len(rest)), label)
            if (kind, key, *rest) in [tuple(one) for one in waiting]:
                recorder.map[slot] = BEGUN
        recorder.forget()  # the file stays
        if excused:
            assert excuse(self.directory)
