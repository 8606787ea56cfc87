"""What processes wait for: counts that rise, and queues with room for so many."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Generator
from typing import Any, Generic, TypeVar

from simpy import Environment, Event

T = TypeVar("T")
#: A process, or a part of one.
Steps = Generator[Event, Any, T]


class Level:
    """A count that only rises."""

    def __init__(self, env: Environment) -> None:
        self.env, self.value = env, 0
        self._waiting: list[tuple[int, int, Event]] = []
        self._order = 0

    def rise(self, by: int = 1) -> None:
        """Raises it."""
        self.value += by
        while self._waiting and self._waiting[0][0] <= self.value:
            heapq.heappop(self._waiting)[2].succeed()

    def rise_at(self, time: int, by: int = 1) -> None:
        """Raises it then."""
        later(self.env, time, lambda: self.rise(by))

    def reaches(self, value: int) -> Steps[None]:
        """Waits until it is that high."""
        if self.value < value:
            event = self.env.event()
            self._order += 1
            heapq.heappush(self._waiting, (value, self._order, event))
            yield event


def later(env: Environment, time: int, action: Any) -> None:
    """Does something at a time, now if that is past."""
    if time <= env.now:
        action()
    else:
        event = env.timeout(time - env.now)
        assert event.callbacks is not None
        event.callbacks.append(lambda _: action())


def until(env: Environment, time: int) -> Steps[None]:
    """Waits for a time."""
    if time > env.now:
        yield env.timeout(time - env.now)


class Pipe(Generic[T]):
    """A queue: an entry is seen ``latency`` cycles after it was put."""

    def __init__(self, env: Environment, room: int, latency: int) -> None:
        self.env, self.room, self.latency = env, room, latency
        self.put_count, self.taken_count = Level(env), Level(env)
        self._entries: deque[tuple[int, T]] = deque()

    @property
    def empty(self) -> bool:
        """Nothing is inside."""
        return not self._entries

    def put(self, entry: T) -> Steps[None]:
        """Waits for room, and puts."""
        yield from self.taken_count.reaches(self.put_count.value + 1 - self.room)
        self._entries.append((int(self.env.now) + self.latency, entry))
        self.put_count.rise()

    def head(self) -> Steps[T]:
        """Waits for the oldest entry, and shows it."""
        yield from self.put_count.reaches(self.taken_count.value + 1)
        seen, entry = self._entries[0]
        yield from until(self.env, seen)
        return entry

    def take(self) -> None:
        """Removes it."""
        self._entries.popleft()
        self.taken_count.rise()
