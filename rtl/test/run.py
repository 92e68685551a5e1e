"""Benches of rtl/ (VUnit, GHDL).

python3 run.py [--sources FOLDER] [VUnit's arguments]

--sources: another folder with the entities, for copies with a mistake (scripts/rtl/mutants.py).
"""

import argparse
from pathlib import Path

from vunit import VUnit, VUnitCLI

HERE = Path(__file__).resolve().parent

# Sizes and stalls for which every test of the bench runs: one of each, numbers that are no powers of
# two, L2 TLBs of all sizes, lines of every length, reading ahead from the first word, from a later one and never, and what
# is promised.
SHAPES = [
    # requests that wait, walks, bits of a set's number, ways, lines, bits of a beat, the word from which on
    # lines are read ahead, percent of cycles in which something stalls
    (1, 1, 1, 1, 1, 64, 9, 30),
    (3, 2, 3, 2, 3, 128, 0, 0),
    (5, 7, 2, 3, 2, 128, 1, 60),
    (32, 5, 1, 3, 11, 256, 2, 30),
    (32, 32, 3, 2, 32, 256, 1, 0),
    (32, 32, 4, 1, 32, 512, 9, 0),
    (32, 32, 1, 8, 32, 64, 0, 30),
    # No L2 TLB.
    (7, 3, 1, 0, 5, 128, 1, 30),
]
GENERICS = ("Depth_g", "Walks_g", "SetBits_g", "Ways_g", "Lines_g", "DataBits_g", "AheadFrom_g", "Stall_g")

# Memories for which every test of the frame store runs: of one word, of odd sizes, of several summaries.
STORES = [
    # bits of a frame's number, frames, bits of a word and of the run in its summary, listed frames, stalls
    (7, 100, 3, 1, 5, 0),
    (6, 64, 2, 1, 1, 40),
    (8, 223, 4, 2, 8, 0),
    (5, 17, 6, 3, 3, 20),
    # That of the model's trace.
    (7, 100, 6, 3, 64, 10),
]
# Words as they are on a card, and two summaries of them: for what is counted of many frames.
SCATTERED = (13, 8192, 6, 3, 64, 0)
STORE_GENERICS = ("FrameBits_g", "Frames_g", "WordBits_g", "MiddleBits_g", "List_g", "Stall_g")


def configure(test, names, shape):
    """The test with these generics, which are its name too."""
    generics = dict(zip(names, shape))
    words = {name.removesuffix("_g").lower(): value for name, value in generics.items()}
    test.add_config(name=",".join(f"{name}={value}" for name, value in words.items()), generics=generics)


# The same of the translator alone: entries, slots, requests that wait, percent, and whether all of the
# tests are for it; else those that are random, or measure how many walks there are.
TRANSLATORS = [
    (1, 1, 1, 30, False),
    (3, 2, 5, 60, True),
    (5, 7, 6, 20, False),
    (32, 21, 32, 0, True),
    (8, 32, 32, 30, False),
    (8, 64, 64, 0, False),
]

# Of the L2 TLB, the last for all of its tests: set's bits, ways, requests that wait, bits of the count of invalidations,
# percent.
L2_TLBS = [
    (1, 1, 1, 1, 30),
    (3, 3, 5, 4, 60),
    (4, 4, 16, 3, 0),
]

# Of the allocator: the trace and its sizes (bits of a page, of the root, of a leaf table and of a frame's number,
# frames), cycles of an access, percent.
ALLOCATORS = [
    ("small", 9, 3, 5, 7, 100, 3, 30),
    ("runs", 8, 3, 7, 9, 450, 5, 0),
    # For what follows no trace: those of accesses, and small ones.
    ("none", 12, 7, 9, 12, 4096, 71, 0),
    ("none", 9, 3, 5, 7, 100, 3, 30),
]
# The same with several memories: traces, with that of the tables and frames of the others.
SEVERAL_MEMORIES = [
    ("two", 9, 3, 5, 7, 100, 3, 30, 1, "70"),
    ("three", 9, 3, 5, 7, 90, 5, 0, 0, "48,64"),
]
# And for what follows no trace.
FULL_MEMORIES = ("none", 9, 3, 5, 7, 40, 3, 30, 1, "48,96")
# Regions as large as they are on a card, and a memory for many of them.
LARGE_REGIONS = ("none", 12, 1, 13, 12, 4096, 71, 0)
LARGE_MEMORY = ("none", 12, 4, 13, 17, 1 << 17, 71, 0)
# As many frames as four regions, or sixteen, have pages, and some for tables.
FOUR_REGIONS = ("none", 12, 4, 13, 16, (1 << 15) + 1024, 71, 0)
SIXTEEN_REGIONS = ("none", 12, 5, 13, 18, (1 << 17) + 1024, 71, 0)
ALLOCATOR_GENERICS = (
    "Trace_g", "PageBits_g", "RootBits_g", "LeafBits_g", "FrameBits_g", "Frames_g", "Latency_g", "Stall_g", "Memory_g",
    "Others_g"
)

# Of the TLB of flexible length, the first that of the model's trace and of all tests: entries, bits of a page's
# number and of the longest run.
FLEXIBLES = [(5, 8, 4), (1, 6, 3), (3, 5, 2), (8, 10, 9)]

# Of the MMU of readers and writers, the last for all of its tests: translations, bursts that wait, and that memories have
# not answered, bits of a set's number, ways, runs, bits of a beat, whether there is a space of the driver's, percent.
MMUS = [
    (1, 1, 1, 1, 1, 1, 64, False, 30),
    (5, 7, 11, 2, 3, 3, 128, True, 60),
    (3, 4, 20, 1, 2, 2, 256, True, 0),
]
# The same with an allocator, the last for what is timed: translations, bursts that wait, bits of a beat, percent.
TOUCHING_MMUS = [
    (1, 1, 64, 30),
    (5, 7, 512, 50),
    (3, 4, 256, 0),
]
MMU_GENERICS = (
    "Entries_g", "Slots_g", "Bursts_g", "SetBits_g", "Ways_g", "Flexible_g", "DataBits_g", "HasSpace_g", "Stall_g"
)

# Of the arbiters of readers and writers without ids: how many of each, bursts whose data are to come, whether there are
# responses, percent.
ARBITERS = [(1, 1, True, 20), (3, 3, True, 50), (5, 4, False, 0), (8, 16, True, 10)]

# Of the access counters: groups that are counted, percent of the accesses behind which nobody takes a notice.
COUNTERS = [(1, 0), (2, 30), (5, 50), (12, 90)]


def main():
    cli = VUnitCLI()
    # Not where it is called, among the sources.
    cli.parser.set_defaults(output_path=HERE.parents[1] / "target/rtl/by-hand")
    cli.parser.add_argument("--sources", type=Path, default=HERE.parent)
    args: argparse.Namespace = cli.parse_args()
    vu = VUnit.from_args(args=args, compile_builtins=False)
    vu.add_vhdl_builtins()
    lib = vu.add_library("farside")
    lib.add_source_files(str(args.sources / "*.vhd"))
    lib.add_source_files(str(HERE / "*.vhd"))
    for test in lib.test_bench("tb_window_mmu").get_tests():
        for shape in SHAPES:
            # What is timed is timed without stalls.
            if test.name.startswith("random") or shape[-1] == 0:
                configure(test, GENERICS, shape)
    for test in lib.test_bench("tb_translator").get_tests():
        random = test.name.startswith("random requests, changes")
        for entries, slots, depth, stall, is_for_all in TRANSLATORS:
            if not is_for_all and not random and not test.name.startswith("as many walks"):
                continue
            test.add_config(
                name=f"entries={entries},slots={slots},depth={depth},stall={stall}",
                generics={
                    "Entries_g": entries,
                    "Slots_g": slots,
                    "Depth_g": depth,
                    # What is timed or counted is so without stalls.
                    "Stall_g": stall if random else 0,
                    # For scripts/rtl/replay.sh.
                    "Trace_g": random and entries == 5,
                },
            )
    for test in lib.test_bench("tb_frame_store").get_tests():
        shapes = STORES
        if test.name.startswith("the model"):
            # The trace is of one size.
            shapes = STORES[-1:]
        elif test.name.startswith(("scattered", "frames come back")):
            shapes = [*STORES, SCATTERED]
        for shape in shapes:
            configure(test, STORE_GENERICS, shape)
    for test in lib.test_bench("tb_allocator").get_tests():
        if test.name.startswith("a space that is nearly full"):
            configure(test, ALLOCATOR_GENERICS, LARGE_REGIONS)
            continue
        if test.name.startswith("memories are full"):
            configure(test, ALLOCATOR_GENERICS, FULL_MEMORIES)
            continue
        if test.name.startswith("large allocations"):
            configure(test, ALLOCATOR_GENERICS, LARGE_MEMORY)
            continue
        follows, timed = test.name.startswith("the model"), test.name.startswith("operations")
        if test.name.startswith("words of"):
            configure(test, ALLOCATOR_GENERICS, FOUR_REGIONS if "two" in test.name else SIXTEEN_REGIONS)
            continue
        for shape in SEVERAL_MEMORIES if follows else []:
            configure(test, ALLOCATOR_GENERICS, shape)
        for shape in ALLOCATORS:
            if follows == (shape[0] != "none") and (follows or timed == (shape[-1] == 0)):
                configure(test, ALLOCATOR_GENERICS, shape)
    for test in lib.test_bench("tb_l2_tlb").get_tests():
        random = test.name.startswith("random")
        for sets, ways, depth, epoch, stall in L2_TLBS if random else L2_TLBS[-1:]:
            test.add_config(
                name=f"setbits={sets},ways={ways},depth={depth},epoch={epoch},stall={stall}",
                generics={
                    "SetBits_g": sets,
                    "Ways_g": ways,
                    "Depth_g": depth,
                    "Epoch_g": epoch,
                    "Stall_g": stall if random else 0,
                },
            )
    for test in lib.test_bench("tb_flexible_tlb").get_tests():
        for shape in FLEXIBLES if test.name.startswith("random") else FLEXIBLES[:1]:
            configure(test, ("Entries_g", "KeyBits_g", "RunBits_g"), shape)
    for test in lib.test_bench("tb_mmu_top").get_tests():
        for shape in MMUS if test.name.startswith("random") else MMUS[-1:]:
            configure(test, MMU_GENERICS, shape)
    for test in lib.test_bench("tb_mmu_touch").get_tests():
        for shape in TOUCHING_MMUS[:-1] if test.name.startswith("random") else TOUCHING_MMUS[-1:]:
            configure(test, ("Entries_g", "Slots_g", "DataBits_g", "Stall_g"), shape)
    for test in lib.test_bench("tb_bus_arbiters").get_tests():
        for shape in ARBITERS:
            configure(test, ("Sides_g", "Depth_g", "HasResponses_g", "Stall_g"), shape)
    for test in lib.test_bench("tb_access_counters").get_tests():
        for groups, stall in COUNTERS:
            # The trace is of five.
            if test.name.startswith("the model") and groups != 5:
                continue
            test.add_config(name=f"groups={groups},stall={stall}", generics={"Groups_g": groups, "Stall_g": stall})
    # Warnings of numeric_std about what is not defined yet, tens of megabytes that nobody reads. What it calls errors is
    # division by zero and `?<`, of which there is none here.
    vu.set_sim_option("disable_ieee_warnings", True)
    vu.main()


main()
