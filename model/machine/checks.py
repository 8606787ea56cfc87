"""What a command must be for the chip to run it: checked before its first write.

Each check raises `Fault` with the status; the first that fails decides. docs/chip.md lists them in
this order.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

from model.formats.commands import (
    COMMAND_BYTES,
    OPEN_ROWS,
    SEGMENTS,
    STEP_OPCODES,
    VOCABULARY_MAX,
    Epilogue,
    Opcode,
    Region,
    Status,
    reserved_bits,
    unpack,
)
from model.formats.constants import P_FULL_MIN, P_MIN, TILE_K
from model.formats.plt_layout import RESERVED
from model.formats.plt_layout import unpack as unpack_word
from model.formats.special_tables import score_factor
from model.lm.precision import Load, Precision
from model.machine.encode import fp32
from model.machine.memory import Memory
from model.machine.state import TILE_WORDS, Fault, Model, State

Fields = Mapping[str, int]

#: FP32 codes of the least and the largest eps of a norm: 2^-126 and 2^127.
EPS_LEAST, EPS_MOST = 0x0080_0000, 0x7F00_0000


def need(condition: bool, status: Status, why: str) -> None:
    """Fault unless the condition holds."""
    if not condition:
        raise Fault(status, why)


def decode(command: bytes, *, nested: bool, state: State) -> tuple[Opcode, dict[str, int]]:
    """Opcode and fields of a command that may stand where it stands."""
    assert len(command) == COMMAND_BYTES
    code = command[0]
    need(code in Opcode.__members__.values(), Status.UNKNOWN_COMMAND, f"opcode {code:#04x}")
    opcode = Opcode(code)
    words = struct.unpack("<16I", command)
    for word, reserved in zip(words, reserved_bits(opcode), strict=True):
        need(not word & reserved, Status.RESERVED_BITS, f"{opcode.name}: {word & reserved:#x}")
    if nested:
        need(opcode in STEP_OPCODES, Status.NESTED_LIST, f"{opcode.name} in a list")
    elif opcode != Opcode.FENCE:
        need(opcode not in STEP_OPCODES, Status.NESTED_LIST, f"{opcode.name} outside a list")
    if opcode not in (Opcode.HALT, Opcode.MODEL, Opcode.FENCE):
        need(state.model is not None, Status.NO_MODEL, f"{opcode.name} before MODEL")
    return opcode, unpack(command)[1]


def precision_of(word: int, p_full: int) -> tuple[Precision, int]:
    """Precision and gamma of a valid word of the lookup table."""
    fields = unpack_word(word)
    need(not word & RESERVED and fields["valid"] == 1, Status.PRECISION, f"word {word:#010x}")
    for name in ("p_w", "p_kv"):
        need(P_MIN <= fields[name] <= p_full, Status.PRECISION, f"{name} {fields[name]}")
    w = Load(fields["p_w"], bool(fields["midpoint_w"]))
    kv = Load(fields["p_kv"], bool(fields["midpoint_kv"]))
    # Nothing is a midpoint at p = p_full: the core would take the bit literally.
    return Precision(w, kv).exact(p_full), fields["gamma"]


def _span(state: State, place: int, tiles: int) -> tuple[int, int]:
    end = place + tiles * TILE_WORDS
    need(end <= state.shape.usable_words, Status.BANK, f"bank words to {end}")
    return place, end


def _apart(state: State, source: tuple[int, int], target: tuple[int, int]) -> None:
    """Fault unless both lie in the bank, apart from each other."""
    a, b = _span(state, *source), _span(state, *target)
    need(a[1] <= b[0] or b[1] <= a[0], Status.BANK, f"source {a} and target {b} overlap")


def _eps(fields: Fields, width: int) -> None:
    need(EPS_LEAST <= fields["eps"] <= EPS_MOST, Status.NUMBER, f"eps {fields['eps']:#x}")
    inverse = fields["inverse_width"]
    need(inverse == fp32(1 / width), Status.SHAPE, f"inverse_width {inverse:#x} of {width}")


def check_model(fields: Fields, state: State) -> None:
    """MODEL."""
    shape = state.shape
    limits = {
        "width_tiles": (1, shape.max_k // TILE_K),
        "kv_heads": (1, 255),
        "group": (1, min(shape.t_m, 255)),
        "head_tiles": (1, shape.head_tiles_max),
        "capacity": (TILE_K, shape.max_k),
        "vocabulary": (1, VOCABULARY_MAX),
    }
    for name, (low, high) in limits.items():
        need(low <= fields[name] <= high, Status.SHAPE, f"{name} {fields[name]}")
    need(fields["capacity"] % TILE_K == 0, Status.SHAPE, f"capacity {fields['capacity']}")
    factor = score_factor(fields["head_tiles"] * TILE_K)
    given = (fields["factor"], fields["factor_exponent"])
    need(given == (factor.integer, factor.exponent & 0x3F), Status.SHAPE, f"factor {given}")
    p_full = fields["p_full"]
    need(P_FULL_MIN <= p_full <= shape.p_max, Status.PRECISION, f"p_full {p_full}")


def _tokens(sequence: int, state: State, memory: Memory) -> None:
    need(sequence < state.shape.sequences, Status.SEQUENCE, f"sequence {sequence}")
    lines = state.the_model.capacity // 16
    memory.check(Region.TOKENS, sequence * lines, lines)


def check_sequence(fields: Fields, state: State, memory: Memory) -> None:
    """SEQUENCE."""
    _tokens(fields["sequence"], state, memory)
    length, limit, capacity = fields["length"], fields["limit"], state.the_model.capacity
    need(length <= capacity, Status.CAPACITY, f"length {length}")
    if fields["live"]:
        need(length + 1 < limit <= capacity, Status.CAPACITY, f"length {length}, limit {limit}")


def check_rows(fields: Fields, state: State, memory: Memory) -> None:
    """ROWS, all but the tokens."""
    count = fields["segments"]
    need(1 <= count <= SEGMENTS, Status.ROWS, f"{count} segments")
    before = state.segments if fields["append"] else []
    need(bool(before) or not fields["append"], Status.ROWS, "append to no rows")
    rows = [fields[f"count_{i}"] for i in range(count)]
    total = sum(rows) + sum(segment.rows for segment in before)
    need(min(rows) > 0 and total <= state.shape.t_m, Status.ROWS, f"rows {rows}, {total} in all")
    taken = {segment.sequence for segment in before}
    for i in range(count):
        sequence = fields[f"sequence_{i}"]
        _tokens(sequence, state, memory)
        need(sequence not in taken, Status.SEQUENCE, f"sequence {sequence} twice")
        taken.add(sequence)
        end = fields[f"start_{i}"] + rows[i]
        need(end <= state.the_model.capacity, Status.CAPACITY, f"rows to {end}")
    if fields["precision"]:
        precision_of(fields["precision"], state.the_model.p_full)


def check_list(fields: Fields, memory: Memory) -> None:
    """The list of CALL and ROUND."""
    need(fields["count"] > 0, Status.REGION, "a list of no commands")
    memory.check(Region.COMMANDS, fields["list"], fields["count"])


def check_commit(fields: Fields, state: State) -> None:
    """COMMIT."""
    need(bool(state.segments), Status.ROWS, "no rows")
    if fields["append"]:
        for segment, row in zip(state.segments, state.last_rows(), strict=True):
            need(state.argmax[row] is not None, Status.ROWS, f"row {row} has no argmax")
            end = segment.start + segment.rows
            need(end < state.the_model.capacity, Status.CAPACITY, f"length {end}")


def _embed(fields: Fields, state: State, memory: Memory) -> None:
    model = state.the_model
    _span(state, fields["target"], model.width_tiles)
    memory.check(Region.EMBED, 0, model.vocabulary * 2 * model.width_tiles)


def _norm(fields: Fields, state: State, memory: Memory) -> None:
    tiles = state.the_model.width_tiles
    _eps(fields, tiles * TILE_K)
    _apart(state, (fields["source"], tiles), (fields["target"], tiles))
    memory.check(Region.NORM, fields["weights"], 2 * tiles)


def _matrix(fields: Fields, state: State) -> None:
    k_tiles, n_tiles, block = fields["k_tiles"], fields["n_tiles"], fields["tiles_per_block"]
    need(1 <= k_tiles <= state.shape.max_k // TILE_K, Status.SHAPE, f"k_tiles {k_tiles}")
    need(n_tiles > 0, Status.SHAPE, "n_tiles 0")
    need(1 <= block <= state.shape.tiles_per_block, Status.SHAPE, f"tiles_per_block {block}")


def _weights(fields: Fields, state: State, memory: Memory) -> None:
    lines = fields["k_tiles"] * fields["n_tiles"] * state.the_model.tile_lines
    memory.check(Region.WEIGHTS, fields["weights"], lines)


def _linear(fields: Fields, state: State, memory: Memory) -> None:
    _matrix(fields, state)
    tiles, epilogue = fields["n_tiles"], fields["epilogue"]
    need(epilogue in Epilogue.__members__.values(), Status.SHAPE, f"epilogue {epilogue}")
    if epilogue == Epilogue.SILU_UP:
        need(tiles % 2 == 0, Status.SHAPE, f"n_tiles {tiles} with SiLU")
        tiles //= 2
    _apart(state, (fields["source"], fields["k_tiles"]), (fields["target"], tiles))
    _weights(fields, state, memory)


def _cache(fields: Fields, state: State, memory: Memory) -> None:
    """Keys and values of every sequence among the rows."""
    model = state.the_model
    sequence, head = max(segment.sequence for segment in state.segments), model.kv_heads - 1
    blocks = model.capacity // TILE_K
    last = sequence * model.key_sequence + head * model.key_head
    memory.check(Region.KEYS, fields["keys"] + last, blocks * model.head_tiles * model.tile_lines)
    last = sequence * model.value_sequence + head * model.value_head
    last += (model.head_tiles - 1) * model.value_channels
    memory.check(Region.VALUES, fields["values"] + last, blocks * model.tile_lines)
    last = sequence * model.open_sequence
    lines = model.kv_heads * OPEN_ROWS * 2 * model.head_tiles
    memory.check(Region.OPEN_KEYS, fields["open_keys"] + last, lines)


def heads_of(model: Model) -> int:
    """Tiles of queries, keys and values."""
    return (model.heads + 2 * model.kv_heads) * model.head_tiles


def _store(fields: Fields, state: State, memory: Memory) -> None:
    model = state.the_model
    _span(state, fields["source"], heads_of(model))
    if model.qk_norm:
        _eps(fields, model.head_width)
        for name in ("q_norm", "k_norm"):
            memory.check(Region.NORM, fields[name], 2 * model.head_tiles)
    memory.check(Region.ROPE, 0, model.capacity * 2 * model.head_tiles)
    _cache(fields, state, memory)


def _attend(fields: Fields, state: State, memory: Memory) -> None:
    model = state.the_model
    tiles = model.heads * model.head_tiles
    _apart(state, (fields["source"], tiles), (fields["target"], tiles))
    _cache(fields, state, memory)


def _head(fields: Fields, state: State, memory: Memory) -> None:
    _matrix(fields, state)
    tiles = -(-state.the_model.vocabulary // TILE_K)
    need(fields["n_tiles"] == tiles, Status.SHAPE, f"n_tiles {fields['n_tiles']}, not {tiles}")
    _span(state, fields["source"], fields["k_tiles"])
    _weights(fields, state, memory)
    if fields["logits"]:
        memory.check(Region.LOGITS, 0, len(state.tokens) * 4 * tiles)


def _nothing(fields: Fields, state: State, memory: Memory) -> None:
    """FENCE works always."""


#: Checks of the commands of a step.
STEP_CHECKS: dict[Opcode, Callable[[Fields, State, Memory], None]] = {
    Opcode.FENCE: _nothing,
    Opcode.EMBED: _embed,
    Opcode.NORM: _norm,
    Opcode.LINEAR: _linear,
    Opcode.STORE: _store,
    Opcode.ATTEND: _attend,
    Opcode.HEAD: _head,
}
