"""How a module is mapped: the Yosys passes before ABC and the ABC scripts to choose from.

Measured on SG13G2 (docs/synthesis.md has the table): ABC's `amap`, run again on its own result with
structural choices, is 8 to 35 % below the default `&nf` on adders and shifters and within 1 % of it
on multiplexers; ripple-carry adders are smallest. So every module is mapped by each recipe of
FOR_AREA and the smallest result is kept; `choose` takes faster recipes where a path is too long.
"""

from dataclasses import dataclass

# Replaces Yosys's Brent-Kung carry look-ahead: one AND-OR a bit. (_80 goes before Yosys's own _90.)
RIPPLE = """
(* techmap_celltype = "$lcu" *)
module _80_lcu_ripple (P, G, CI, CO);
  parameter WIDTH = 2;
  wire _TECHMAP_FAIL_ = WIDTH > WIDEST;
  (* force_downto *) input [WIDTH-1:0] P, G;
  input CI;
  (* force_downto *) output [WIDTH-1:0] CO;
  wire [WIDTH:0] carry;
  assign carry[0] = CI, CO = carry[WIDTH:1];
  genvar i;
  generate
    for (i = 0; i < WIDTH; i = i + 1) begin : bits
      assign carry[i+1] = G[i] | (P[i] & carry[i]);
    end
  endgenerate
endmodule
"""

# A full adder as NAND, OR-AND-INVERT and the like: the carry shares the gates of the sum.
FULL_ADDER = """
(* techmap_celltype = "$fa" *)
module _80_fa (A, B, C, X, Y);
  parameter WIDTH = 1;
  (* force_downto *) input [WIDTH-1:0] A, B, C;
  (* force_downto *) output [WIDTH-1:0] X, Y;
  wire [WIDTH-1:0] nand_ab = ~(A & B);
  wire [WIDTH-1:0] same = ~((A | B) & nand_ab);
  assign Y = (same & C) | ~(same | C);
  assign X = ~((same | ~C) & nand_ab);
endmodule
"""

_CLEAN = ("strash", "&get -n", "&fraig -x", "&put", "scorr", "dc2", "dretime", "strash")
_AGAIN = ("strash", "dch")
_ALWAYS = 10**6


@dataclass(frozen=True)
class Recipe:
    """One way to map: the widest carry chain that ripples, ABC's commands up to the mapping, and
    the share of the longest path allowed that gates are sized for."""

    name: str
    ripple_bits: int
    map: tuple[str, ...]
    share: float = 1.0


def _amap(options: str, times: int, clean: tuple[str, ...] = _CLEAN) -> tuple[str, ...]:
    mapper = f"amap {options}".strip()
    return (*clean, "dch", mapper, *(*_AGAIN, mapper) * (times - 1))


#: Tried for every module; the smallest result is wanted.
FOR_AREA = (
    Recipe("area", _ALWAYS, _amap("", 4)),
    Recipe("area-wide", _ALWAYS, _amap("-F 4 -A 8 -C 1000", 4)),
    Recipe("area-raw", _ALWAYS, _amap("", 2, clean=("strash",))),
    Recipe("plain", _ALWAYS, (*_CLEAN, "&get -n", "&dch -f", "&nf", "&put")),
)

#: Tried for the modules on a path that is too long; larger and faster down the list.
FOR_SPEED = (
    Recipe("speed-24", 24, _amap("", 2), 0.5),
    Recipe("speed-8", 8, _amap("", 2), 0.5),
    Recipe("speed-0", 0, _amap("", 2, clean=("strash",)), 0.5),
    Recipe("speed-sized", 0, _amap("", 2, clean=("strash",)), 0.01),
)

#: The largest fan-out that a net keeps; ABC's gain and slew (ps) loose enough to leave sizes alone.
FANOUT = 16
_BUFFER = f"buffer -N {FANOUT} -G 1000 -S 600"


def abc_script(recipe: Recipe, target_ps: float | None) -> str:
    """The recipe for ABC; with a target (the longest path allowed, where the library has timing)
    nets are buffered and gates sized."""
    commands = [*recipe.map, "topo"]
    if target_ps is not None:
        goal = f"-D {target_ps * recipe.share:.0f}"
        commands += [_BUFFER, f"upsize {goal}", f"dnsize {goal}", "topo", "stime -p"]
    return "\n".join([*commands, ""])


def ripple_verilog(recipe: Recipe) -> str:
    """The techmap files of the recipe's adders."""
    return RIPPLE.replace("WIDEST", str(recipe.ripple_bits)) + FULL_ADDER
