"""pages.py: whether the pages that name areas say what the table of docs/rtl/area.md says.

That the table is what comes out is checked by area.sh. Prints each line that is not there. Exit codes: 0 all are, 1 some
are not.
"""

import re
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
DEVICE_LUTS = 1_182_240


def areas() -> dict[str, tuple[int, int, int]]:
    """Of each row of the table: LUTs of logic, LUTs as memory, levels."""
    table = (DOCS / "rtl/area.md").read_text()
    rows = re.findall(r"^\| (\w[^|]*) \| (\d+) \| (\d+) \|.*\| (\d+) \|$", table, re.MULTILINE)
    return {name: (int(logic), int(memory), int(levels)) for name, logic, memory, levels in rows}


def lines() -> list[tuple[str, str]]:
    """What pages must say: a page, and words of it."""
    area = areas()
    luts = {name: logic + memory for name, (logic, memory, _) in area.items()}
    one, eight = luts["translator Entries_g=1 Slots_g=8"], luts["translator Entries_g=8 Slots_g=21"]
    share = 100 * (luts["window_mmu"] + luts["allocator"]) / DEVICE_LUTS
    mmu, allocator = area["mmu_top"], area["allocator"]
    return [
        ("reproduction.md", f"without the interconnect | {share:.1f} % of the LUTs |"),
        ("reproduction.md", f"| {one} (1 translation, 8 walks); {eight} (8, 21) |"),
        ("reproduction.md", f"| page table walker | 540 | {luts['walker']} (32 walks, 32 lines) |"),
        ("reproduction.md", f"| allocator | 2600 | {luts['allocator']}, with the frame store |"),
        ("reproduction.md", f"| frame usage bits | 15 | {luts['frame_store']}: "),
        ("rtl/area.md", f"measure: {luts['mmu_top']:,} and {mmu[2]} here"),
        ("rtl/mmu_top.md", f"{mmu[0]:,} LUTs of logic and {mmu[1]} as memory"),
        ("rtl/allocator_vhdl.md", f"{allocator[0]} LUTs, and {allocator[2]} levels"),
    ]


def main() -> None:
    missing = [(page, words) for page, words in lines() if words not in (DOCS / page).read_text()]
    for page, words in missing:
        print(f"docs/{page} does not say: {words}")
    sys.exit(1 if missing else 0)


main()
