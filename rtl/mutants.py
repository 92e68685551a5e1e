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



def bench(test: str) -> str:
    """A test of tb_translator: a pattern of its sizes and its name."""
    return f"bench:*tb_translator*{test}"


MUTANTS = [
    # ---- the translator
    Mutant(
        "a result is kept over an invalidation",
        "tlb_entry.vhd",
        "if (Inval_Valid = '1' or Fill_Valid = '1') and Overlaps = '1' then",
        "if Fill_Valid = '1' and Overlaps = '1' then",
        "proof:translator",
    ),
    Mutant(
        "a request in the cycle after an invalidation does not see it",
        "tlb_entry.vhd",
        "Look_Hit <= IsHeld and not IsOther and not (Inval_Valid and Overlaps);",
        "Look_Hit <= IsHeld and not IsOther;",
        "proof:translator",
    ),
    Mutant(
        "a request in the cycle after an invalidation waits for a walk of before",
        "miss_slot.vhd",
        "Look_Found <= Sharing and not Dropped and not",
        "Look_Found <= Sharing and not",
        "proof:translator",
    ),
    Mutant(
        "a walk under way at an invalidation is kept",
        "miss_slot.vhd",
        "if Dropped = '1' or Close = '1' then",
        "if Close = '1' then",
        "proof:translator",
    ),
    Mutant(
        "a run under way at an invalidation of another of its pages is kept",
        "translator.vhd",
        "if r.IsElder = '1' or r.InvalValid = '1'",
        "if r.InvalValid = '1'",
        "proof:translator",
    ),
    Mutant(
        "a run that comes in the cycle of an invalidation of another of its pages is kept",
        "translator.vhd",
        "if r.IsElder = '1' or r.InvalValid = '1'",
        "if r.IsElder = '1'",
        bench("random requests, changes*"),
    ),
    Mutant(
        "a walk that is asked for after an invalidation counts as one of before",
        "translator.vhd",
        "elsif Walked = '1' and following(r.OldestSlot, Slots_g) = r.ElderEnd then",
        "elsif false then",
        "lockstep",
    ),
    Mutant(
        "an invalidation leaves its last page out",
        "translator.vhd",
        "r.DropMask <= maskOf(Inval_First, Inval_Last);",
        "r.DropMask <= (others => '0');",
        "proof:translator",
    ),
    Mutant(
        "what overlaps a run is kept beside it",
        "tlb_entry.vhd",
        "if (Inval_Valid = '1' or Fill_Valid = '1') and Overlaps = '1' then",
        "if Inval_Valid = '1' and Overlaps = '1' then",
        "proof:translator",
    ),
    Mutant(
        "frames that do not lie as pages do are taken for a run",
        "translator.vhd",
        "or or (run_v and (Resp_Frame(RunBits_g - 1 downto 0) xor WalkedPage(RunBits_g - 1 downto 0))) = '1' then",
        "then",
        "proof:translator",
    ),
    Mutant(
        "a page of a run gets the frame of the page that was walked for",
        "translator.vhd",
        "if Held(WhereBits_c + i) = '1' then",
        "if false then",
        "proof:translator",
    ),
    Mutant(
        "only the page itself is held of a run",
        "translator.vhd",
        "run_v(i) := '1' when unsigned(Resp_Size) > i else '0';",
        "run_v(i) := '0';",
        bench("one entry has*"),
    ),
    Mutant(
        "a fault is kept",
        "translator.vhd",
        "r.CameGood  <= '1' when Resp_Status = StatusOk_c else '0';",
        "r.CameGood  <= '1';",
        "proof:translator",
    ),
    Mutant(
        "a fault that was seen is forgotten only if nobody has asked since",
        "translator.vhd",
        "InvalTaken  <= (Inval_Valid and InvalReady) or FaultSeen;",
        "InvalTaken  <= Inval_Valid and InvalReady;",
        "proof:translator",
    ),
    Mutant(
        "an invalidation in the cycle of a fault is lost",
        "translator.vhd",
        "not r.Draining and not FaultSeen;",
        "not r.Draining;",
        "proof:translator",
    ),
    Mutant(
        "a response in the cycle of an invalidation is lost",
        "translator.vhd",
        "Resp_Ready <= not InvalTaken;",
        "Resp_Ready <= '1';",
        "proof:translator",
    ),
    Mutant(
        "a response is lost when the output is free all the time",
        "translator.vhd",
        "if HeadWaits = '1' and SlotWalking(HeadSlot) = '1' then",
        "if HeadWaits = '1' then",
        bench("no answer is lost*"),
    ),
    Mutant(
        "who waits gets a result that came for somebody else",
        "translator.vhd",
        "if Walked = '0' or r.OldestSlot /= HeadSlot then",
        "if Walked = '0' then",
        "proof:translator",
    ),
    Mutant(
        "an answer that nobody has taken is written over",
        "translator.vhd",
        "OutFree   <= not r.OutValid or Out_Ready;",
        "OutFree   <= '1';",
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
        "InReady  <= QueueReady and (not r.WalkValid or Walk_Ready) and SlotFree(r.NextSlot);",
        "InReady  <= QueueReady and SlotFree(r.NextSlot);",
        "proof:translator",
    ),
    Mutant(
        "a slot is taken while somebody waits for its result",
        "translator.vhd",
        "InReady  <= QueueReady and (not r.WalkValid or Walk_Ready) and SlotFree(r.NextSlot);",
        "InReady  <= QueueReady and (not r.WalkValid or Walk_Ready);",
        "proof:translator",
    ),
    Mutant(
        "a slot is free when the first who waits has been answered",
        "translator.vhd",
        "HeadIsUser <= '1' when unsigned(UserRam(HeadSlot)) = HeadPlace else '0';",
        "HeadIsUser <= '1';",
        "lockstep",
    ),
    Mutant(
        "a slot is free although somebody joins in that cycle",
        "miss_slot.vhd",
        "if Join = '1' then",
        "if false then",
        "lockstep",
    ),
    Mutant(
        "a slot is never free again",
        "translator.vhd",
        "HeadIsUser <= '1' when unsigned(UserRam(HeadSlot)) = HeadPlace else '0';",
        "HeadIsUser <= '0';",
        "proof:translator_bound",
    ),
    Mutant(
        "390 walks for 32 pages: who asks for a page on its way walks too",
        "miss_slot.vhd",
        "Look_Found <= Sharing and not Dropped",
        "Look_Found <= '0' and not Dropped",
        bench("entries=32*random requests for as many*"),
    ),
    Mutant(
        "only the page that was asked for last is shared",
        "translator.vhd",
        "IsShared <= or (Founds);",
        "IsShared <= or (Founds) when r.WalkPage = Page else '0';",
        bench("requests for a page whose*"),
    ),
    Mutant(
        "what is filled next is always the same entry",
        "translator.vhd",
        "r.NextEntry <= following(r.NextEntry, Entries_g);",
        "null;",
        bench("entries=32*random requests for as many*"),
    ),
    Mutant(
        "throughput falls past 21 slots: the others are never taken",
        "translator.vhd",
        "InReady  <= QueueReady and (not r.WalkValid or Walk_Ready) and SlotFree(r.NextSlot);",
        "InReady  <= QueueReady and (not r.WalkValid or Walk_Ready) and SlotFree(r.NextSlot) and SlotFree((r.NextSlot + 11) mod Slots_g);",
        bench("slots=32*as many walks*"),
    ),
    Mutant(
        "a stale entry after free and re-use",
        "translator.vhd",
        "Inval_Valid => r.InvalValid,\n        Fill_Valid  => Fill,",
        "Inval_Valid => '0',\n        Fill_Valid  => Fill,",
        bench("a page that was freed*"),
    ),
    Mutant(
        "a write to a page that may only be read goes through, as it waited",
        "translator.vhd",
        "if status_v = StatusOk_c and HeadWrite = '1' and HeadResult.Writable = '0' then",
        "if false then",
        "proof:translator",
    ),
    Mutant(
        "a write to a page that may only be read goes through, as it is held",
        "translator.vhd",
        "HeadInside = '1' and HeadKnown(MemoryBits_c) = '1' then",
        "false then",
        "proof:translator",
    ),
    Mutant(
        "an invalidation that waits for nothing is never done",
        "translator.vhd",
        "if (r.InvalValid = '1' and r.InvalAsked = '1') or r.Draining = '1' then",
        "if (r.InvalValid = '1' and r.InvalAsked = '1' and QueueLevel /= 0) or r.Draining = '1' then",
        "proof:translator_bound",
    ),
    Mutant(
        "a fault that was seen is the end of an invalidation",
        "translator.vhd",
        "r.InvalAsked <= not FaultSeen;",
        "r.InvalAsked <= '1';",
        "proof:translator",
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
        "a result is kept for another slot",
        "translator.vhd",
        "ResultRam(r.OldestSlot) <= Resp_Status & RespWhere;",
        "ResultRam(r.NextSlot) <= Resp_Status & RespWhere;",
        "lockstep",
    ),
]
