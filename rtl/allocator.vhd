-- The allocator of the card's window: malloc, realloc and free, eager and lazy, first touches, and the sweep behind
-- them; for a window of two levels, with frames of one memory or several.
--
-- One operation at a time: what has to be done next when it is idle is, in this order, the end of the sweep's
-- invalidation, a first touch, a realloc whose old place is drained, a command, a step of the background. No
-- operation waits for an invalidation, so a touch is always answered. What it does to the tables, and in which order,
-- is that of the model crates/card/src/window/alloc; docs/rtl/allocator.md is the specification of both, and
-- docs/rtl/allocator_vhdl.md says what only the model does.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.alloc_pkg.all;
  use work.bit_pkg.all;
  use work.memories_pkg.all;
  use work.region_pkg.all;
  use work.window_pkg.all;

entity allocator is
  generic (
    AddrBits_g  : positive := 64;
    -- Of a place in the memory of the tables, which is that of the frames too.
    PhysBits_g  : positive := 40;
    -- Bytes of a page, words of the root and of a leaf table, as powers of two.
    PageBits_g  : positive := 18;
    RootBits_g  : positive := 13;
    LeafBits_g  : positive := 13;
    -- Of a frame's number; frames of the memory.
    FrameBits_g : positive := 12;
    Frames_g    : positive := 4096;
    -- The number of that memory, in which the tables are, and frames of the others, if there are any (`memories_pkg`).
    Memory_g    : natural  := 0;
    Others_g    : string   := "";
    -- Zeroed tables that are kept ready.
    Ready_g     : positive := 2;
    -- Of a walk's ticket: it is answered before there were so many changes, as a power of two.
    TicketBits_g : positive := 24
  );
  port (
    Clk            : in    std_logic;
    Rst            : in    std_logic;
    Window_Base    : in    std_logic_vector(AddrBits_g - 1 downto PageBits_g + RootBits_g + LeafBits_g);
    -- No step of the background begins.
    Pause          : in    std_logic;
    -- Something is done, or waits for an invalidation.
    Busy           : out   std_logic;
    -- For one cycle: a step of the background has ended.
    Step_Done      : out   std_logic;
    -- The memory of the tables has failed: there is nothing more until a reset.
    Broken         : out   std_logic;
    -- How often there was which status, or an error of memory, since the reset (`alloc_counts`)
    Count_Which    : in    AllocStatus_t;
    Count_Value    : out   std_logic_vector(31 downto 0);
    -- Commands: malloc of Bytes, free of Addr, or realloc of both
    Cmd_Valid      : in    std_logic;
    Cmd_Ready      : out   std_logic;
    Cmd_What       : in    AllocCommand_t;
    Cmd_Bytes      : in    std_logic_vector(63 downto 0);
    Cmd_Addr       : in    std_logic_vector(AddrBits_g - 1 downto 0);
    Cmd_Memory     : in    std_logic_vector(MemoryBits_c - 1 downto 0);
    Cmd_Writable   : in    std_logic;
    Cmd_Lazy       : in    std_logic;
    -- How they end
    Resp_Valid     : out   std_logic;
    Resp_Ready     : in    std_logic;
    Resp_Status    : out   AllocStatus_t;
    Resp_Addr      : out   std_logic_vector(AddrBits_g - 1 downto 0);
    -- For a walk that begins to read in this cycle or later: it keeps it, and so does a line.
    Ticket         : out   std_logic_vector(TicketBits_g - 1 downto 0);
    -- Walks that have found no page: where it is. A walk that has seen the page's word shows it, with its ticket.
    Touch_Valid    : in    std_logic;
    Touch_Ready    : out   std_logic;
    Touch_Page     : in    std_logic_vector(RootBits_g + LeafBits_g - 1 downto 0);
    Touch_Write    : in    std_logic;
    Touch_Seen     : in    std_logic;
    Touch_Word     : in    std_logic_vector(WordBits_c - 1 downto 0);
    Touch_Ticket   : in    std_logic_vector(TicketBits_g - 1 downto 0);
    Found_Valid    : out   std_logic;
    Found_Ready    : in    std_logic;
    Found_Status   : out   Status_t;
    Found_Writable : out   std_logic;
    Found_Memory   : out   std_logic_vector(MemoryBits_c - 1 downto 0);
    Found_Size     : out   std_logic_vector(SizeBits_c - 1 downto 0);
    Found_Frame    : out   std_logic_vector(FrameBits_g - 1 downto 0);
    -- Walks of this page are answered with *not mapped*, whatever they found.
    Gate_Page      : in    std_logic_vector(RootBits_g + LeafBits_g - 1 downto 0);
    Gate_Closed    : out   std_logic;
    -- Words of the root
    Root_Valid     : out   std_logic;
    Root_Ready     : in    std_logic;
    Root_Index     : out   std_logic_vector(RootBits_g - 1 downto 0);
    Root_Word      : out   std_logic_vector(WordBits_c - 1 downto 0);
    -- Invalidations of the translators, one after the other
    Inval_Valid    : out   std_logic;
    Inval_Ready    : in    std_logic;
    Inval_First    : out   std_logic_vector(RootBits_g + LeafBits_g - 1 downto 0);
    Inval_Last     : out   std_logic_vector(RootBits_g + LeafBits_g - 1 downto 0);
    Inval_Done     : in    std_logic;
    -- AXI4, beats of eight words of the tables, at their addresses
    Axi_AwValid    : out   std_logic;
    Axi_AwReady    : in    std_logic;
    Axi_AwAddr     : out   std_logic_vector(PhysBits_g - 1 downto 0);
    Axi_WValid     : out   std_logic;
    Axi_WReady     : in    std_logic;
    Axi_WData      : out   Beat_t;
    Axi_WStrb      : out   std_logic_vector(Beat_t'length / 8 - 1 downto 0);
    Axi_BValid     : in    std_logic;
    Axi_BReady     : out   std_logic;
    Axi_BResp      : in    std_logic_vector(1 downto 0);
    Axi_ArValid    : out   std_logic;
    Axi_ArReady    : in    std_logic;
    Axi_ArAddr     : out   std_logic_vector(PhysBits_g - 1 downto 0);
    Axi_RValid     : in    std_logic;
    Axi_RReady     : out   std_logic;
    Axi_RData      : in    Beat_t;
    Axi_RResp      : in    std_logic_vector(1 downto 0)
  );
end entity;

architecture rtl of allocator is

  constant WindowBits_c : positive := RootBits_g + LeafBits_g;
  constant Regions_c    : positive := 2 ** RootBits_g;
  constant LeafPages_c  : positive := 2 ** LeafBits_g;
  constant TableBits_c  : positive := LeafBits_g + WordShift_c;
  -- Words of a region's bitmap of places; where the bitmaps begin, behind the directory, and frames of both.
  constant MapWords_c   : positive := (LeafPages_c + RowBits_c - 1) / RowBits_c;
  constant Maps_c       : positive := 2 ** (RootBits_g + WordShift_c);
  constant MapBytes_c   : positive := MapWords_c * 2 ** WordShift_c;
  constant Fixed_c      : positive := (Maps_c + Regions_c * MapBytes_c + 2 ** PageBits_g - 1) / 2 ** PageBits_g;
  -- Tables of a chunk; every region has one, beside those that are ready.
  constant PerChunk_c   : positive := 2 ** (maximum(TableBits_c, PageBits_g) - TableBits_c);
  constant Chunks_c     : positive := (Regions_c + Ready_g + PerChunk_c - 1) / PerChunk_c;
  constant ChunkBits_c  : positive := bitsOf(Chunks_c);
  -- The number of a table has as many bits as the memory has tables, as powers of two.
  constant NumBits_c : positive := maximum(FrameBits_g + PageBits_g - TableBits_c, 1);
  -- Words of a step of the sweep.
  constant Batch_c      : positive := minimum(512, LeafPages_c);

  subtype Page_t is unsigned(WindowBits_c - 1 downto 0);

  subtype Region_t is unsigned(RootBits_g - 1 downto 0);

  subtype Within_t is unsigned(LeafBits_g - 1 downto 0);

  -- Pages of a region, up to all of them.
  subtype Count_t is unsigned(LeafBits_g downto 0);

  subtype Frame_t is unsigned(FrameBits_g - 1 downto 0);

  subtype Addr_t is std_logic_vector(PhysBits_g - 1 downto 0);

  constant RoomBits_c : positive := maximum(LeafBits_g + 1, RootBits_g);

  subtype Record_t is Region_Record_t(
    Chunk(ChunkBits_c - 1 downto 0), Number(NumBits_c - 1 downto 0), Used(LeafBits_g downto 0),
    Room(RoomBits_c - 1 downto 0)
  );

  type State_t is (
    -- The stores are cleared.
    StateInit,
    StateIdle,
    StateCheck,
    -- malloc: the open region, the first one with room, or an empty one that gets a table.
    StateMalloc,
    StatePlace,
    StateTree,
    StateRegion,
    StateFind,
    StateFound,
    StateEmpty,
    StateEmptyFound,
    StateTable,
    StateTabled,
    StateNew,
    StateEnough,
    StateAbandoned,
    StateClaim,
    -- The words of its pages, run by run.
    StateWords,
    StateWritten,
    StateLink,
    StateTell,
    -- Regions of a large allocation: what large_regions says.
    StateLarge,
    -- free and realloc: the allocation's first word is read. A free marks it.
    StateLocate,
    StateLocateRead,
    StateLocated,
    StateFirst,
    StateMarked,
    -- free of a large allocation: its regions are known.
    StateLocateLarge,
    StateLocateSpan,
    StateLocateLast,
    -- realloc, from when its allocation is known, and the mark that one leaves: a part of that.
    StateRealloc,
    -- A first touch, and the sweep: what alloc_touch and alloc_sweep say.
    StateTouch,
    StateSweep,
    -- What can wait: a table is made ready.
    StateHouse,
    StateHouseTable,
    StateHouseZeroed,
    StateStepped,
    -- Parts of several of these, after which Then_To follows: a table comes back, another region is opened, the open
    -- one's bitmap is written, a table is zeroed, the longest row is counted anew.
    StateGiveTable,
    StateOpen,
    StateOpening,
    StateFlushed,
    StateZero,
    StateZeroed,
    StateCount,
    StateCounted,
    StateSettle
  );

  -- For whom the operation is.
  type Source_t is (SourceCommand, SourceTouch, SourceHouse);

  type Registers_t is record
    State    : State_t;
    Then_To  : State_t;
    Source   : Source_t;
    Broken   : std_logic;
    -- The command.
    What     : AllocCommand_t;
    Bytes    : unsigned(63 downto 0);
    -- They end within a page.
    Ends     : std_logic;
    Memory   : std_logic_vector(MemoryBits_c - 1 downto 0);
    Writable : std_logic;
    Lazy     : std_logic;
    -- A malloc waits until its invalidation has been taken, a free until it is done, a realloc of what was cut until
    -- the sweep has ended.
    Telling  : std_logic;
    Draining : std_logic;
    Held     : std_logic;
    -- The sweep has ended, or memory has failed, a cycle later.
    Resumes  : std_logic;
    -- Its pages; there are none, or more than there are.
    Pages    : unsigned(WindowBits_c downto 0);
    IsZero   : std_logic;
    IsBeyond : std_logic;
    -- Those that need a frame. They are more than there are; its pages are as many as a region has, no more than the
    -- open region has together.
    Needs    : unsigned(WindowBits_c downto 0);
    NoFrames : std_logic;
    IsLarge  : std_logic;
    Fits     : std_logic;
    -- The page that is looked at, and whether it is dying, a cycle later. An address is outside of the window, or
    -- within a page.
    Page     : Page_t;
    Outside  : std_logic;
    IsDying  : std_logic;
    IsBegin  : std_logic;
    -- The region of it, and its record.
    Region   : Region_t;
    Rec      : Record_t;
    IsNew    : std_logic;
    -- The last region of a large allocation that begins in this one, a cycle later.
    LastRegion : Region_t;
    -- Of an allocation: its first page and its pages, but for that one too.
    First    : Page_t;
    Count    : Count_t;
    More     : Within_t;
    -- Those of its region, with these and without, as they were a cycle earlier.
    UsedMore : Count_t;
    UsedLess : Count_t;
    Word     : TableWord_t;
    -- That of an allocation that is looked up is on its way; its pages go beyond its region.
    Awaits   : std_logic;
    Overruns : std_logic;
    -- How a place was sought for a realloc.
    Sought   : AllocStatus_t;
    -- The longest free row of the open region.
    Room     : Count_t;
    -- Words of a table that were zeroed, and that are left; a word, or a bitmap for the sweep, could not be read.
    Got      : Count_t;
    Words    : Count_t;
    Failed   : std_logic;
    -- Answers.
    RespValid : std_logic;
    Status   : AllocStatus_t;
    RespPage : Page_t;
  end record;

  function regionOf (page : Page_t) return Region_t is
  begin
    return page(WindowBits_c - 1 downto LeafBits_g);
  end function;

  function withinOf (page : Page_t) return Within_t is
  begin
    return page(LeafBits_g - 1 downto 0);
  end function;

  -- Where the word of a page lies in its table.
  function wordAddr (number : std_logic_vector; within : Within_t) return Addr_t is
  begin
    return std_logic_vector(resize(unsigned(number) & within & to_unsigned(0, WordShift_c), PhysBits_g));
  end function;

  constant Memories_c : positive := memoriesOf(Others_g);

  subtype Memory_t is std_logic_vector(MemoryBits_c - 1 downto 0);

  constant OfTables_c : Memory_t := std_logic_vector(to_unsigned(Memory_g, MemoryBits_c));

  -- Of a word; the only one is known.
  function memoryOf (word : TableWord_t) return Memory_t is
  begin
    if Memories_c = 1 then
      return OfTables_c;
    end if;
    return word(MemoryLow_c + MemoryBits_c - 1 downto MemoryLow_c);
  end function;

  -- Whether there is not such a memory.
  function isUnknown (memory : Memory_t) return boolean is
  begin
    if Memories_c = 1 then
      return memory /= OfTables_c;
    end if;
    return unsigned(memory) >= Memories_c;
  end function;

  -- Whether the pages of a first word go beyond its region.
  function overruns (page : Page_t; word : TableWord_t) return std_logic is
    constant Last_c : Count_t := morePages(word, LeafBits_g) + withinOf(page);
  begin
    return Last_c(LeafBits_g) or (or word(PagesLow_c + PagesBits_c - 1 downto PagesLow_c + LeafBits_g));
  end function;

  signal r            : Registers_t;
  signal n            : Registers_t;

  signal Kept         : Record_t;
  signal RegionWrite  : std_logic;
  signal KeptReady    : std_logic;

  -- The open region's bitmap.
  signal PlaceValid   : std_logic;
  signal PlaceReady   : std_logic;
  signal PlaceFind    : std_logic;
  signal PlaceHere    : std_logic;
  signal PlaceLongest : std_logic;
  signal PlaceTake    : std_logic;
  signal PlaceFirst   : Within_t;
  signal PlaceCount   : Count_t;
  signal PlaceOk      : std_logic;
  signal Place        : std_logic_vector(LeafBits_g - 1 downto 0);
  signal Longest      : std_logic_vector(LeafBits_g downto 0);
  signal IsOpen       : std_logic;
  signal Opened       : std_logic_vector(RootBits_g - 1 downto 0);
  signal MapChanged   : std_logic;
  signal MapOpen      : std_logic;
  signal MapBegin     : std_logic;
  signal MapClose     : std_logic;
  signal MapFlush     : std_logic;
  signal MapDone      : std_logic;
  signal MapFailed    : std_logic;
  signal MapData      : std_logic;
  signal MapRead      : std_logic;
  signal MapWrite     : std_logic;
  signal MapAddr      : Addr_t;
  signal MapWord      : RowWord_t;

  signal SweepStart   : std_logic;
  signal SweepHere    : std_logic;
  signal SweepWaits   : std_logic;
  signal SweepIsOver  : std_logic;
  signal SweepRegion  : std_logic_vector(RootBits_g - 1 downto 0);
  signal SweepIsTold  : std_logic;
  signal SweepGiving  : std_logic;
  signal SweepSteps   : std_logic;
  signal SweepEnds    : std_logic;
  signal SweepCounts  : std_logic;
  signal SweepTable   : std_logic;
  signal SweepOpens   : std_logic;
  signal SweepLarge   : std_logic;
  signal SweepWhat    : LargeWork_t;
  signal SweepFails   : std_logic;
  signal SweepLoads   : std_logic;
  signal SweepWrites  : std_logic;
  signal SweepUse     : RegionUse_t;
  signal SweepLeaves  : std_logic;
  signal SweepEmpties : std_logic;
  signal SweepFrees   : std_logic;
  signal SweepRoot    : std_logic;
  signal SweepShoots  : std_logic;
  signal SweepRead    : std_logic;
  signal SweepWrite   : std_logic;
  signal SweepWithin  : std_logic_vector(LeafBits_g - 1 downto 0);
  signal SweepGives   : std_logic;
  -- Its frames are on their way back, and something waits for them.
  signal GivesFirst   : std_logic;
  signal SweepMask    : WordMask_t;
  signal SweepMemory  : Memory_t;
  signal SweepSize    : std_logic_vector(SizeBits_c - 1 downto 0);
  signal SweepFrame   : std_logic_vector(FrameBits_g - 1 downto 0);

  -- Another size of an allocation, and words that move, or are cut.
  signal ReallocStart  : std_logic;
  signal ReallocWhat   : ReallocWork_t;
  signal ReallocHere   : std_logic;
  signal ReallocFirst  : std_logic_vector(WindowBits_c - 1 downto 0);
  signal ReallocCount  : std_logic_vector(LeafBits_g downto 0);
  signal ReallocLast   : std_logic_vector(WindowBits_c - 1 downto 0);
  signal ReallocNeeds  : std_logic_vector(WindowBits_c downto 0);
  signal ReallocEnds   : std_logic;
  signal ReallocEndsLarge : std_logic;
  signal ReallocRests  : std_logic;
  signal ReallocHolds  : std_logic;
  signal ReallocCalls  : std_logic;
  signal ReallocWork   : LargeWork_t;
  signal ReallocHad    : std_logic_vector(WindowBits_c downto 0);
  signal ReallocHadFirst : std_logic_vector(RootBits_g - 1 downto 0);
  signal OfLarge       : std_logic;
  signal ReallocAnswers : std_logic;
  signal ReallocStatus : AllocStatus_t;
  signal ReallocFails  : std_logic;
  signal ReallocSeeks  : std_logic;
  signal ReallocAlone  : std_logic;
  signal ReallocAdds   : std_logic;
  signal ReallocCounts : std_logic;
  signal ReallocAsks   : std_logic;
  signal ReallocTakes  : std_logic;
  signal ReallocLoads  : std_logic;
  signal ReallocRec    : Record_t;
  signal ReallocWrites : std_logic;
  signal ReallocGoes   : std_logic;
  signal ReallocTo     : std_logic_vector(RootBits_g - 1 downto 0);
  signal ReallocTable  : std_logic;
  signal ReallocAny    : std_logic;
  signal ReallocRoot   : std_logic;
  signal ReallocRead   : std_logic;
  signal ReallocPut    : std_logic;
  signal ReallocWord   : TableWord_t;
  signal ReallocAt     : std_logic_vector(LeafBits_g - 1 downto 0);
  signal ReallocChanges : std_logic;
  signal ReallocDies   : std_logic;
  signal ReallocFrom   : std_logic_vector(WindowBits_c - 1 downto 0);
  signal ReallocTill   : std_logic_vector(WindowBits_c - 1 downto 0);
  signal ReallocTells  : std_logic_vector(WindowBits_c - 1 downto 0);
  signal ReallocMoves  : std_logic;
  signal ReallocOver   : std_logic;
  signal ReallocPage   : std_logic_vector(WindowBits_c - 1 downto 0);
  signal IsMoving      : std_logic;
  signal IsDrained     : std_logic;
  signal Promised      : std_logic_vector(FrameBits_g downto 0);
  signal Trails        : std_logic;
  signal Trail         : std_logic_vector(WindowBits_c - 1 downto 0);
  signal HasWord       : std_logic;
  signal MoveNumber    : std_logic_vector(NumBits_c - 1 downto 0);
  signal MoveRead     : std_logic;
  signal MoveReadAt   : std_logic_vector(LeafBits_g - 1 downto 0);
  signal MoveWrite    : std_logic;
  signal MoveWriteAt  : std_logic_vector(LeafBits_g - 1 downto 0);
  signal MoveWord     : TableWord_t;
  signal MoveMany     : std_logic;
  signal MoveRun      : std_logic;
  signal MoveMask     : WordMask_t;
  signal MoveLanes    : std_logic_vector(BeatWords_c * (LaneMarks_c + FrameBits_g) - 1 downto 0);

  -- Regions of a large allocation.
  signal LargeRst     : std_logic;
  signal LargeStart   : std_logic;
  signal LargeWhat    : LargeWork_t;
  signal LargeDone    : std_logic;
  signal LargeStatus  : AllocStatus_t;
  signal LargeFirst   : std_logic_vector(WindowBits_c - 1 downto 0);
  signal LargeLast    : std_logic_vector(WindowBits_c - 1 downto 0);
  signal LargeToFirst : std_logic_vector(RootBits_g - 1 downto 0);
  signal LargeMoves   : std_logic;
  signal LargeNeeds   : std_logic_vector(FrameBits_g downto 0);
  signal LargeTrails  : std_logic;
  signal LargeHere    : std_logic;
  signal LargeGoes    : std_logic;
  signal LargeTo      : std_logic_vector(RootBits_g - 1 downto 0);
  signal LargeLoads   : std_logic;
  signal LargePart    : RegionPart_t;
  signal LargeWrite   : std_logic;
  signal LargeIsNew   : std_logic;
  signal LargeTakes   : std_logic;
  signal LargeUse     : RegionUse_t;
  signal LargeAsPart  : RegionPart_t;
  signal LargePages   : std_logic_vector(LeafBits_g downto 0);
  signal LargeIsFirst : std_logic;
  signal LargeIsLast  : std_logic;
  signal LargeSpan    : std_logic_vector(RootBits_g - 1 downto 0);
  signal LargeEmpties : std_logic;
  signal LargeFinds   : std_logic;
  signal LargeFindsHere : std_logic;
  signal LargeMore    : std_logic_vector(RootBits_g - 1 downto 0);
  signal LargeIsEmpty : std_logic;
  signal LargeTables  : std_logic;
  signal LargeGives   : std_logic;
  signal LargeAny     : std_logic;
  signal LargeIsZero  : std_logic;
  signal LargeZeroes  : std_logic;
  signal LargeFrame   : std_logic;
  signal LargeReturns : std_logic;
  signal LargeWords   : std_logic;
  signal LargeFrom    : std_logic_vector(LeafBits_g - 1 downto 0);
  signal LargeCount   : std_logic_vector(LeafBits_g downto 0);
  signal LargeBegins  : std_logic;
  signal LargeRoots   : std_logic;
  signal LargeLeads   : std_logic;
  -- The word of the root of a large allocation's region.
  signal RootOfLarge  : TableWord_t;

  signal TreeValid    : std_logic;
  signal TreeReady    : std_logic;
  signal TreeFind     : std_logic;
  signal TreeRoom     : Count_t;
  signal TreeOk       : std_logic;
  signal TreeFound    : std_logic_vector(RootBits_g - 1 downto 0);

  signal EmptyValid   : std_logic;
  signal EmptyReady   : std_logic;
  signal EmptyFind    : std_logic;
  signal EmptyHere    : std_logic;
  signal EmptyMore    : std_logic_vector(RootBits_g - 1 downto 0);
  signal EmptyValue   : std_logic;
  signal EmptyOk      : std_logic;
  signal EmptyFound   : std_logic_vector(RootBits_g - 1 downto 0);

  signal TableValid   : std_logic;
  signal TableReady   : std_logic;
  signal TableGive    : std_logic;
  signal TableAny     : std_logic;
  signal TableIsZero  : std_logic;
  signal TableOk      : std_logic;
  signal TableZero    : std_logic;
  signal TableChunk   : std_logic_vector(ChunkBits_c - 1 downto 0);
  signal TableNumber  : std_logic_vector(NumBits_c - 1 downto 0);
  signal TableWants   : std_logic;

  signal ForTables    : std_logic;
  signal TablesGive   : std_logic;
  signal TablesSize   : std_logic_vector(SizeBits_c - 1 downto 0);
  signal TablesFirst  : std_logic_vector(FrameBits_g - 1 downto 0);
  signal FrameValid   : std_logic;
  signal FrameReady   : std_logic;
  signal FrameHinted  : std_logic;
  signal FrameNext    : std_logic;
  signal FrameSize    : std_logic_vector(SizeBits_c - 1 downto 0);
  signal FrameFirst   : std_logic_vector(FrameBits_g - 1 downto 0);
  signal StoreValid   : std_logic;
  signal StoreGive    : std_logic;
  signal StoreHinted  : std_logic;
  signal StoreMemory  : Memory_t;
  signal FreeOf       : Memory_t;
  signal FewOf        : Memory_t;
  signal StoreSize    : std_logic_vector(SizeBits_c - 1 downto 0);
  signal StoreFirst   : std_logic_vector(FrameBits_g - 1 downto 0);
  signal GivenValid   : std_logic;
  signal GivenOk      : std_logic;
  signal GivenFirst   : std_logic_vector(FrameBits_g - 1 downto 0);
  -- Less than 1/16 is free.
  signal IsFew        : std_logic;
  signal FramesFree   : std_logic_vector(FrameBits_g downto 0);

  signal WordsStart   : std_logic;
  signal WordsBegins  : std_logic;
  signal WordsEnds    : std_logic;
  signal WordsCount   : Count_t;
  signal WordsKeep    : std_logic;
  signal WordsFirst   : Page_t;
  signal WordsLazy    : std_logic;
  signal WordsBase    : TableWord_t;
  signal WordsDone    : std_logic;
  signal WordsFailed  : std_logic;
  signal WordsWrite   : std_logic;
  signal WordsMany    : std_logic;
  signal WordsRun     : std_logic;
  signal WordsWithin  : std_logic_vector(LeafBits_g - 1 downto 0);
  signal WordsWord    : TableWord_t;

  signal PageAddr     : Addr_t;
  signal PutValid     : std_logic;
  signal PutWord      : TableWord_t;
  signal PutAt        : Within_t;
  signal AskValid     : std_logic;
  signal WriteValid   : std_logic;
  signal WriteReady   : std_logic;
  signal WriteAddr    : Addr_t;
  signal WriteWord    : TableWord_t;
  signal ReadValid    : std_logic;
  signal ReadReady    : std_logic;
  signal ReadAddr     : Addr_t;
  signal ReadWord     : TableWord_t;
  signal WriteMany    : std_logic;
  signal WriteRun     : std_logic;
  signal WriteEach    : std_logic;
  signal WriteMask    : WordMask_t;
  signal Quiet        : std_logic;
  signal HasFailed    : std_logic;

  signal MadeValid    : std_logic;
  signal ShootCommand : std_logic;
  signal ShootFirst   : Page_t;
  signal ShootLast    : Page_t;
  -- What no allocation has any more: a range more, and the one in front.
  signal DyingAdd     : std_logic;
  signal DyingFirst   : Page_t;
  signal DyingLast    : Page_t;
  signal DyingLarge   : std_logic;
  signal DyingMoved   : std_logic;
  signal DyingFull    : std_logic;
  signal Drained      : std_logic;
  signal FrontFirst   : std_logic_vector(WindowBits_c - 1 downto 0);
  signal FrontLast    : std_logic_vector(WindowBits_c - 1 downto 0);
  signal FrontFrom    : std_logic_vector(RootBits_g - 1 downto 0);
  signal FrontMoved   : std_logic;
  signal FrontCount   : std_logic_vector(LeafBits_g downto 0);
  signal IsDying      : std_logic;

  signal Changed      : std_logic;
  signal TouchStart   : std_logic;
  signal TouchHere    : std_logic;
  signal TouchEnds    : std_logic;
  signal TouchFails   : std_logic;
  signal TouchZeroes  : std_logic;
  signal TouchGives   : std_logic;
  signal TouchLoads   : std_logic;
  signal TouchGets    : std_logic;
  signal TouchWrites  : std_logic;
  signal TouchRead    : std_logic;
  signal TouchTable   : std_logic;
  signal TouchWords   : std_logic;
  signal TouchWord    : TableWord_t;
  signal TouchRoot    : std_logic;
  signal TouchMade    : std_logic;
  signal TouchChanges : std_logic;
  signal HasFrame     : std_logic;
  -- An answer stands.
  signal IsFound      : std_logic;

  signal Answered     : std_logic;
  signal ReadFailed   : std_logic;
  signal WriteFailed  : std_logic;
  signal Told         : std_logic;
  signal CommandDone  : std_logic;
  signal SweepDone    : std_logic;

begin

  assert LeafBits_g >= RunShort_c and LeafBits_g <= PagesBits_c and WindowBits_c >= RunLong_c and WindowBits_c <= 28
    report "allocator: a table of the leaf level has 2^3 to 2^15 words, the window 2^6 to 2^28 pages" severity failure;
  assert Fixed_c < Frames_g
    report "allocator: the memory has too few frames for the directory and the bitmaps" severity failure;
  assert FrameBits_g + PageBits_g <= PhysBits_g
    report "allocator: a frame's place has more bits than an address" severity failure;

  ------------------------------------------------------------------------------------------------
  -- Stores
  ------------------------------------------------------------------------------------------------
  i_records : entity work.region_store
    generic map (
      IndexBits_g  => RootBits_g,
      LeafBits_g   => LeafBits_g,
      ChunkBits_g  => ChunkBits_c,
      NumberBits_g => NumBits_c,
      RoomBits_g   => RoomBits_c,
      Memories_g   => Memories_c,
      Memory_g     => Memory_g
    )
    port map (
      Clk      => Clk,
      Rst      => Rst,
      Ready    => KeptReady,
      Write    => RegionWrite,
      Write_At => std_logic_vector(r.Region),
      Written  => n.Rec,
      Read_At  => std_logic_vector(n.Region),
      Kept     => Kept
    );

  i_region : entity work.open_region
    generic map (
      RootBits_g => RootBits_g,
      LeafBits_g => LeafBits_g,
      PhysBits_g => PhysBits_g,
      Maps_g     => Maps_c
    )
    port map (
      Clk          => Clk,
      Rst          => Rst,
      IsOpen       => IsOpen,
      Opened       => Opened,
      IsChanged    => MapChanged,
      Region       => std_logic_vector(r.Region),
      Open_It      => MapOpen,
      Begin_It     => MapBegin,
      Close_It     => MapClose,
      Flush_It     => MapFlush,
      Done         => MapDone,
      Failed       => MapFailed,
      Op_Valid     => PlaceValid,
      Op_Ready     => PlaceReady,
      Op_Find      => PlaceFind,
      Op_Here      => PlaceHere,
      Op_Longest   => PlaceLongest,
      Op_Take      => PlaceTake,
      Op_First     => std_logic_vector(PlaceFirst),
      Op_Count     => std_logic_vector(PlaceCount),
      Ok           => PlaceOk,
      Place        => Place,
      Longest      => Longest,
      Read_Valid   => MapRead,
      Read_Ready   => ReadReady,
      Write_Valid  => MapWrite,
      Write_Ready  => WriteReady,
      Addr         => MapAddr,
      Write_Word   => MapWord,
      Quiet        => Quiet,
      Write_Failed => HasFailed,
      Data_Valid   => MapData,
      Data         => ReadWord,
      Data_Failed  => Axi_RResp(1)
    );

  -- The allocation's first word may be on its way before those of the bitmap.
  MapData <= Axi_RValid and not r.Awaits;

  i_realloc : entity work.alloc_realloc
    generic map (
      RootBits_g   => RootBits_g,
      LeafBits_g   => LeafBits_g,
      FrameBits_g  => FrameBits_g,
      ChunkBits_g  => ChunkBits_c,
      NumberBits_g => NumBits_c,
      RoomBits_g   => RoomBits_c
    )
    port map (
      Clk          => Clk,
      Rst          => Rst,
      Start        => ReallocStart,
      What         => ReallocWhat,
      Pages        => std_logic_vector(r.Pages),
      Lazy         => r.Lazy,
      Page         => std_logic_vector(r.Page),
      Word         => r.Word,
      Rec          => r.Rec,
      New_Rec      => ReallocRec,
      Write        => ReallocWrites,
      Goes         => ReallocGoes,
      To_Region    => ReallocTo,
      Table_Valid  => ReallocTable,
      Table_Any    => ReallocAny,
      Table_Ready  => TableReady,
      Table_Ok     => TableOk,
      New_Chunk    => TableChunk,
      New_Number   => TableNumber,
      Root_Valid   => ReallocRoot,
      Root_Ready   => Root_Ready,
      Here         => ReallocHere,
      First        => std_logic_vector(r.First),
      Count        => std_logic_vector(r.Count),
      Needs        => std_logic_vector(r.Needs),
      New_First    => ReallocFirst,
      New_Count    => ReallocCount,
      New_Last     => ReallocLast,
      New_Needs    => ReallocNeeds,
      Ends         => ReallocEnds,
      Tells        => ReallocEndsLarge,
      Rests        => ReallocRests,
      Holds        => ReallocHolds,
      Answers      => ReallocAnswers,
      Status       => ReallocStatus,
      Fails        => ReallocFails,
      Seeks        => ReallocSeeks,
      Alone        => ReallocAlone,
      Sought       => r.Sought,
      Adds         => ReallocAdds,
      Counts       => ReallocCounts,
      Large        => ReallocCalls,
      Large_What   => ReallocWork,
      Large_Status => LargeStatus,
      Large_Moves  => LargeMoves,
      Large_To     => LargeToFirst,
      Large_First  => LargeFirst,
      Large_Last   => LargeLast,
      Large_Needs  => LargeNeeds,
      Large_Trails => LargeTrails,
      Of_Large     => OfLarge,
      Had          => ReallocHad,
      Had_First    => ReallocHadFirst,
      IsDying      => r.IsDying,
      Asks_Here    => ReallocAsks,
      Place_Ready  => PlaceReady,
      Place_Ok     => PlaceOk,
      Takes        => ReallocTakes,
      Frames_Free  => FramesFree,
      Loads        => ReallocLoads,
      Ask_Valid    => ReallocRead,
      Put_Valid    => ReallocPut,
      Put_Word     => ReallocWord,
      At           => ReallocAt,
      Read_Ready   => ReadReady,
      Write_Ready  => WriteReady,
      Has_Word     => HasWord,
      Unread       => r.Failed,
      Quiet        => Quiet,
      Failed       => HasFailed,
      Changes      => ReallocChanges,
      Dies         => ReallocDies,
      Dies_First   => ReallocFrom,
      Dies_Last    => ReallocTill,
      Tells_First  => ReallocTells,
      Moves        => ReallocMoves,
      Drained      => Drained,
      IsBroken     => r.Broken,
      Over         => ReallocOver,
      IsMoving     => IsMoving,
      Promised     => Promised,
      IsDrained    => IsDrained,
      Is_At        => ReallocPage,
      Trails       => Trails,
      Trail        => Trail,
      Move_Read    => MoveRead,
      Read_Number  => MoveNumber,
      Read_Within  => MoveReadAt,
      Data_Valid   => Axi_RValid,
      Data         => Axi_RData,
      Data_Failed  => Axi_RResp(1),
      Move_Write   => MoveWrite,
      Write_Within => MoveWriteAt,
      Write_Word   => MoveWord,
      Write_Many   => MoveMany,
      Write_Run    => MoveRun,
      Write_Mask   => MoveMask,
      Write_Lanes  => MoveLanes
    );

  ReallocHere <= '1' when r.State = StateRealloc else '0';
  HasWord     <= not r.Awaits or Axi_RValid;

  -- Frames that come back are there for whatever is next, but for words that are swept.
  GivesFirst <= SweepGiving and (SweepIsTold or Touch_Valid or IsDrained or Cmd_Valid or r.Resumes);

  i_sweep : entity work.alloc_sweep
    generic map (
      RootBits_g   => RootBits_g,
      LeafBits_g   => LeafBits_g,
      FrameBits_g  => FrameBits_g,
      ChunkBits_g  => ChunkBits_c,
      NumberBits_g => NumBits_c,
      RoomBits_g   => RoomBits_c,
      Batch_g      => Batch_c,
      Memories_g   => Memories_c,
      Memory_g     => Memory_g
    )
    port map (
      Clk          => Clk,
      Rst          => Rst,
      Add          => DyingAdd,
      Add_First    => std_logic_vector(DyingFirst),
      Add_Last     => std_logic_vector(DyingLast),
      Add_Large    => DyingLarge,
      Add_Moved    => DyingMoved,
      IsFull       => DyingFull,
      Drained      => Drained,
      Gate_Page    => Gate_Page,
      Gate_Closed  => Gate_Closed,
      Page         => std_logic_vector(r.Page),
      IsDying      => IsDying,
      IsOver       => SweepIsOver,
      First        => FrontFirst,
      Last         => FrontLast,
      Leaves_From  => FrontFrom,
      Moved        => FrontMoved,
      Count        => FrontCount,
      Waits        => SweepWaits,
      Region       => SweepRegion,
      Told         => SweepDone,
      IsBroken     => r.Broken,
      IsTold       => SweepIsTold,
      Start        => SweepStart,
      Here         => SweepHere,
      Gives        => SweepGiving,
      Steps        => SweepSteps,
      Ends         => SweepEnds,
      Counts       => SweepCounts,
      Gives_Table  => SweepTable,
      Opens        => SweepOpens,
      Unread       => r.Failed,
      Large        => SweepLarge,
      Large_What   => SweepWhat,
      Fails        => SweepFails,
      Loads        => SweepLoads,
      Rec          => r.Rec,
      Write        => SweepWrites,
      As_Use       => SweepUse,
      Leaves       => SweepLeaves,
      Empties      => SweepEmpties,
      Frees        => SweepFrees,
      Tree_Ready   => TreeReady,
      Root_Valid   => SweepRoot,
      Root_Ready   => Root_Ready,
      Shoots       => SweepShoots,
      Read_Valid   => SweepRead,
      Read_Ready   => ReadReady,
      Write_Valid  => SweepWrite,
      Write_Ready  => WriteReady,
      Within       => SweepWithin,
      Write_Mask   => SweepMask,
      Quiet        => Quiet,
      Write_Failed => HasFailed,
      Data_Valid   => Axi_RValid,
      Data         => Axi_RData,
      Data_Failed  => Axi_RResp(1),
      Few_Of       => FewOf,
      Few          => IsFew,
      Frame_Valid  => SweepGives,
      Frame_Ready  => FrameReady,
      Frame_Memory => SweepMemory,
      Frame_Size   => SweepSize,
      Frame_First  => SweepFrame,
      Given_Valid  => GivenValid
    );

  SweepHere <= '1' when r.State = StateSweep else '0';

  i_words : entity work.page_words
    generic map (
      PageBits_g  => WindowBits_c,
      LeafBits_g  => LeafBits_g,
      FrameBits_g => FrameBits_g,
      Memories_g  => Memories_c
    )
    port map (
      Clk          => Clk,
      Rst          => Rst,
      Start        => WordsStart,
      First        => std_logic_vector(WordsFirst),
      Count        => std_logic_vector(WordsCount),
      Begins       => WordsBegins,
      Ends         => WordsEnds,
      Keep         => WordsKeep,
      Counted      => not r.IsLarge,
      Base         => WordsBase,
      Lazy         => WordsLazy,
      Done         => WordsDone,
      Failed       => WordsFailed,
      Frame_Valid  => FrameValid,
      Frame_Ready  => FrameReady,
      Frame_Size   => FrameSize,
      Frame_Hinted => FrameHinted,
      Frame_Next   => FrameNext,
      Frame_First  => FrameFirst,
      Given_Valid  => GivenValid,
      Given_Ok     => GivenOk,
      Given_First  => GivenFirst,
      Write_Valid  => WordsWrite,
      Write_Ready  => WriteReady,
      Write_Many   => WordsMany,
      Write_Run    => WordsRun,
      Within       => WordsWithin,
      Word         => WordsWord
    );

  WordsFirst <= r.Page when r.Source /= SourceCommand else
                r.Region & unsigned(LargeFrom) when r.State = StateLarge else r.First;
  WordsCount <= unsigned(LargeCount) when r.State = StateLarge else r.Count;
  WordsEnds  <= LargeIsLast when r.State = StateLarge else '1';
  WordsBase  <= r.Word when r.Source = SourceCommand else TouchWord;
  WordsLazy  <= r.Lazy when r.Source = SourceCommand else '0';

  -- One of them reads or writes at a time.
  PageAddr   <= wordAddr(r.Rec.Number, unsigned(WordsWithin)) when WordsWrite = '1' else
                wordAddr(r.Rec.Number, unsigned(SweepWithin)) when SweepRead = '1' or SweepWrite = '1' else
                wordAddr(r.Rec.Number, PutAt);
  ReadValid  <= AskValid or MapRead or SweepRead or MoveRead;
  ReadAddr   <= MapAddr when MapRead = '1' else
                wordAddr(MoveNumber, unsigned(MoveReadAt)) when MoveRead = '1' else PageAddr;
  WriteValid <= PutValid or MapWrite or SweepWrite or WordsWrite or MoveWrite;
  WriteAddr  <= MapAddr when MapWrite = '1' else
                wordAddr(r.Rec.Number, unsigned(MoveWriteAt)) when MoveWrite = '1' else
                wordAddr(r.Rec.Number, r.Got(LeafBits_g - 1 downto 0)) when r.State = StateZero else PageAddr;
  WriteWord  <= MapWord when MapWrite = '1' else (others => '0') when SweepWrite = '1' else
                WordsWord when WordsWrite = '1' else MoveWord when MoveWrite = '1' else PutWord;

  -- Zeroes are written by the beat, words of runs, and those that move.
  WriteMany  <= '1' when SweepWrite = '1' or r.State = StateZero else
                (WordsWrite and WordsMany) or (MoveWrite and MoveMany);
  WriteRun   <= MoveRun or (WordsWrite and WordsRun);
  WriteEach  <= MoveWrite and not MoveRun;
  WriteMask  <= SweepMask when SweepWrite = '1' else MoveMask when MoveWrite = '1' else (others => '1');

  i_tree : entity work.room_tree
    generic map (
      IndexBits_g => RootBits_g,
      RoomBits_g  => LeafBits_g + 1
    )
    port map (
      Clk      => Clk,
      Rst      => Rst,
      Op_Valid => TreeValid,
      Op_Ready => TreeReady,
      Op_Find  => TreeFind,
      Op_Index => std_logic_vector(r.Region),
      Op_Room  => std_logic_vector(TreeRoom),
      Ok       => TreeOk,
      Found    => TreeFound
    );

  i_empty : entity work.bit_row
    generic map (
      IndexBits_g => RootBits_g,
      Count_g     => Regions_c,
      Initial_g   => '1',
      Rows_g      => true
    )
    port map (
      Clk      => Clk,
      Rst      => Rst,
      Op_Valid => EmptyValid,
      Op_Ready => EmptyReady,
      Op_Find  => EmptyFind,
      Op_Here  => EmptyHere,
      Op_More  => EmptyMore,
      Op_Index => std_logic_vector(r.Region),
      Op_Value => EmptyValue,
      Ok       => EmptyOk,
      Found    => EmptyFound
    );

  EmptyMore <= LargeMore when r.State = StateLarge else (others => '0');

  i_large : entity work.large_regions
    generic map (
      RootBits_g  => RootBits_g,
      LeafBits_g  => LeafBits_g,
      FrameBits_g => FrameBits_g
    )
    port map (
      Clk         => Clk,
      Rst         => LargeRst,
      Start       => LargeStart,
      What        => LargeWhat,
      Pages       => std_logic_vector(r.Pages),
      Lazy        => r.Lazy,
      Of_Large    => OfLarge,
      Had         => ReallocHad,
      Had_First   => ReallocHadFirst,
      From        => FrontFrom,
      Till        => FrontLast(WindowBits_c - 1 downto LeafBits_g),
      Moved       => FrontMoved,
      Done        => LargeDone,
      Status      => LargeStatus,
      To_First    => LargeToFirst,
      First_Page  => LargeFirst,
      Last_Page   => LargeLast,
      Moves       => LargeMoves,
      Needs       => LargeNeeds,
      Trails      => LargeTrails,
      Here        => LargeHere,
      Region      => std_logic_vector(r.Region),
      Goes        => LargeGoes,
      To_Region   => LargeTo,
      Loads       => LargeLoads,
      Part        => LargePart,
      Write       => LargeWrite,
      Is_New      => LargeIsNew,
      Takes       => LargeTakes,
      As_Use      => LargeUse,
      As_Part     => LargeAsPart,
      Pages_In    => LargePages,
      Is_First    => LargeIsFirst,
      Is_Last     => LargeIsLast,
      Span        => LargeSpan,
      Empty_Valid => LargeEmpties,
      Empty_Ready => EmptyReady,
      Empty_Find  => LargeFinds,
      Empty_Here  => LargeFindsHere,
      Empty_More  => LargeMore,
      Empty_Value => LargeIsEmpty,
      Empty_Ok    => EmptyOk,
      Empty_Found => EmptyFound,
      Table_Valid => LargeTables,
      Table_Ready => TableReady,
      Table_Give  => LargeGives,
      Table_Any   => LargeAny,
      Give_Zero   => LargeIsZero,
      Table_Ok    => TableOk,
      Table_Zero  => TableZero,
      Zero        => LargeZeroes,
      Frame_Valid => LargeFrame,
      Frame_Ready => FrameReady,
      Frame_Give  => LargeReturns,
      Frames_Free => FramesFree,
      Given_Valid => GivenValid,
      Given_Ok    => GivenOk,
      Words_Start => LargeWords,
      Words_From  => LargeFrom,
      Words_Count => LargeCount,
      Words_First => LargeBegins,
      Words_Done  => WordsDone,
      Words_Fail  => WordsFailed,
      Quiet       => Quiet,
      Failed      => HasFailed,
      Root_Valid  => LargeRoots,
      Root_Ready  => Root_Ready,
      Root_Leads  => LargeLeads
    );

  RootOfLarge <= directoryWord(r.Rec.Number) when hasTable(r.Rec.Part) else
                 runWord(r.Rec, to_unsigned(0, LeafBits_g), FrameBits_g);

  LargeRst  <= Rst or r.Broken;
  LargeHere <= '1' when r.State = StateLarge else '0';
  LargePart <= Kept.Part;

  i_tables : entity work.table_store
    generic map (
      PageBits_g   => PageBits_g,
      TableBits_g  => TableBits_c,
      FrameBits_g  => FrameBits_g,
      Chunks_g     => Chunks_c,
      ChunkBits_g  => ChunkBits_c,
      NumberBits_g => NumBits_c,
      Ready_g      => Ready_g
    )
    port map (
      Clk         => Clk,
      Rst         => Rst,
      Op_Valid    => TableValid,
      Op_Ready    => TableReady,
      Op_Give     => TableGive,
      Op_Zero     => TableIsZero,
      Op_NotReady => TableAny,
      Op_Chunk    => r.Rec.Chunk,
      Op_Number   => r.Rec.Number,
      Ok          => TableOk,
      Zero        => TableZero,
      Chunk       => TableChunk,
      Number      => TableNumber,
      Wants       => TableWants,
      Frame_Valid => ForTables,
      Frame_Ready => FrameReady,
      Frame_Give  => TablesGive,
      Frame_Size  => TablesSize,
      Frame_First => TablesFirst,
      Given_Valid => GivenValid,
      Given_Ok    => GivenOk,
      Given_First => GivenFirst
    );

  -- Only one of the four asks at a time.
  StoreValid  <= FrameValid or ForTables or SweepGives or LargeFrame;
  StoreGive   <= TablesGive when ForTables = '1' else LargeReturns or SweepGives;
  StoreHinted <= FrameHinted and FrameValid;
  StoreSize   <= TablesSize when ForTables = '1' else SweepSize when SweepGives = '1' else
                 std_logic_vector(to_unsigned(LeafBits_g, SizeBits_c)) when LargeFrame = '1' else FrameSize;
  StoreFirst  <= TablesFirst when ForTables = '1' else SweepFrame when SweepGives = '1' else
                 std_logic_vector(firstOfRun(r.Rec, FrameBits_g)) when LargeFrame = '1' else FrameFirst;
  StoreMemory <= OfTables_c when ForTables = '1' else SweepMemory when SweepGives = '1' else
                 r.Rec.Memory when LargeReturns = '1' else memoryOf(WordsBase);
  -- That of the operation at hand.
  FreeOf      <= r.Memory when r.State = StateMalloc else
                 r.Rec.Memory when r.State = StateTouch else memoryOf(r.Word);

  i_frames : entity work.frame_stores
    generic map (
      FrameBits_g => FrameBits_g,
      Frames_g    => Frames_g,
      Memory_g    => Memory_g,
      Others_g    => Others_g
    )
    port map (
      Clk         => Clk,
      Rst         => Rst,
      Fixed       => std_logic_vector(to_unsigned(Fixed_c, FrameBits_g)),
      Promised    => Promised,
      Promised_Of => memoryOf(r.Word),
      Free_Of     => FreeOf,
      Free        => FramesFree,
      Has_Frame   => HasFrame,
      Few_Of      => FewOf,
      Few         => IsFew,
      Op_Valid    => StoreValid,
      Op_Ready    => FrameReady,
      Op_Memory   => StoreMemory,
      Op_Give     => StoreGive,
      Op_Size     => StoreSize,
      Op_HasHint  => StoreHinted,
      Op_Next     => FrameNext,
      Op_First    => StoreFirst,
      Resp_Valid  => GivenValid,
      Resp_Ok     => GivenOk,
      Resp_First  => GivenFirst
    );

  i_barrier : entity work.barrier
    generic map (
      PhysBits_g  => PhysBits_g,
      FrameBits_g => FrameBits_g
    )
    port map (
      Clk         => Clk,
      Rst         => Rst,
      Write_Valid => WriteValid,
      Write_Ready => WriteReady,
      Write_Addr  => WriteAddr,
      Write_Word  => WriteWord,
      Write_Many  => WriteMany,
      Write_Run   => WriteRun,
      Write_Each  => WriteEach,
      Write_Lanes => MoveLanes,
      Write_Mask  => WriteMask,
      Read_Valid  => ReadValid,
      Read_Ready  => ReadReady,
      Read_Addr   => ReadAddr,
      Read_Word   => ReadWord,
      Quiet       => Quiet,
      Failed      => HasFailed,
      Axi_AwValid => Axi_AwValid,
      Axi_AwReady => Axi_AwReady,
      Axi_AwAddr  => Axi_AwAddr,
      Axi_WValid  => Axi_WValid,
      Axi_WReady  => Axi_WReady,
      Axi_WData   => Axi_WData,
      Axi_WStrb   => Axi_WStrb,
      Axi_BValid  => Axi_BValid,
      Axi_BReady  => Axi_BReady,
      Axi_BResp   => Axi_BResp,
      Axi_ArValid => Axi_ArValid,
      Axi_ArReady => Axi_ArReady,
      Axi_ArAddr  => Axi_ArAddr,
      Axi_RValid  => Axi_RValid,
      Axi_RData   => Axi_RData
    );

  i_shoot : entity work.shoot_down
    generic map (
      PageBits_g => WindowBits_c
    )
    port map (
      Clk          => Clk,
      Rst          => Rst,
      Made_Valid   => MadeValid,
      Command      => ShootCommand,
      Sweep        => SweepShoots,
      First        => std_logic_vector(ShootFirst),
      Last         => std_logic_vector(ShootLast),
      Told         => Told,
      Command_Done => CommandDone,
      Sweep_Done   => SweepDone,
      Inval_Valid  => Inval_Valid,
      Inval_Ready  => Inval_Ready,
      Inval_First  => Inval_First,
      Inval_Last   => Inval_Last,
      Inval_Done   => Inval_Done
    );

  i_touch : entity work.alloc_touch
    generic map (
      PageBits_g   => WindowBits_c,
      LeafBits_g   => LeafBits_g,
      FrameBits_g  => FrameBits_g,
      ChunkBits_g  => ChunkBits_c,
      NumberBits_g => NumBits_c,
      RoomBits_g   => RoomBits_c,
      TicketBits_g => TicketBits_g,
      Memories_g   => Memories_c,
      Memory_g     => Memory_g
    )
    port map (
      Clk            => Clk,
      Rst            => Rst,
      Ticket         => Ticket,
      Changed        => Changed,
      Start          => TouchStart,
      Writes         => Touch_Write,
      Seen           => Touch_Seen,
      Seen_Word      => Touch_Word,
      Seen_Ticket    => Touch_Ticket,
      Page           => std_logic_vector(r.Page),
      IsDying        => r.IsDying,
      Found_Valid    => IsFound,
      Found_Ready    => Found_Ready,
      Found_Status   => Found_Status,
      Found_Writable => Found_Writable,
      Found_Memory   => Found_Memory,
      Found_Size     => Found_Size,
      Found_Frame    => Found_Frame,
      Here           => TouchHere,
      Ends           => TouchEnds,
      Fails          => TouchFails,
      Zeroes         => TouchZeroes,
      Gives          => TouchGives,
      Loads          => TouchLoads,
      Rec            => r.Rec,
      Gets_Table     => TouchGets,
      Write          => TouchWrites,
      IsBroken       => r.Broken,
      Read_Valid     => TouchRead,
      Read_Ready     => ReadReady,
      Data_Valid     => Axi_RValid,
      Data           => ReadWord,
      Data_Failed    => Axi_RResp(1),
      HasFrame       => HasFrame,
      Table_Valid    => TouchTable,
      Table_Ready    => TableReady,
      Table_Ok       => TableOk,
      Table_Zero     => TableZero,
      Words_Start    => TouchWords,
      Word           => TouchWord,
      Words_Done     => WordsDone,
      Words_Failed   => WordsFailed,
      Words_Word     => WordsWord,
      Quiet          => Quiet,
      Failed         => HasFailed,
      Root_Valid     => TouchRoot,
      Root_Ready     => Root_Ready,
      Made           => TouchMade,
      Changes        => TouchChanges
    );

  TouchHere   <= '1' when r.State = StateTouch else '0';
  Found_Valid <= IsFound;

  i_counts : entity work.alloc_counts
    port map (
      Clk          => Clk,
      Rst          => Rst,
      Answered     => Answered,
      Status       => r.Status,
      Read_Failed  => ReadFailed,
      Write_Failed => WriteFailed,
      Which        => Count_Which,
      Count        => Count_Value
    );

  Answered    <= r.RespValid and Resp_Ready;
  ReadFailed  <= Axi_RValid and Axi_RResp(1);
  WriteFailed <= Axi_BValid and Axi_BResp(1);

  DyingLarge <= OfLarge when ReallocHere = '1' else '1' when r.Rec.State = RegionLarge else '0';
  DyingFirst <= unsigned(ReallocFrom) when ReallocHere = '1' else r.First;
  DyingLast  <= unsigned(ReallocTill) when ReallocHere = '1' else r.Page;
  DyingMoved <= ReallocMoves and ReallocHere;

  Drained <= r.Draining and CommandDone;

  ------------------------------------------------------------------------------------------------
  -- Ports
  ------------------------------------------------------------------------------------------------
  Busy   <= '0' when r.State = StateIdle and r.Telling = '0' and SweepIsTold = '0' and IsDrained = '0'
                     and SweepGiving = '0' and (r.Held = '0' or SweepIsOver = '0') else '1';
  Broken <= r.Broken;

  Resp_Valid  <= r.RespValid;
  Resp_Status <= r.Status;
  Resp_Addr   <= Window_Base & std_logic_vector(r.RespPage) & std_logic_vector(to_unsigned(0, PageBits_g))
                 when r.Status = AllocOk_c and r.What /= AllocFree_c else (others => '0');

  Axi_RReady <= '1';

  ------------------------------------------------------------------------------------------------
  -- What comes next
  ------------------------------------------------------------------------------------------------
  p_next : process (all) is
    variable v      : Registers_t;

    procedure answer (status : AllocStatus_t) is
    begin
      v.RespValid := '1';
      v.Status    := status;
    end procedure;

    procedure refuse (status : AllocStatus_t) is
    begin
      answer(status);
      v.State := StateIdle;
    end procedure;

    -- A write has failed: nobody knows what lies in memory, and there is nothing more.
    procedure breakDown is
    begin
      v.Broken := '1';
      v.State  := StateIdle;
      case r.Source is
        when SourceCommand =>
          ReallocOver <= '1';
          v.Draining  := '0';
          refuse(AllocBusError_c);
        when others =>
          null;
      end case;
    end procedure;

    -- Pages die: the gate to them is closed from here on, and they are told.
    procedure letDie is
    begin
      DyingAdd     <= '1';
      ShootCommand <= '1';
      v.Draining   := '1';
    end procedure;

    -- The place that was found is of an allocation from here on.
    procedure takePlace is
    begin
      PlaceValid  <= '1';
      PlaceTake   <= '1';
      RegionWrite <= '1';
      v.Rec.Used  := r.UsedMore;
    end procedure;

    -- A place is found: a malloc takes it, an allocation that moves leaves its old one first.
    procedure claimOrLeave is
    begin
      v.Sought := AllocOk_c;
      v.State  := StateClaim;
      if r.What = AllocRealloc_c then
        v.State := StateRealloc;
      end if;
    end procedure;

    -- There is no place.
    procedure noPlace (status : AllocStatus_t) is
    begin
      v.Sought := status;
      v.State  := StateRealloc;
      if r.What /= AllocRealloc_c then
        refuse(status);
      end if;
    end procedure;

    procedure beginRealloc (what : ReallocWork_t) is
    begin
      ReallocStart <= '1';
      ReallocWhat  <= what;
      v.State      := StateRealloc;
    end procedure;

    -- The mark of a page that was the last of its allocation is taken away.
    procedure dropTrail is
    begin
      v.Region := regionOf(unsigned(Trail));
      beginRealloc(ReallocTrail);
    end procedure;

    -- A place for Count pages is sought where others are.
    procedure withOthers is
    begin
      v.Then_To := StateFind;
      if r.Fits = '1' then
        v.Region := unsigned(Opened);
        v.State  := StateRegion;
      else
        TreeValid <= '1';
        TreeFind  <= '1';
        v.State   := StateTree;
      end if;
    end procedure;

    procedure beginLarge (what : LargeWork_t) is
    begin
      LargeStart <= '1';
      LargeWhat  <= what;
      v.State    := StateLarge;
    end procedure;

    -- Regions of a large allocation that a command has: how that ends.
    procedure endLarge is
    begin
      v.First := unsigned(LargeFirst);
      v.Page  := unsigned(LargeLast);
      v.State := StateTell;
      if LargeStatus = AllocBusError_c then
        breakDown;
      elsif LargeStatus /= AllocOk_c then
        refuse(LargeStatus);
      end if;
    end procedure;

    -- What the sweep does with the region.
    procedure sweeps is
    begin
      MapClose    <= SweepLeaves;
      TreeValid   <= SweepLeaves;
      TreeRoom    <= (others => '0');
      EmptyValid  <= SweepEmpties;
      EmptyValue  <= '1';
      PlaceValid  <= SweepFrees;
      Root_Valid  <= SweepRoot;
      ShootFirst  <= unsigned(FrontFirst);
      ShootLast   <= unsigned(FrontLast);
      RegionWrite <= SweepWrites or SweepFrees;
      if SweepLoads = '1' then
        v.Rec   := Kept;
        v.First := unsigned(FrontFirst);
        v.Count := unsigned(FrontCount);
      end if;
      if SweepWrites = '1' then
        v.Rec.State := SweepUse;
        v.Rec.Room  := (others => '0');
      elsif SweepFrees = '1' then
        v.Rec.Used := r.UsedLess;
      end if;
      v.Then_To := StateSweep;
      v.State   := StateSweep;
      if SweepLarge = '1' then
        beginLarge(SweepWhat);
      elsif SweepOpens = '1' then
        v.Failed := '0';
        v.State  := StateOpen;
      elsif SweepFails = '1' then
        breakDown;
      elsif SweepSteps = '1' then
        v.State := StateStepped;
      elsif SweepEnds = '1' then
        v.State := StateIdle;
      elsif SweepCounts = '1' then
        v.Then_To := StateIdle;
        v.State   := StateCount;
      elsif SweepTable = '1' then
        v.Then_To := StateIdle;
        v.State   := StateGiveTable;
      end if;
    end procedure;

    -- Words are written, from the first one on.
    procedure count (words : Count_t) is
    begin
      v.Got    := (others => '0');
      v.Words  := words;
      v.Failed := '0';
    end procedure;

    -- What a realloc does with its allocation.
    procedure reallocs is
    begin
      PlaceValid <= ReallocAsks or ReallocTakes;
      PlaceFind  <= ReallocAsks;
      PlaceHere  <= ReallocAsks;
      PlaceTake  <= ReallocTakes;
      AskValid   <= ReallocRead;
      PutValid   <= ReallocPut;
      PutWord    <= ReallocWord;
      PutAt      <= unsigned(ReallocAt);
      Changed    <= ReallocChanges;
      ShootFirst <= unsigned(ReallocTells);
      ShootLast  <= unsigned(ReallocTill);
      v.First    := unsigned(ReallocFirst);
      v.Count    := unsigned(ReallocCount);
      v.Page     := unsigned(ReallocLast);
      v.Needs    := unsigned(ReallocNeeds);
      if ReallocRead = '1' and ReadReady = '1' then
        v.Awaits := '1';
      end if;
      v.Rec       := ReallocRec;
      RegionWrite <= ReallocWrites;
      TableValid  <= ReallocTable;
      TableAny    <= ReallocAny;
      Root_Valid  <= ReallocRoot;
      Root_Word   <= RootOfLarge;
      if ReallocGoes = '1' then
        v.Region := unsigned(ReallocTo);
      end if;
      if ReallocLoads = '1' then
        v.Rec := Kept;
      elsif ReallocTakes = '1' then
        takePlace;
      end if;
      if ReallocDies = '1' then
        letDie;
      end if;
      if ReallocFails = '1' then
        breakDown;
      elsif ReallocAnswers = '1' then
        v.RespPage := unsigned(ReallocPage);
        refuse(ReallocStatus);
      elsif ReallocEnds = '1' then
        v.RespPage := unsigned(ReallocPage);
        v.State    := r.Then_To;
      elsif ReallocEndsLarge = '1' then
        v.IsLarge := '1';
        v.State   := StateTell;
      elsif ReallocRests = '1' then
        v.Held  := ReallocHolds;
        v.State := StateIdle;
      elsif ReallocCalls = '1' then
        beginLarge(ReallocWork);
      elsif ReallocSeeks = '1' and ReallocAlone = '1' then
        v.Fits  := '1' when r.Room >= unsigned(ReallocCount) else '0';
        v.State := StateEmpty;
      elsif ReallocSeeks = '1' then
        withOthers;
      elsif ReallocCounts = '1' then
        v.Then_To := StateIdle;
        v.State   := StateCount;
      elsif ReallocAdds = '1' then
        WordsStart  <= '1';
        WordsBegins <= '0';
        v.IsNew     := r.IsNew and IsMoving;
        v.State     := StateWords;
      end if;
    end procedure;

  begin
    v := r;

    Cmd_Ready   <= '0';
    Touch_Ready <= '0';
    Step_Done   <= '0';

    RegionWrite  <= '0';
    PlaceValid   <= '0';
    PlaceFind    <= '0';
    PlaceHere    <= '0';
    PlaceLongest <= '0';
    PlaceTake    <= '0';
    PlaceFirst   <= withinOf(r.First);
    PlaceCount   <= r.Count;
    MapOpen      <= '0';
    MapBegin     <= '0';
    MapClose     <= '0';
    MapFlush     <= '0';
    SweepStart   <= '0';
    LargeStart   <= '0';
    LargeWhat    <= LargeMake;
    TreeValid    <= '0';
    TreeFind     <= '0';
    TreeRoom     <= r.Count;
    EmptyValid   <= '0';
    EmptyFind    <= '0';
    EmptyHere    <= '0';
    EmptyValue   <= '0';
    TableValid   <= '0';
    TableGive    <= '0';
    TableAny     <= '0';
    TableIsZero  <= '1';
    WordsStart   <= '0';
    WordsBegins  <= '1';
    WordsKeep    <= '0';
    ReallocStart <= '0';
    ReallocWhat  <= ReallocResize;
    ReallocOver  <= '0';
    PutValid     <= '0';
    PutWord      <= r.Word;
    PutAt        <= withinOf(r.Page);
    DyingAdd     <= '0';
    Changed      <= '0';
    TouchStart   <= '0';
    AskValid     <= '0';
    MadeValid    <= '0';
    ShootCommand <= '0';
    ShootFirst   <= r.First;
    ShootLast    <= r.Page;
    Root_Valid   <= '0';
    Root_Index   <= std_logic_vector(r.Region);
    Root_Word    <= (others => '0');

    if Resp_Ready = '1' then
      v.RespValid := '0';
    end if;

    v.IsDying  := IsDying;
    v.Resumes  := r.Held and (SweepIsOver or r.Broken);
    v.LastRegion := r.Region + resize(r.Rec.Room, RootBits_g);
    v.UsedMore := r.Rec.Used + r.Count;
    v.UsedLess := r.Rec.Used - r.Count;
    if r.Awaits = '1' and Axi_RValid = '1' then
      v.Awaits   := '0';
      v.Word     := ReadWord;
      v.Failed   := Axi_RResp(1);
      v.Overruns := overruns(r.Page, ReadWord);
    end if;

    case r.State is

      when StateInit =>
        if KeptReady = '1' and TreeReady = '1' and EmptyReady = '1' and TableReady = '1'
          and FrameReady = '1' then
          v.State := StateIdle;
        end if;
        Cmd_Ready <= not r.RespValid;
        if Cmd_Valid = '1' and r.RespValid = '0' then
          answer(AllocInitialising_c);
        end if;

      when StateIdle =>
        if GivesFirst = '1' then
          null;
        elsif SweepIsTold = '1' then
          SweepStart <= '1';
          v.Source   := SourceHouse;
          v.Region   := unsigned(SweepRegion);
          v.State    := StateSweep;
        elsif Touch_Valid = '1' and IsFound = '0' then
          Touch_Ready <= '1';
          v.Source := SourceTouch;
          v.Page   := unsigned(Touch_Page);
          TouchStart  <= '1';
          v.Region := regionOf(v.Page);
          v.State  := StateTouch;
        elsif IsDrained = '1' then
          v.Source := SourceCommand;
          v.Region := regionOf(unsigned(ReallocPage));
          beginRealloc(ReallocFinish);
        elsif r.Resumes = '1' then
          v.Held    := '0';
          v.Resumes := '0';
          v.Source := SourceCommand;
          v.Page   := unsigned(ReallocPage);
          v.State  := StateCheck;
        elsif Cmd_Valid = '1' and r.Held = '0' and r.RespValid = '0' and r.Telling = '0' and r.Draining = '0'
          and (DyingFull = '0' or r.Broken = '1') then
          Cmd_Ready  <= '1';
          v.Source   := SourceCommand;
          v.What     := Cmd_What;
          v.Bytes    := unsigned(Cmd_Bytes);
          v.Ends     := or Cmd_Bytes(PageBits_g - 1 downto 0);
          v.Memory   := Cmd_Memory;
          v.Writable := Cmd_Writable;
          v.Lazy     := Cmd_Lazy;
          v.Page     := unsigned(Cmd_Addr(PageBits_g + WindowBits_c - 1 downto PageBits_g));
          v.Outside  := '0';
          if Cmd_Addr(AddrBits_g - 1 downto PageBits_g + WindowBits_c) /= Window_Base then
            v.Outside := '1';
          end if;
          v.IsBegin  := '1';
          if unsigned(Cmd_Addr(PageBits_g - 1 downto 0)) /= 0 then
            v.IsBegin := '0';
          end if;
          v.Then_To  := StateCheck;
          v.State    := StateCheck;
          if Trails = '1' and r.Broken = '0' then
            dropTrail;
          end if;
        elsif Pause = '0' and r.Broken = '0' then
          v.Source := SourceHouse;
          v.Region := unsigned(SweepRegion);
          if SweepWaits = '1' then
            SweepStart <= '1';
            v.State    := StateSweep;
          elsif r.Telling = '0' and r.Draining = '0' and SweepGiving = '0' then
            if Trails = '1' then
              v.Then_To := StateStepped;
              dropTrail;
            elsif MapChanged = '1' or TableWants = '1' then
              v.State := StateHouse;
            end if;
          end if;
        end if;

      when StateCheck =>
        v.Pages    := resize(shift_right(r.Bytes, PageBits_g), WindowBits_c + 1) + unsigned'("" & r.Ends);
        v.IsZero   := '1' when r.Bytes = 0 else '0';
        -- More pages than the window has, where one that is begun counts.
        v.IsBeyond := '0';
        if shift_right(r.Bytes, PageBits_g + WindowBits_c + 1) /= 0
          or (r.Bytes(PageBits_g + WindowBits_c) = '1' and r.Bytes(PageBits_g + WindowBits_c - 1 downto 0) /= 0) then
          v.IsBeyond := '1';
        end if;
        v.Region   := regionOf(r.Page);
        v.State    := StateMalloc;
        if r.What /= AllocMalloc_c then
          v.State := StateLocate;
        end if;
        if r.Broken = '1' then
          refuse(AllocBusError_c);
        end if;

      -- ---- malloc

      when StateMalloc =>
        v.Count := resize(r.Pages, LeafBits_g + 1);
        v.More  := resize(r.Pages, LeafBits_g) - 1;
        v.Word  := pageWord(Frame_t'(others => '0'), '1', r.Writable, r.Memory, 0);
        v.Needs := r.Pages;
        v.State := StatePlace;
        v.NoFrames := '1' when r.Lazy = '0' and unsigned(FramesFree) < r.Pages else '0';
        v.IsLarge  := or r.Pages(WindowBits_c downto LeafBits_g);
        v.Fits     := '1' when IsOpen = '1' and r.Room >= resize(r.Pages, LeafBits_g + 1) else '0';

      when StatePlace =>
        v.Then_To := StateFind;
        if r.IsZero = '1' then
          refuse(AllocZeroSize_c);
        elsif r.IsBeyond = '1' then
          refuse(AllocTooLarge_c);
        elsif isUnknown(r.Memory) then
          refuse(AllocUnknownMemory_c);
        elsif r.NoFrames = '1' then
          refuse(AllocNoFrames_c);
        elsif r.IsLarge = '1' then
          beginLarge(LargeMake);
        else
          withOthers;
        end if;

      when StateTree =>
        if TreeReady = '1' then
          v.Region := unsigned(TreeFound);
          v.State  := StateRegion;
          if TreeOk = '0' then
            -- A realloc has sought an empty one before.
            v.State := StateEmpty;
            if r.What = AllocRealloc_c then
              noPlace(AllocNoSpace_c);
            end if;
          end if;
        end if;

      when StateRegion =>
        v.Rec   := Kept;
        v.State := StateOpen;

      when StateFind =>
        PlaceValid <= '1';
        PlaceFind  <= '1';
        v.State    := StateFound;

      when StateFound =>
        v.IsNew := '0';
        v.First := r.Region & unsigned(Place);
        if PlaceReady = '1' then
          claimOrLeave;
          if PlaceOk = '0' then
            -- It has room, unless memory was changed by somebody else.
            noPlace(AllocBadEntry_c);
          end if;
        end if;

      when StateEmpty =>
        EmptyValid <= '1';
        EmptyFind  <= '1';
        v.State    := StateEmptyFound;

      when StateEmptyFound =>
        v.Region  := unsigned(EmptyFound);
        v.Then_To := StateTable;
        if EmptyReady = '1' then
          v.State := StateTable;
          if EmptyOk = '0' then
            noPlace(AllocNoSpace_c);
          elsif MapChanged = '1' then
            MapFlush <= '1';
            v.State  := StateFlushed;
          end if;
        end if;

      when StateTable =>
        TableValid <= '1';
        v.State    := StateTabled;

      when StateTabled =>
        v.Rec.State  := RegionShared;
        v.Rec.Chunk  := TableChunk;
        v.Rec.Number := TableNumber;
        v.Rec.Used   := (others => '0');
        v.Then_To := StateNew;
        count(to_unsigned(LeafPages_c, Count_t'length));
        if TableReady = '1' then
          v.State := StateNew;
          if TableOk = '0' then
            noPlace(AllocNoFrames_c);
          elsif TableZero = '0' then
            v.State := StateZero;
          end if;
        end if;

      when StateNew =>
        -- All of its pages are free.
        PlaceValid <= '1';
        PlaceFirst <= (others => '0');
        PlaceCount <= to_unsigned(LeafPages_c, Count_t'length);
        EmptyValid <= '1';
        MapBegin   <= '1';
        v.IsNew    := '1';
        v.First    := r.Region & to_unsigned(0, LeafBits_g);
        -- A table may have taken frames.
        v.NoFrames := '1' when r.Lazy = '0' and unsigned(FramesFree) < r.Needs else '0';
        v.State    := StateEnough;

      when StateEnough =>
        if PlaceReady = '1' and EmptyReady = '1' then
          claimOrLeave;
          if r.NoFrames = '1' then
            TableValid <= '1';
            TableGive  <= '1';
            EmptyValid <= '1';
            EmptyValue <= '1';
            MapClose   <= '1';
            v.State    := StateAbandoned;
          end if;
        end if;

      when StateAbandoned =>
        if TableReady = '1' and EmptyReady = '1' then
          refuse(AllocNoFrames_c);
        end if;

      when StateClaim =>
        takePlace;
        v.Page      := r.Region & (withinOf(r.First) + r.More);
        WordsStart  <= '1';
        v.State     := StateWords;

      when StateWords =>
        if WordsDone = '1' then
          v.State := StateWritten;
          if WordsFailed = '1' then
            -- So many were free: the frame store has failed.
            breakDown;
          end if;
        end if;

      when StateWritten =>
        if Quiet = '1' then
          v.State := StateTell;
          if HasFailed = '1' then
            breakDown;
          elsif r.IsNew = '1' then
            v.State := StateLink;
          end if;
        end if;

      when StateLink =>
        Root_Valid <= '1';
        Root_Word  <= directoryWord(r.Rec.Number);
        if Root_Ready = '1' then
          v.State := StateTell;
        end if;

      when StateTell =>
        -- The answer follows when that is taken.
        MadeValid  <= '1';
        Changed    <= '1';
        v.RespPage := r.First;
        v.Telling := '1';
        v.Then_To := StateIdle;
        v.State   := StateCount;
        if r.What = AllocRealloc_c then
          v.RespPage := unsigned(ReallocPage);
        end if;
        if IsMoving = '1' then
          -- Its place was taken, and counted, before.
          ShootFirst  <= unsigned(ReallocPage);
          ReallocOver <= '1';
          v.Draining  := '0';
          v.State     := StateIdle;
        elsif r.IsLarge = '1' then
          v.State := StateIdle;
        end if;

      when StateLarge =>
        Root_Valid  <= LargeRoots;
        EmptyValid  <= LargeEmpties;
        EmptyFind   <= LargeFinds;
        EmptyHere   <= LargeFindsHere;
        EmptyValue  <= LargeIsEmpty;
        TableValid  <= LargeTables;
        TableGive   <= LargeGives;
        TableAny    <= LargeAny;
        TableIsZero <= LargeIsZero;
        WordsStart  <= LargeWords;
        WordsBegins <= LargeBegins;
        RegionWrite <= LargeWrite;
        v.Then_To   := StateLarge;
        if LargeLeads = '1' then
          Root_Word <= RootOfLarge;
        end if;
        if LargeGoes = '1' then
          v.Region := unsigned(LargeTo);
        end if;
        if LargeLoads = '1' then
          v.Rec := Kept;
        elsif LargeWrite = '1' then
          v.Rec.State := LargeUse;
          v.Rec.Part  := LargeAsPart;
          if LargeTakes = '1' then
            v.Rec.Chunk  := TableChunk;
            v.Rec.Number := TableNumber;
            if not hasTable(LargeAsPart) then
              v.Rec.Number := std_logic_vector(resize(shift_right(unsigned(GivenFirst), LeafBits_g), NumBits_c));
            end if;
          end if;
          if LargeIsNew = '1' then
            v.Rec.Used     := unsigned(LargePages);
            v.Rec.Room     := resize(unsigned(LargeSpan), RoomBits_c);
            v.Rec.IsFirst  := LargeIsFirst;
            v.Rec.IsLast   := LargeIsLast;
            v.Rec.Writable := r.Word(WritableBit_c);
            v.Rec.Memory   := memoryOf(r.Word);
          end if;
        end if;
        if LargeZeroes = '1' then
          v.Rec.Number := TableNumber;
          count(to_unsigned(LeafPages_c, Count_t'length));
          v.State := StateZero;
        elsif LargeDone = '1' and r.Source = SourceHouse then
          v.State := StateSweep;
        elsif LargeDone = '1' and r.What = AllocRealloc_c then
          v.State := StateRealloc;
        elsif LargeDone = '1' then
          endLarge;
        end if;

      -- ---- free and realloc

      when StateLocate =>
        v.Rec   := Kept;
        v.State := StateLocateRead;
        if r.What = AllocRealloc_c and r.IsZero = '1' then
          refuse(AllocZeroSize_c);
        elsif r.What = AllocRealloc_c and r.IsBeyond = '1' then
          refuse(AllocTooLarge_c);
        elsif r.Outside = '0' and r.IsDying = '0' and v.Rec.State = RegionLarge then
          v.State := StateLocateLarge;
        elsif r.Outside = '1' or r.IsDying = '1' or v.Rec.State /= RegionShared then
          refuse(AllocNotAllocated_c);
        end if;

      when StateLocateRead =>
        AskValid  <= '1';
        v.Then_To := StateLocated;
        if ReadReady = '1' then
          v.Awaits := '1';
          v.State  := StateLocated;
          if r.What = AllocRealloc_c then
            v.State := StateOpen;
          end if;
        end if;

      when StateLocated =>
        if v.Awaits = '0' then
          v.State := StateFirst;
        end if;

      when StateFirst =>
        v.First   := r.Page;
        v.IsLarge := '0';
        v.Then_To := StateIdle;
        PutWord <= r.Word;
        PutWord(ValidBit_c) <= '0';
        PutWord(FreedBit_c) <= '1';
        if r.Failed = '1' then
          refuse(AllocBusError_c);
        elsif stateOf(r.Word) /= PageMapped and stateOf(r.Word) /= PageReserved then
          refuse(AllocNotAllocated_c);
        elsif r.IsBegin = '0' or r.Word(FirstBit_c) = '0' then
          refuse(AllocInside_c);
        elsif r.Overruns = '1' then
          refuse(AllocBadEntry_c);
        elsif r.What = AllocRealloc_c then
          beginRealloc(ReallocResize);
        else
          PutValid <= '1';
          if WriteReady = '1' then
            v.Page  := r.Region & lastOf(withinOf(r.Page), r.Word);
            v.State := StateMarked;
          end if;
        end if;

      when StateLocateLarge =>
        v.First := r.Page;
        v.State := StateLocateSpan;
        if withinOf(r.Page) >= r.Rec.Used then
          refuse(AllocNotAllocated_c);
        elsif r.IsBegin = '0' or r.Rec.IsFirst = '0' or withinOf(r.Page) /= 0 then
          refuse(AllocInside_c);
        end if;

      when StateLocateSpan =>
        v.Region := r.LastRegion;
        v.State  := StateLocateLast;

      when StateLocateLast =>
        v.Rec   := Kept;
        v.Page  := r.Region & resize(v.Rec.Used - 1, LeafBits_g);
        v.State := StateMarked;
        if r.What = AllocRealloc_c then
          v.Word    := pageWord(Frame_t'(others => '0'), '1', Kept.Writable, Kept.Memory, 0);
          v.Then_To := StateIdle;
          beginRealloc(ReallocLarge);
        end if;

      when StateMarked =>
        if Quiet = '1' then
          v.State := StateIdle;
          if HasFailed = '1' then
            breakDown;
          else
            letDie;
            Changed <= '1';
          end if;
        end if;

      when StateRealloc =>
        reallocs;

      -- ---- a first touch

      when StateTouch =>
        AskValid    <= TouchRead;
        TableValid  <= TouchTable;
        WordsStart  <= TouchWords;
        WordsKeep   <= '1';
        Root_Valid  <= TouchRoot;
        Root_Word   <= directoryWord(r.Rec.Number);
        RegionWrite <= TouchWrites;
        MadeValid   <= TouchMade;
        ShootFirst  <= r.Page;
        Changed     <= TouchChanges;
        if TouchLoads = '1' then
          v.Rec := Kept;
        elsif TouchGets = '1' then
          v.Rec.Chunk  := TableChunk;
          v.Rec.Number := TableNumber;
          v.Rec.Part   := PartReady_c;
        end if;
        if TouchFails = '1' then
          breakDown;
        elsif TouchZeroes = '1' then
          count(to_unsigned(LeafPages_c, Count_t'length));
          v.Then_To := StateTouch;
          v.State   := StateZero;
        elsif TouchGives = '1' then
          v.Then_To := StateIdle;
          v.State   := StateGiveTable;
        elsif TouchEnds = '1' then
          v.State := StateIdle;
        end if;

      -- ---- the sweep

      when StateSweep =>
        sweeps;

      -- ---- what can wait

      when StateHouse =>
        v.Then_To := StateStepped;
        if MapChanged = '1' then
          MapFlush <= '1';
          v.State  := StateFlushed;
        else
          TableValid <= '1';
          TableAny   <= '1';
          v.State    := StateHouseTable;
        end if;

      when StateHouseTable =>
        v.Rec.Chunk  := TableChunk;
        v.Rec.Number := TableNumber;
        v.Then_To    := StateHouseZeroed;
        count(to_unsigned(LeafPages_c, Count_t'length));
        if TableReady = '1' then
          v.State := StateZero;
          if TableOk = '0' then
            v.State := StateIdle;
          end if;
        end if;

      when StateHouseZeroed =>
        v.Then_To := StateStepped;
        v.State   := StateGiveTable;

      when StateStepped =>
        Step_Done <= '1';
        v.State   := StateIdle;

      -- ---- parts

      when StateGiveTable =>
        -- A table of zeroes, to be kept if there is place for it.
        TableValid <= '1';
        TableGive  <= '1';
        v.State    := StateSettle;

      when StateOpen =>
        v.State := r.Then_To;
        if IsOpen = '0' or unsigned(Opened) /= r.Region then
          MapOpen <= '1';
          v.State := StateOpening;
        end if;

      when StateOpening =>
        if MapDone = '1' then
          v.State := r.Then_To;
          v.Room  := resize(r.Rec.Room, LeafBits_g + 1);
          if HasFailed = '1' then
            breakDown;
          elsif MapFailed = '1' then
            -- What was open stays so. A command is refused; places that were to be free stay in use.
            v.Room  := r.Room;
            v.Failed := '1';
            if r.Source = SourceCommand then
              refuse(AllocBusError_c);
            end if;
          end if;
        end if;

      when StateFlushed =>
        if MapDone = '1' then
          v.State := r.Then_To;
          if HasFailed = '1' then
            breakDown;
          end if;
        end if;

      when StateZero =>
        PutValid <= '1';
        PutWord  <= (others => '0');
        if WriteReady = '1' then
          v.Got   := r.Got + BeatWords_c;
          v.Words := r.Words - BeatWords_c;
          if r.Words = BeatWords_c then
            v.State := StateZeroed;
          end if;
        end if;

      when StateZeroed =>
        if Quiet = '1' then
          v.State := r.Then_To;
          if HasFailed = '1' then
            breakDown;
          end if;
        end if;

      when StateCount =>
        PlaceLongest <= '1';
        if PlaceReady = '1' then
          PlaceValid <= '1';
          v.State    := StateCounted;
        end if;

      when StateCounted =>
        TreeRoom <= unsigned(Longest);
        if PlaceReady = '1' then
          TreeValid   <= '1';
          RegionWrite <= '1';
          v.Rec.Room  := resize(unsigned(Longest), RoomBits_c);
          v.Room      := unsigned(Longest);
          v.State     := StateSettle;
        end if;

      when StateSettle =>
        if TreeReady = '1' and EmptyReady = '1' and TableReady = '1' then
          v.State := r.Then_To;
        end if;

    end case;

    -- What an invalidation was for.
    if r.Telling = '1' and Told = '1' then
      v.Telling := '0';
      answer(AllocOk_c);
    end if;
    if Drained = '1' and IsMoving = '0' then
      v.Draining := '0';
      answer(AllocOk_c);
    end if;

    if Memories_c = 1 then
      -- Whatever a record may say.
      v.Rec.Memory := OfTables_c;
    end if;
    if Rst = '1' then
      v.State     := StateInit;
      v.Broken    := '0';
      v.Telling   := '0';
      v.Draining  := '0';
      v.Held      := '0';
      v.Awaits    := '0';
      v.RespValid := '0';
    end if;
    n <= v;
  end process;

  p_registers : process (Clk) is
  begin
    if rising_edge(Clk) then
      r <= n;
    end if;
  end process;

end architecture;
