"""Payloads of the core's streams and the broadcast bundles between its components."""

from __future__ import annotations

from amaranth.hdl import signed, unsigned
from amaranth.lib import data

from hw.config import (
    COLUMN_BITS,
    EXPONENT_BITS,
    GROUPS,
    RISE_BITS,
    RUNNING_BIAS,
    RUNNING_BITS,
    TILE,
    Config,
)

#: A BF16 number (contract section 1).
BF16 = data.StructLayout({"mantissa": 7, "exponent": 8, "sign": 1})


def plane_layout(config: Config) -> data.ArrayLayout:
    """One beat of a bit plane: bit ``n`` of element ``k`` belongs to reduction index k, lane n.

    With 64 lanes this is the 512-byte plane of the memory image (contract section 10). With fewer
    lanes a tile is streamed column group by column group: all planes of the first ``lanes``
    columns (sign plane first, then magnitudes, most significant first), then of the next.
    """
    return data.ArrayLayout(unsigned(config.lanes), TILE)


def tile_layout(config: Config) -> data.StructLayout:
    """What the core is told with each tile.

    ``p`` planes; ``midpoint`` or truncate; ``first`` and ``last`` tile of an output tile;
    accumulator ``context``; ``rows`` that the tile adds to, a bit an MPU; ``fp32`` results or
    BF16; ``scaled``: result exponents come with the results of this tile.
    """
    return data.StructLayout(
        {
            "p": unsigned(config.p_bits),
            "midpoint": 1,
            "first": 1,
            "last": 1,
            "context": unsigned(config.context_bits),
            "fp32": 1,
            "scaled": 1,
            "rows": unsigned(config.t_m),
        }
    )


def tiles_layout(config: Config) -> data.StructLayout:
    """A word of the ``tiles`` stream: :func:`tile_layout`, and the ``rises`` of its rows.

    A rise is taken off the running exponent of the tile's context, in that row, before the tile
    (contract section 11, softmax); 0 for all but tiles of P.V. A first tile has none to take it
    off. An output tile has rises or result exponents, not both: R stops falling where a result
    without them is zero.
    """
    fields = {name: field.shape for name, field in tile_layout(config)}
    rises = data.ArrayLayout(unsigned(RISE_BITS), config.t_m)
    return data.StructLayout({**fields, "rises": rises})


def activations_layout(config: Config) -> data.ArrayLayout:
    """One group of activations (16 reduction indices) for every MPU: ``[row][k]``."""
    return data.ArrayLayout(data.ArrayLayout(BF16, config.group_k), config.t_m)


def exponents_layout(config: Config) -> data.ArrayLayout:
    """Shared exponents of the same group of reduction indices."""
    return data.ArrayLayout(unsigned(8), config.group_k)


def scales_layout(config: Config) -> data.ArrayLayout:
    """Result exponents ``r_n`` of the columns that leave in one cycle, 0 .. 253."""
    return data.ArrayLayout(unsigned(8), config.drain)


def results_layout(config: Config) -> data.StructLayout:
    """Results of ``drain`` columns of every MPU.

    ``codes[row][i]`` belongs to column ``column + i``: FP32 codes, or BF16 codes in the low half.
    ``rows`` repeats the row mask of the output tile's last tile; ``overflow`` has a bit an MPU.
    """
    return data.StructLayout(
        {
            "codes": data.ArrayLayout(data.ArrayLayout(unsigned(32), config.drain), config.t_m),
            "overflow": unsigned(config.t_m),
            "rows": unsigned(config.t_m),
            "context": unsigned(config.context_bits),
            "column": unsigned(COLUMN_BITS),
            "fp32": 1,
        }
    )


#: Sticky status of the core.
STATUS = data.StructLayout(
    {
        "overflow": 1,
        "refused_activation": 1,
        "refused_exponent": 1,
        "refused_tile": 1,
    }
)


def payloads(config: Config) -> dict[str, data.Layout]:
    """The payload of every stream of the core, and its status, by port name."""
    return {
        "tiles": tiles_layout(config),
        "activations": activations_layout(config),
        "exponents": exponents_layout(config),
        "planes": plane_layout(config),
        "scales": scales_layout(config),
        "results": results_layout(config),
        "status": STATUS,
    }


def look_layout(config: Config) -> data.StructLayout:
    """A look-up: ``index`` of the half table, ``negate`` what is read.

    Bit ``i - 1`` of the index is 1 where activation ``i`` of the table has the sign of
    activation 0; ``negate`` is 1 where that sign is minus.
    """
    return data.StructLayout({"index": unsigned(config.mu - 1), "negate": 1})


def looks_layout(config: Config, lanes: int) -> data.ArrayLayout:
    """Look-ups of ``lanes`` columns in all tables: ``[column][table]``."""
    return data.ArrayLayout(data.ArrayLayout(look_layout(config), config.luts), lanes)


def table_layout(config: Config) -> data.StructLayout:
    """A half table: ``entries[i]`` is half the signed sum, rounded down; ``odd`` its lost bit."""
    return data.StructLayout(
        {
            "entries": data.ArrayLayout(signed(config.entry_bits), config.entries),
            "odd": 1,
        }
    )


def tables_layout(config: Config) -> data.ArrayLayout:
    """All tables of an MPU."""
    return data.ArrayLayout(table_layout(config), config.luts)


def row_bits(rows: int) -> int:
    """Width of the number of one of ``rows`` rows."""
    return max(1, (rows - 1).bit_length())


def reduce_layout(config: Config) -> data.StructLayout:
    """Control of the reduction, the same for all columns of all MPUs.

    Last reduction stage: ``sign`` plane, ``truncate`` or ``midpoint`` end of a tile's column
    group, ``new_tile`` (the first sign plane of a tile). Horner stage: ``sum_valid``,
    ``sum_first``, ``sum_last``, ``sum_minus`` (completes the subtraction of a truncated end).
    """
    return data.StructLayout(
        {
            "sign": 1,
            "end_truncate": 1,
            "end_midpoint": 1,
            "new_tile": 1,
            "sum_valid": 1,
            "sum_first": 1,
            "sum_last": 1,
            "sum_minus": 1,
        }
    )


def mpu_control_layout(config: Config) -> data.StructLayout:
    """Control broadcast to all MPUs, which run in lockstep."""
    return data.StructLayout(
        {
            # Activation groups in, one cycle each.
            "fill": 1,
            "fill_group": unsigned(2),
            # Alignment of a group, then its tables, a cycle each.
            "align": 1,
            "align_group": unsigned(2),
            "load": unsigned(GROUPS),
            # Running exponent: decided as a tile starts.
            "decide": 1,
            "decide_first": 1,
            "decide_context": unsigned(config.context_bits),
            # The decision follows the last plane of a column group.
            "follow": 1,
            "reduce": reduce_layout(config),
            # Accumulators.
            "acc_read": 1,
            "acc_read_row": unsigned(row_bits(config.contexts * config.tile_rows)),
            "acc_write": 1,
            "acc_write_row": unsigned(row_bits(config.contexts * config.tile_rows)),
            "acc_slice": unsigned(row_bits(config.acc_rows)),
            # Result buffer and conversion.
            "result_write": 1,
            "result_write_row": unsigned(row_bits(config.result_rows)),
            "result_read": 1,
            "result_read_row": unsigned(row_bits(config.result_rows)),
            "result_slice": unsigned(row_bits(config.acc_columns // config.drain)),
            "result_p": unsigned(config.p_bits),
            "result_fp32": 1,
            "advance": 1,
        }
    )


#: Width of ``R - p + r_n``, signed: -127 - 16 .. 508 + 253.
RESULT_EXPONENT_BITS = 11
assert 1 << (RESULT_EXPONENT_BITS - 1) > 508 + 253
assert EXPONENT_BITS == 9
assert 1 << RUNNING_BITS > 508 + RUNNING_BIAS
assert 1 << RISE_BITS > 508 + RUNNING_BIAS
