"""FPGA families: how Yosys maps to each, and what a cell that comes out takes of a device."""

from collections.abc import Mapping
from dataclasses import dataclass

#: What is counted, whatever the family. A device has LUTs for logic and for memory together.
LUTS, RAM_LUTS, FLOPS, CARRIES = "LUTs", "LUTs as memory", "flip-flops", "carry cells"
MULTIPLEXERS, MULTIPLIERS, BLOCKS = "wide multiplexers", "multipliers", "block RAMs"
RESOURCES = (LUTS, RAM_LUTS, FLOPS, CARRIES, MULTIPLEXERS, MULTIPLIERS, BLOCKS)


@dataclass(frozen=True)
class Family:
    """A family of FPGAs.

    Attributes:
        title: its name in a table.
        command: Yosys's synthesis of a module, without pins and clock buffers; `{top}` is its name.
        cells: cell -> resource -> how much of it the cell takes.
        names: what the family calls a resource.
        devices: device -> resource -> how many it has.
    """

    title: str
    command: str
    cells: Mapping[str, Mapping[str, int]]
    names: Mapping[str, str]
    devices: Mapping[str, Mapping[str, int]]


# An INV is counted as a LUT, though it may be merged into another one. RAM32M and RAM64M fill the
# four LUTs of a slice. A block RAM of 36 kbit is two of 18.
_XILINX = Family(
    title="Xilinx 7 series",
    command="synth_xilinx -family xc7 -noiopad -noclkbuf -top {top}",
    cells={
        **{f"LUT{n}": {LUTS: 1} for n in range(1, 7)},
        "INV": {LUTS: 1},
        **{name: {FLOPS: 1} for name in ("FDRE", "FDSE", "FDCE", "FDPE")},
        "CARRY4": {CARRIES: 1},
        "MUXF7": {MULTIPLEXERS: 1},
        "MUXF8": {MULTIPLEXERS: 1},
        "SRL16E": {RAM_LUTS: 1},
        "SRLC32E": {RAM_LUTS: 1},
        "RAM32X1D": {RAM_LUTS: 2},
        "RAM64X1D": {RAM_LUTS: 2},
        "RAM128X1D": {RAM_LUTS: 4},
        "RAM32M": {RAM_LUTS: 4},
        "RAM64M": {RAM_LUTS: 4},
        "DSP48E1": {MULTIPLIERS: 1},
        "RAMB18E1": {BLOCKS: 1},
        "RAMB36E1": {BLOCKS: 2},
    },
    names={CARRIES: "CARRY4", MULTIPLEXERS: "MUXF7/8", MULTIPLIERS: "DSP48E1", BLOCKS: "RAMB18"},
    devices={
        "XC7K325T": {LUTS: 203_800, FLOPS: 407_600, MULTIPLIERS: 840, BLOCKS: 890},
        "XC7VX690T": {LUTS: 433_200, FLOPS: 866_400, MULTIPLIERS: 3_600, BLOCKS: 2_940},
    },
)

# A carry cell is two LUTs. A distributed RAM of 16 x 4 takes three slices of two LUTs: four hold
# the bits, two lead the write port.
_ECP5 = Family(
    title="Lattice ECP5",
    command="synth_ecp5 -noiopad -top {top}",
    cells={
        "LUT4": {LUTS: 1},
        "TRELLIS_FF": {FLOPS: 1},
        "CCU2C": {CARRIES: 1, LUTS: 2},
        "PFUMX": {MULTIPLEXERS: 1},
        "L6MUX21": {MULTIPLEXERS: 1},
        "TRELLIS_DPR16X4": {RAM_LUTS: 6},
        "MULT18X18D": {MULTIPLIERS: 1},
        "DP16KD": {BLOCKS: 1},
        "PDPW16KD": {BLOCKS: 1},
    },
    names={
        LUTS: "LUT4",
        CARRIES: "CCU2C",
        MULTIPLEXERS: "PFUMX, L6MUX21",
        MULTIPLIERS: "MULT18X18D",
        BLOCKS: "DP16KD",
    },
    devices={
        "LFE5U-85F": {LUTS: 83_640, FLOPS: 83_640, MULTIPLIERS: 156, BLOCKS: 208},
    },
)

FAMILIES = {"xilinx": _XILINX, "ecp5": _ECP5}
