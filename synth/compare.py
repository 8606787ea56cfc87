"""The recipes side by side on three pieces that the compute core is made of.

    python -m synth.compare [--lib x.lib]

Areas in um2 and delays in ns by ABC. A default is added that is Yosys's own (`synth; abc`).
"""

import argparse
import re
import sys

from rich.console import Console
from rich.table import Table

from synth import flow, libraries, yosys
from synth.errors import SynthError
from synth.flow import Options
from synth.fo4 import fo4
from synth.hierarchy import Module, split
from synth.libraries import BUILD, Library
from synth.recipes import FOR_AREA, FOR_SPEED

_READ = " | ".join(f"({{18{{select[{i}]}}}} & entry[{18 * i + 17}:{18 * i}])" for i in range(8))

PIECES = f"""
module table_read(input [7:0] select, input [143:0] entry, input negative, output [17:0] value);
  assign value = ({_READ}) ^ {{18{{negative}}}};
endmodule

module sum_of_5(input signed [21:0] a, b, c, d, e, input [3:0] carry, output signed [21:0] sum);
  assign sum = a + b + c + d + e + {{21'b0, carry[0]}} + {{21'b0, carry[1]}}
    + {{21'b0, carry[2]}} + {{21'b0, carry[3]}};
endmodule

module right_shift(input signed [57:0] value, input [5:0] by, output signed [57:0] shifted);
  assign shifted = value >>> by;
endmodule
"""

TITLES = {
    "table_read": "one of 8 words of 18 bits, one-hot, and its sign",
    "sum_of_5": "sum of 5 words of 22 bits and 4 carries",
    "right_shift": "arithmetic right shift of 58 bits by 0..63",
}


def _default(name: str, text: str, library: Library) -> tuple[float, float | None]:
    """(um2, ns) of Yosys's own script."""
    folder = BUILD.resolve() / "compare" / f"{name}-{library.digest[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "piece.v").write_text(text)
    timed = f"-D 1 -constr {folder / 'constraints'}" if library.has_timing else ""
    (folder / "constraints").write_text(f"set_driving_cell {library.inverter}\n")
    avoid = " ".join(f"-dont_use {cell}" for cell in library.avoided)
    script = (
        f"read_verilog piece.v\nsynth -top {name}\nabc -liberty {library.path} {avoid} {timed}\n"
    )
    log = yosys.run(script + f"stat -liberty {library.path}\n", folder, "default")
    area = re.findall(r"Chip area for .*: ([\d.]+)", log)
    delay = re.findall(r"Delay = *([\d.]+) ps", log)
    return float(area[-1]), float(delay[-1]) / 1000 if delay else None


def main() -> int:
    parser = argparse.ArgumentParser(prog="synth.compare", description=__doc__.split("\n")[0])
    parser.add_argument("--lib", help="a Liberty file (default: areas of sky130_fd_sc_hd)")
    try:
        library = libraries.find(parser.parse_args().lib)
        unit = fo4(library.cells[library.inverter])[0] if library.has_timing else None
        table = Table(title=f"{library.origin}, Yosys {yosys.version()}", title_justify="left")
        for column in ("piece", "recipe", "um2", *(("ns", "FO4") if unit else ())):
            table.add_column(column, justify="left" if column in ("piece", "recipe") else "right")
        texts = split(PIECES)
        for name, text in texts.items():
            rows = [("Yosys's own", *_default(name, text, library))]
            target = 120 * unit * 1000 if unit else None
            for recipes in (FOR_AREA, FOR_SPEED):
                mapped = flow.candidates(
                    Module(name, text), texts, library, recipes, Options(), target, BUILD.resolve()
                )
                for each in mapped:
                    delay = each.abc_delay_ps / 1000 if each.abc_delay_ps else None
                    rows.append((each.recipe, each.area, delay))
            for label, area, delay in rows:
                timing = (f"{delay:.2f}", f"{delay / unit:.0f}") if unit and delay else ()
                title = TITLES[name] if label == rows[0][0] else ""
                table.add_row(title, label, f"{area:,.0f}", *timing)
            table.add_section()
    except SynthError as error:
        print(f"compare: {error}", file=sys.stderr)
        return 1
    Console(width=120, highlight=False).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
