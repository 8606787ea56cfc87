"""Memory: the wide stream of planes, small reads, and writes."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque

from simpy import Environment

from model.machine.cycles.timing import Timing
from model.machine.cycles.waiting import Level, Steps, until

PAGE_LINES = 64
#: The ring's macros of planes come before that of exponents.
EXPONENTS = 8
#: Cycles of a macro that are remembered before old ones are forgotten.
_REMEMBERED = 4096
#: Cycles from a burst that is dealt to its address on the bus, and from the last beat of a line to
#: the line at its user (`hw/axi/read.py`).
ADDRESS, LINE = 1, 2
#: Cycles from a line in the ring to the frontier that says so (`hw/axi/dma.py`).
FRONTIER = 2
#: Cycles from a written line's last beat to the answer that is seen, beside the memory's latency.
ANSWER = 3


class ReadPorts:
    """The read channels: when the beats of a burst come, and its lines are in the ring.

    Args:
        env, timing: of the machine.
    """

    def __init__(self, env: Environment, timing: Timing) -> None:
        self.env, self.timing = env, timing
        self.free = [0] * timing.ports
        # The loader's bursts on port 0 are counted for themselves.
        self._outstanding: list[deque[int]] = [deque() for _ in range(timing.ports + 1)]
        self._ring = Ring(timing) if timing.ports > 1 else None

    def burst(self, port: int, lines: int, macro: int | None = None) -> Steps[tuple[int, int]]:
        """Sends an address when its client has room for another burst.

        Args:
            macro: of the ring, for the first line; None for the loader.

        Returns:
            When the first of its lines is there, and the last.
        """
        timing = self.timing
        ends = self._outstanding[-1 if macro is None else port]
        if len(ends) == timing.outstanding:
            yield from until(self.env, ends.popleft())
        while ends and ends[0] <= self.env.now:
            ends.popleft()
        answer = int(self.env.now) + ADDRESS + timing.latency + 1
        beat = max(answer, self.free[port])
        if macro is None or self._ring is None:
            self.free[port] = beat + lines * timing.line_beats
            first, last = beat + timing.line_beats - 1 + LINE, self.free[port] - 1 + LINE
        else:
            first, last, self.free[port] = self._ring.take(port, beat, lines, macro)
        ends.append(self.free[port])
        return first, last


class Ring:
    """Lines of several ports on their way into macros that take one a cycle each.

    A port whose line waits takes beats until its queue is full; the time is lost.

    Args:
        timing: of the machine.
    """

    def __init__(self, timing: Timing) -> None:
        self.timing = timing
        self._taken: list[set[int]] = [set() for _ in range(EXPONENTS + 1)]
        self._queues = [
            deque([0] * timing.fifo_lines, timing.fifo_lines) for _ in range(timing.ports)
        ]

    def take(self, port: int, beat: int, lines: int, macro: int) -> tuple[int, int, int]:
        """A burst's lines, from its first beat on, into one macro after the other.

        Returns:
            When the first line is taken, and the last; when the port is free for the next beat.
        """
        queue, beats = self._queues[port], self.timing.line_beats
        first = 0
        for i in range(lines):
            beat = max(beat, queue[0] - LINE)
            time = max(beat + beats - 1 + LINE, queue[-1] + 1)
            taken = self._taken[macro]
            while time in taken:
                time += 1
            taken.add(time)
            queue.append(time)
            first = first if i else time
            beat += beats
            if macro != EXPONENTS:
                macro = (macro + 1) % EXPONENTS
        for taken in self._taken:
            if len(taken) > _REMEMBERED:
                recent = min(each[-1] for each in self._queues)
                taken.difference_update([time for time in taken if time < recent])
        return first, queue[-1], beat


class WideStream:
    """Lines in one sequence over all ports, as far ahead as the ring has room.

    Args:
        env, timing, ports: of the machine.

    Attributes:
        released, released_to: lines that are used up; that will be, as far as it is known.
    """

    def __init__(self, env: Environment, timing: Timing, ports: ReadPorts) -> None:
        self.env, self.timing, self.ports = env, timing, ports
        self.released = Level(env)
        self.released_to = 0
        self._issued = Level(env)
        self._ends: list[int] = []
        self._times: list[tuple[int, int]] = []
        self._turn = 0
        self._free = env.event()
        self._free.succeed()

    def request(self, line: int, lines: int, *, exponents: bool = False) -> Steps[None]:
        """Waits until the request before it is dealt, and begins this one."""
        yield self._free
        self._free = self.env.event()
        self.env.process(self._deal(line, lines, EXPONENTS if exponents else 0))

    def _deal(self, line: int, left: int, macro: int) -> Steps[None]:
        timing = self.timing
        while left:
            yield self.env.timeout(1)
            lines = min(left, timing.burst_lines, PAGE_LINES - line % PAGE_LINES)
            position = self._issued.value + lines
            yield from self.released.reaches(position - timing.ring_lines)
            first, last = yield from self.ports.burst(self._turn, lines, macro)
            if self._times:
                # Bursts count in order, one a cycle.
                first, last = max(first, self._times[-1][1]), max(last, self._times[-1][1] + 1)
            self._turn = (self._turn + 1) % timing.ports
            self._ends.append(position)
            self._times.append((first, last))
            self._issued.rise(lines)
            line, left = line + lines, left - lines
            if macro != EXPONENTS:
                macro = (macro + lines) % EXPONENTS
        self._free.succeed()

    def when(self, position: int) -> Steps[int]:
        """Waits until the line before a position is asked for; when it has arrived."""
        yield from self._issued.reaches(position)
        if len(self._ends) > 4096:
            # What was released is not asked about again.
            old = bisect_left(self._ends, self.released.value)
            del self._ends[:old], self._times[:old]
        place = bisect_left(self._ends, position)
        first, last = self._times[place]
        behind = self._ends[place] - position
        return max(first, last - behind * self.timing.line_beats) + FRONTIER


class Writer:
    """Lines to memory, in bursts whose lines are all here.

    Args:
        env, timing: of the machine.

    Attributes:
        asked, answered: lines.
    """

    def __init__(self, env: Environment, timing: Timing) -> None:
        self.env, self.timing = env, timing
        self.asked, self.answered = 0, Level(env)
        self._free = 0

    def write(self, lines: int, there: int) -> int:
        """Writes lines, of which the last one is there at a time; when it has left."""
        begin = max(there + 2, self._free)
        self._free = begin + lines * self.timing.line_beats
        self.asked += lines
        self.answered.rise_at(self._free + self.timing.latency + ANSWER, lines)
        return self._free

    @property
    def idle(self) -> bool:
        """All of them are in memory."""
        return self.asked == self.answered.value
