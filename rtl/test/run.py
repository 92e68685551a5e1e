"""Benches of rtl/ (VUnit, GHDL).

python3 run.py [--sources FOLDER] [VUnit's arguments]

--sources: another folder with the entities, for copies with a mistake (scripts/rtl/mutants.py).
"""

import argparse
from pathlib import Path

from vunit import VUnit, VUnitCLI

HERE = Path(__file__).resolve().parent

# Places and stalls for which every test of the bench runs: one of each, numbers that are no powers of
# two, and what is promised.
SHAPES = [
    # requests that wait, walks, percent of cycles in which something stalls
    (1, 1, 30),
    (3, 2, 0),
    (5, 7, 60),
    (32, 32, 0),
    (32, 32, 30),
]


def main():
    cli = VUnitCLI()
    cli.parser.add_argument("--sources", type=Path, default=HERE.parent)
    args: argparse.Namespace = cli.parse_args()
    vu = VUnit.from_args(args=args, compile_builtins=False)
    vu.add_vhdl_builtins()
    lib = vu.add_library("farside")
    lib.add_source_files(str(args.sources / "*.vhd"))
    lib.add_source_files(str(HERE / "*.vhd"))
    bench = lib.test_bench("tb_window_mmu")
    for test in bench.get_tests():
        for depth, walks, stall in SHAPES:
            # What is timed is timed without stalls.
            random = test.name.startswith("random")
            if not random and stall != 0:
                continue
            test.add_config(
                name=f"depth={depth},walks={walks},stall={stall}",
                generics={"Depth_g": depth, "Walks_g": walks, "Stall_g": stall},
            )
    vu.main()


main()
