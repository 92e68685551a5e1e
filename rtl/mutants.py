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
        "a walk more than there are places for",
        "walker.vhd",
        "LookDone  <= LookAhead or (UserRoom and (not NeedsLine or Found or CanFetch));",
        "LookDone  <= LookAhead or (not NeedsLine or Found or CanFetch);",
        "proof:walker",
    ),
    Mutant(
        "an error of the memory is taken for a word",
        "walker.vhd",
        "ReadFailed <= '1' when Axi_RResp /= \"00\" else '0';",
        "ReadFailed <= '1' when Axi_RResp = \"11\" else '0';",
        "proof:walker",
    ),
    Mutant(
        "a page of a run gets the frame of its first page",
        "walker.vhd",
        "e_v.Number(LeafBits_g - 1 downto 0) := LookPage(LeafBits_g - 1 downto 0);",
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
        "a response that nobody has taken is written over",
        "walker.vhd",
        "RespFree   <= not RespValid or Resp_Ready;",
        "RespFree   <= '1';",
        "proof:walker",
    ),
    Mutant(
        "a line is used before it has come",
        "walker.vhd",
        "Pop        <= OldValid and RespFree and (not OldIsLine or LineReady);",
        "Pop        <= OldValid and RespFree;",
        "proof:walker",
    ),
    Mutant(
        "the word beside the page's is used",
        "walker.vhd",
        "if OldWord = i then",
        "if OldWord / 2 = i / 2 then",
        "proof:walker",
    ),
    Mutant(
        "the root is read for the next page while one waits",
        "walker.vhd",
        "NextPage <= LookPage when LookFree = '0' else WaitPage",
        "NextPage <= WaitPage",
        "proof:walker",
    ),
    Mutant(
        "a request is lost while the root is cleared",
        "walker.vhd",
        "Req_Ready <= WaitReady and not Clearing;",
        "Req_Ready <= WaitReady;",
        RANDOM,
    ),
    Mutant(
        "the line after the last one of a table is read",
        "walker.vhd",
        "if UseValid = '1' and Found = '1' and wordOf(LookPage) >= AheadFrom_g and not isLastLine(LookPage) then",
        "if UseValid = '1' and Found = '1' and wordOf(LookPage) >= AheadFrom_g then",
        "bench:*aheadfrom=1,*next line*",
    ),
    Mutant(
        "no line is read ahead",
        "walker.vhd",
        "if WaitValid = '0' and LookValid = '0' and AheadValid = '1' then",
        "if false then",
        "bench:*aheadfrom=1,*next line*",
    ),
    Mutant(
        "lines are held over an invalidation",
        "window_mmu.vhd",
        "Drop        <= Inval_Valid and InvalReady;",
        "Drop        <= '0';",
        RANDOM,
    ),
    Mutant(
        "lines are held over a drop",
        "line_store.vhd",
        "if Drop = '1' then",
        "if false then",
        "proof:walker",
    ),
    Mutant(
        "a line that is asked for in the cycle of a drop stays known",
        "line_store.vhd",
        "if Drop = '1' then",
        "if Drop = '1' and Fetch = '0' then",
        "proof:walker",
    ),
    Mutant(
        "a line's place is taken while somebody waits for its words",
        "line_store.vhd",
        "Next_Free  <= not Pending(NextOne) and not Busy(NextOne);",
        "Next_Free  <= not Pending(NextOne);",
        "proof:walker",
    ),
    Mutant(
        "a line's place is taken before it has come",
        "line_store.vhd",
        "Next_Free  <= not Pending(NextOne) and not Busy(NextOne);",
        "Next_Free  <= not Busy(NextOne);",
        "lockstep",
    ),
    Mutant(
        "the first who has its word frees the line",
        "line_store.vhd",
        "if Users(Read_Place) = Read_User then",
        "if true then",
        "proof:walker",
    ),
    Mutant(
        "who comes when the one before has its word is not waited for",
        "line_store.vhd",
        "      if Use_Valid = '1' then\n        Busy",
        "      if Use_Valid = '1' and Read_Done = '0' then\n        Busy",
        "lockstep",
    ),
    Mutant(
        "a line that is on its way is read again",
        "line_store.vhd",
        "if Known(i) = '1' and Tags(i) = Look_Tag then",
        "if Known(i) = '1' and Pending(i) = '0' and Tags(i) = Look_Tag then",
        "proof:walker",
    ),
    Mutant(
        "a line of another table is used",
        "line_store.vhd",
        "if Known(i) = '1' and Tags(i) = Look_Tag then",
        "if Known(i) = '1' and Tags(i)(TagBits_g - 2 downto 0) = Look_Tag(TagBits_g - 2 downto 0) then",
        "proof:walker",
    ),
    Mutant(
        "a word that is not valid is kept",
        "line_store.vhd",
        "if Read_Fault = '1' then",
        "if false then",
        "bench:*walks=32,*a fault is not kept*",
    ),
    Mutant(
        "a line that could not be read is kept",
        "line_store.vhd",
        "if Come_Failed = '1' then",
        "if false then",
        "bench:*aheadfrom=1,*error of a line*",
    ),
    Mutant(
        "the root is not cleared",
        "root_table.vhd",
        "Write <= Write_Valid or not Clear(RootBits_g);",
        "Write <= Write_Valid;",
        RANDOM,
    ),
    Mutant(
        "a run that is not aligned is taken",
        "window_pkg.vhd",
        "elsif word(OwnBit_c) = '0' or isBeyond(e.Number, frameBits) or isUnaligned(e.Number, leafBits)",
        "elsif word(OwnBit_c) = '0' or isBeyond(e.Number, frameBits)",
        "lockstep",
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
