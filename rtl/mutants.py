"""Mistakes that the checks of rtl/ must find.

Each is one change of one line of a copy of an entity, and a check that passes for the entity as it is and
must fail for the copy: `proof:TASK` of proof/proof.sby, `bench:PATTERN` of the tests of test/run.py, or
`lockstep`.
"""

from typing import NamedTuple


class Mutant(NamedTuple):
    """What is wrong, where, and who must say so."""

    name: str
    file: str
    right: str
    wrong: str
    found_by: str


RANDOM = "bench:*depth=5,walks=7*random*"

MUTANTS = [
    # ---- the translator
    Mutant(
        "a result is kept over an invalidation",
        "translator.vhd",
        "elsif Stale = '1' then",
        "elsif false then",
        "proof:translator",
    ),
    Mutant(
        "a request in the cycle after an invalidation does not see it",
        "translator.vhd",
        "Same_c when r.LastValid = '1' and Stale = '0' and Page = r.LastPage else",
        "Same_c when r.LastValid = '1' and Page = r.LastPage else",
        "proof:translator",
    ),
    Mutant(
        "an invalidation leaves its last page out",
        "translator.vhd",
        "and unsigned(r.LastPage) <= unsigned(r.InvalLast) else '0';",
        "and unsigned(r.LastPage) < unsigned(r.InvalLast) else '0';",
        "proof:translator",
    ),
    Mutant(
        "a fault is kept",
        "translator.vhd",
        "if Answered = '1' and r.OutStatus /= StatusOk_c then",
        "if false then",
        "proof:translator",
    ),
    Mutant(
        "a response is taken while the output is not free",
        "translator.vhd",
        "Resp_Ready <= HeadValid and OutFree when HeadKind = Walk_c else '0';",
        "Resp_Ready <= HeadValid when HeadKind = Walk_c else '0';",
        "proof:translator",
    ),
    Mutant(
        "an answer that nobody has taken is written over",
        "translator.vhd",
        "OutFree    <= not r.OutValid or Out_Ready;",
        "OutFree    <= '1';",
        "proof:translator",
    ),
    Mutant(
        "an invalidation does not wait for the answer at the output",
        "translator.vhd",
        "left_v := QueueLevel + 1;",
        "left_v := QueueLevel;",
        "proof:translator",
    ),
    Mutant(
        "a walk that the walker has not taken is written over",
        "translator.vhd",
        "InReady  <= QueueReady and (not r.WalkValid or Walk_Ready);",
        "InReady  <= QueueReady;",
        "proof:translator",
    ),
    Mutant(
        "a write to a page that may only be read goes through",
        "translator.vhd",
        "if status_v = StatusOk_c and HeadWrite = '1' and HeadResult.Writable = '0' then",
        "if false then",
        "proof:translator",
    ),
    Mutant(
        "an invalidation that waits for nothing is never done",
        "translator.vhd",
        "if r.InvalValid = '1' or r.Draining = '1' then",
        "if (r.InvalValid = '1' and QueueLevel /= 0) or r.Draining = '1' then",
        "proof:translator_bound",
    ),
    Mutant(
        "an address of another window is translated",
        "translator.vhd",
        "IsInside <= '1' when In_Addr(AddrBits_g - 1 downto InsideBits_c) = Window_Base else '0';",
        "IsInside <= '1' when In_Addr(AddrBits_g - 2 downto InsideBits_c) = Window_Base(AddrBits_g - 2 downto InsideBits_c) else '0';",
        "lockstep",
    ),
    # ---- the walker
    Mutant(
        "a walk more than there are credits for",
        "walker.vhd",
        "ReqReady  <= '1' when ArFree = '1' and NeedsLeaf = '0' and InFlight /= Walks_g else '0';",
        "ReqReady  <= '1' when ArFree = '1' and NeedsLeaf = '0' else '0';",
        "proof:walker",
    ),
    Mutant(
        "an error of the memory is taken for a word",
        "walker.vhd",
        'ReadFailed  <= Axi_RResp /= "00";',
        'ReadFailed  <= Axi_RResp = "11";',
        "proof:walker",
    ),
    Mutant(
        "a page of a run gets the frame of its first page",
        "walker.vhd",
        "e_v.Number(LeafBits_g - 1 downto 0) := PageOut(LeafBits_g - 1 downto 0);",
        "null;",
        "proof:walker",
    ),
    Mutant(
        "a read that the memory has not taken is written over",
        "walker.vhd",
        "ArFree <= not ArValid or Axi_ArReady;",
        "ArFree <= '1';",
        "proof:walker",
    ),
    Mutant(
        "a credit that comes back in the cycle of a request is lost",
        "walker.vhd",
        "if ReqAccept = '1' and RespAccept = '0' then",
        "if ReqAccept = '1' then",
        "proof:walker",
    ),
    Mutant(
        "a run that is not aligned is taken",
        "window_pkg.vhd",
        "elsif word(OwnBit_c) = '0' or isBeyond(e.Number, frameBits) or isUnaligned(e.Number, leafBits)",
        "elsif word(OwnBit_c) = '0' or isBeyond(e.Number, frameBits)",
        "proof:walker",
    ),
    Mutant(
        "a frame beyond the memory is taken",
        "window_pkg.vhd",
        "if i >= bits and number(i) = '1' then",
        "if i > bits and number(i) = '1' then",
        "lockstep",
    ),
    # ---- both
    Mutant(
        "a queue is full one word too late",
        "fifo.vhd",
        "In_Ready  <= '1' when Held /= Depth_g else '0';",
        "In_Ready  <= '1';",
        RANDOM,
    ),
    Mutant(
        "the page of a translation is that of the walk before",
        "translator.vhd",
        "r.Result    <= HeadResult;",
        "r.Result    <= r.Result;",
        RANDOM,
    ),
]
