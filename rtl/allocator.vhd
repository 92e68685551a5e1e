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
    -- malloc: a place is sought, as alloc_seek says, and taken.
    StateMalloc,
    StatePlace,
    StateSeek,
    StateClaim,
    -- The words of its pages, run by run.
    StateWords,
    StateWritten,
    StateLink,
    StateTell,
    -- Regions of a large allocation: what large_regions says.
    StateLarge,
    -- free and realloc: which allocation is meant, as alloc_locate says. A free has marked it.
    StateLocate,
    StateMarked,
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
    -- The page that is looked at, and whether it is dying, a cycle later.
    Page     : Page_t;
    IsDying  : std_logic;
    -- The region of it, and its record.
    Region   : Region_t;
    Rec      : Record_t;
    IsNew    : std_logic;
    -- Of an allocation: its first page and its pages, but for that one too.
    First    : Page_t;
    Count    : Count_t;
    More     : Within_t;
    -- Those of its region, with these and without, as they were a cycle earlier.
    UsedMore : Count_t;
    UsedLess : Count_t;
    Word     : TableWord_t;
    -- That of an allocation that is looked up is on its way.
    Awaits   : std_logic;
    -- How a place was sought for a realloc.
    Sought   : AllocStatus_t;
    -- The longest free row of the open region. Nothing is done with its places, as was known a cycle earlier.
    Room     : Count_t;
    MayPlace : std_logic;
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

  constant Memories_c : positive := memoriesOf(Others_g);

  subtype Memory_t is std_logic_vector(MemoryBits_c - 1 downto 0);

  constant OfTables_c : Memory_t := std_logic_vector(to_unsigned(Memory_g, MemoryBits_c));

  -- Whether there is not such a memory.
  function isUnknown (memory : Memory_t) return boolean is
  begin
    if Memories_c = 1 then
      return memory /= OfTables_c;
    end if;
    return unsigned(memory) >= Memories_c;
  end function;

  signal r            : Registers_t;
  signal n            : Registers_t;

  -- What is done with the parts in this cycle: what the machine says that is at it, or the allocator's own.
  signal Uses         : Uses_t;
  signal Own          : Uses_t;
  signal SeekUses     : Uses_t;
  signal LocateUses   : Uses_t;
  signal TouchUses    : Uses_t;
  signal SweepUses    : Uses_t;
  signal ReallocUses  : Uses_t;
  signal LargeUses    : Uses_t;
  signal Parts        : Parts_t;

  signal Kept         : Record_t;
  signal KeptReady    : std_logic;

  -- The open region's bitmap.
  signal PlaceLongest : std_logic;
  signal PlaceFirst   : Within_t;
  signal PlaceCount   : Count_t;
  signal Place        : std_logic_vector(LeafBits_g - 1 downto 0);
  signal Longest      : std_logic_vector(LeafBits_g downto 0);
  signal IsOpen       : std_logic;
  signal Opened       : std_logic_vector(RootBits_g - 1 downto 0);
  signal MapChanged   : std_logic;
  signal MapOpen      : std_logic;
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
  signal SweepWrites  : std_logic;
  signal SweepUse     : RegionUse_t;
  signal SweepFrees   : std_logic;
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
  signal ReallocTakes  : std_logic;
  signal ReallocRec    : Record_t;
  signal ReallocGoes   : std_logic;
  signal ReallocTo     : std_logic_vector(RootBits_g - 1 downto 0);
  signal ReallocWord   : TableWord_t;
  signal ReallocAt     : std_logic_vector(LeafBits_g - 1 downto 0);
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
  signal LargeMore    : std_logic_vector(RootBits_g - 1 downto 0);
  signal LargeZeroes  : std_logic;
  signal LargeFrame   : std_logic;
  signal LargeReturns : std_logic;
  signal LargeFrom    : std_logic_vector(LeafBits_g - 1 downto 0);
  signal LargeCount   : std_logic_vector(LeafBits_g downto 0);
  signal LargeLeads   : std_logic;
  -- The word of the root of a large allocation's region.
  signal RootOfLarge  : TableWord_t;

  signal TreeRoom     : Count_t;
  signal TreeFound    : std_logic_vector(RootBits_g - 1 downto 0);

  signal EmptyMore    : std_logic_vector(RootBits_g - 1 downto 0);
  signal EmptyFound   : std_logic_vector(RootBits_g - 1 downto 0);

  signal TableChunk   : std_logic_vector(ChunkBits_c - 1 downto 0);
  signal TableNumber  : std_logic_vector(NumBits_c - 1 downto 0);
  signal TableWants   : std_logic;

  signal FreeOf       : Memory_t;
  signal FewOf        : Memory_t;
  signal GivenFirst   : std_logic_vector(FrameBits_g - 1 downto 0);
  -- Less than 1/16 is free.
  signal IsFew        : std_logic;
  signal FramesFree   : std_logic_vector(FrameBits_g downto 0);

  signal WordsEnds    : std_logic;
  signal WordsCount   : Count_t;
  signal WordsFirst   : Page_t;
  signal WordsLazy    : std_logic;
  signal WordsBase    : TableWord_t;
  signal WordsWrite   : std_logic;
  signal WordsMany    : std_logic;
  signal WordsRun     : std_logic;
  signal WordsWithin  : std_logic_vector(LeafBits_g - 1 downto 0);
  signal WordsWord    : TableWord_t;

  signal PutWord      : TableWord_t;
  signal PutAt        : Within_t;
  signal ReadWord     : TableWord_t;
  signal Zeroing      : std_logic;

  signal MadeValid    : std_logic;
  signal ShootCommand : std_logic;
  signal ShootFirst   : Page_t;
  signal ShootLast    : Page_t;
  -- A place is sought; an allocation is located.
  signal SeekStart    : std_logic;
  signal SeekAlone    : std_logic;
  signal SeekFits     : std_logic;
  signal SeekHere     : std_logic;
  signal SeekDone     : std_logic;
  signal SeekStatus   : AllocStatus_t;
  signal SeekIsNew    : std_logic;
  signal SeekRefuses  : std_logic;
  signal SeekGoes     : std_logic;
  signal SeekTo       : std_logic_vector(RootBits_g - 1 downto 0);
  signal SeekGets     : std_logic;
  signal SeekOpens    : std_logic;
  signal SeekFlushes  : std_logic;
  signal SeekZeroes   : std_logic;
  signal LacksFrames  : std_logic;
  signal IsRealloc    : std_logic;
  signal LocateStart   : std_logic;
  signal LocateHere    : std_logic;
  signal LocateRefuses : std_logic;
  signal LocateStatus  : AllocStatus_t;
  signal LocateLarge   : std_logic;
  signal LocateSmall   : std_logic;
  signal LocateLast    : std_logic_vector(WindowBits_c - 1 downto 0);
  signal LocateGoes    : std_logic;
  signal LocateTo      : std_logic_vector(RootBits_g - 1 downto 0);
  signal LocateOpens   : std_logic;
  -- The word of an allocation that is looked up comes.
  signal WordComes     : std_logic;

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

  signal TouchStart   : std_logic;
  signal TouchHere    : std_logic;
  signal TouchEnds    : std_logic;
  signal TouchFails   : std_logic;
  signal TouchZeroes  : std_logic;
  signal TouchGives   : std_logic;
  signal TouchGets    : std_logic;
  signal TouchWord    : TableWord_t;
  signal TouchMade    : std_logic;
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
  i_regions : entity work.alloc_regions
    generic map (
      RootBits_g   => RootBits_g,
      LeafBits_g   => LeafBits_g,
      PhysBits_g   => PhysBits_g,
      Maps_g       => Maps_c,
      ChunkBits_g  => ChunkBits_c,
      NumberBits_g => NumBits_c,
      RoomBits_g   => RoomBits_c,
      Memories_g   => Memories_c,
      Memory_g     => Memory_g
    )
    port map (
      Clk          => Clk,
      Rst          => Rst,
      Ready        => KeptReady,
      Uses         => Uses,
      Region       => std_logic_vector(r.Region),
      Rec          => r.Rec,
      Next_Region  => std_logic_vector(n.Region),
      Kept         => Kept,
      First        => std_logic_vector(PlaceFirst),
      Count        => std_logic_vector(PlaceCount),
      Is_New       => r.IsNew,
      Longest_It   => PlaceLongest,
      Place_Ready  => Parts.PlaceReady,
      Place_Ok     => Parts.PlaceOk,
      Place        => Place,
      Longest      => Longest,
      IsOpen       => IsOpen,
      Opened       => Opened,
      IsChanged    => MapChanged,
      Open_It      => MapOpen,
      Done         => MapDone,
      Failed       => MapFailed,
      Map_Read     => MapRead,
      Map_Write    => MapWrite,
      Map_Addr     => MapAddr,
      Map_Word     => MapWord,
      Read_Ready   => Parts.ReadReady,
      Write_Ready  => Parts.WriteReady,
      Quiet        => Parts.Quiet,
      Write_Failed => Parts.HasFailed,
      Data_Valid   => MapData,
      Data         => ReadWord,
      Data_Failed  => Axi_RResp(1),
      Room         => std_logic_vector(TreeRoom),
      Tree_Ready   => Parts.TreeReady,
      Tree_Ok      => Parts.TreeOk,
      Tree_Found   => TreeFound,
      More         => EmptyMore,
      Empty_Ready  => Parts.EmptyReady,
      Empty_Ok     => Parts.EmptyOk,
      Empty_Found  => EmptyFound
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
      Uses         => ReallocUses,
      Parts        => Parts,
      Start        => ReallocStart,
      What         => ReallocWhat,
      Pages        => std_logic_vector(r.Pages),
      Lazy         => r.Lazy,
      Page         => std_logic_vector(r.Page),
      Word         => r.Word,
      Rec          => r.Rec,
      New_Rec      => ReallocRec,
      Goes         => ReallocGoes,
      To_Region    => ReallocTo,
      New_Chunk    => TableChunk,
      New_Number   => TableNumber,
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
      Calls_Large  => ReallocCalls,
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
      Takes        => ReallocTakes,
      Frames_Free  => FramesFree,
      Put_Word     => ReallocWord,
      At           => ReallocAt,
      Has_Word     => HasWord,
      Unread       => r.Failed,
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
      Uses         => SweepUses,
      Parts        => Parts,
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
      Calls_Large  => SweepLarge,
      Large_What   => SweepWhat,
      Fails        => SweepFails,
      Rec          => r.Rec,
      Write        => SweepWrites,
      As_Use       => SweepUse,
      Frees        => SweepFrees,
      Shoots       => SweepShoots,
      Read_Valid   => SweepRead,
      Write_Valid  => SweepWrite,
      Within       => SweepWithin,
      Write_Mask   => SweepMask,
      Data_Valid   => Axi_RValid,
      Data         => Axi_RData,
      Data_Failed  => Axi_RResp(1),
      Few_Of       => FewOf,
      Few          => IsFew,
      Frame_Valid  => SweepGives,
      Frame_Memory => SweepMemory,
      Frame_Size   => SweepSize,
      Frame_First  => SweepFrame
    );

  SweepHere <= '1' when r.State = StateSweep else '0';

  i_frames : entity work.alloc_frames
    generic map (
      WindowBits_g => WindowBits_c,
      LeafBits_g   => LeafBits_g,
      PageBits_g   => PageBits_g,
      TableBits_g  => TableBits_c,
      FrameBits_g  => FrameBits_g,
      Fixed_g      => Fixed_c,
      Frames_g     => Frames_g,
      Memory_g     => Memory_g,
      Others_g     => Others_g,
      Chunks_g     => Chunks_c,
      ChunkBits_g  => ChunkBits_c,
      NumberBits_g => NumBits_c,
      RoomBits_g   => RoomBits_c,
      Ready_g      => Ready_g
    )
    port map (
      Clk          => Clk,
      Rst          => Rst,
      Rec          => r.Rec,
      Uses         => Uses,
      Words_First  => std_logic_vector(WordsFirst),
      Words_Count  => std_logic_vector(WordsCount),
      Words_Ends   => WordsEnds,
      Counted      => not r.IsLarge,
      Base         => WordsBase,
      Lazy         => WordsLazy,
      Words_Done   => Parts.WordsDone,
      Words_Failed => Parts.WordsFailed,
      Write_Valid  => WordsWrite,
      Write_Ready  => Parts.WriteReady,
      Write_Many   => WordsMany,
      Write_Run    => WordsRun,
      Within       => WordsWithin,
      Word         => WordsWord,
      Table_Ready  => Parts.TableReady,
      Table_Ok     => Parts.TableOk,
      Table_Zero   => Parts.TableZero,
      Table_Chunk  => TableChunk,
      Table_Number => TableNumber,
      Table_Wants  => TableWants,
      Large_Valid  => LargeFrame,
      Large_Give   => LargeReturns,
      Sweep_Valid  => SweepGives,
      Sweep_Memory => SweepMemory,
      Sweep_Size   => SweepSize,
      Sweep_First  => SweepFrame,
      Ready        => Parts.FrameReady,
      Given_Valid  => Parts.GivenValid,
      Given_Ok     => Parts.GivenOk,
      Given_First  => GivenFirst,
      Promised     => Promised,
      Promised_Of  => memoryOf(r.Word, Memories_c, Memory_g),
      Free_Of      => FreeOf,
      Free         => FramesFree,
      Has_Frame    => HasFrame,
      Few_Of       => FewOf,
      Few          => IsFew
    );

  -- That of the operation at hand.
  FreeOf     <= r.Memory when r.State = StateMalloc else
                r.Rec.Memory when r.State = StateTouch else memoryOf(r.Word, Memories_c, Memory_g);
  WordsFirst <= r.Page when r.Source /= SourceCommand else
                r.Region & unsigned(LargeFrom) when r.State = StateLarge else r.First;
  WordsCount <= unsigned(LargeCount) when r.State = StateLarge else r.Count;
  WordsEnds  <= LargeIsLast when r.State = StateLarge else '1';
  WordsBase  <= r.Word when r.Source = SourceCommand else TouchWord;
  WordsLazy  <= r.Lazy when r.Source = SourceCommand else '0';

  i_memory : entity work.alloc_memory
    generic map (
      PhysBits_g   => PhysBits_g,
      LeafBits_g   => LeafBits_g,
      FrameBits_g  => FrameBits_g,
      NumberBits_g => NumBits_c
    )
    port map (
      Clk          => Clk,
      Rst          => Rst,
      Number       => r.Rec.Number,
      Ask_Valid    => Uses.AskValid,
      Put_Valid    => Uses.PutValid,
      Put_Word     => PutWord,
      At           => std_logic_vector(PutAt),
      Zero_Valid   => Zeroing,
      Zero_Within  => std_logic_vector(r.Got(LeafBits_g - 1 downto 0)),
      Map_Read     => MapRead,
      Map_Write    => MapWrite,
      Map_Addr     => MapAddr,
      Map_Word     => MapWord,
      Sweep_Read   => SweepRead,
      Sweep_Write  => SweepWrite,
      Sweep_Within => SweepWithin,
      Sweep_Mask   => SweepMask,
      Words_Write  => WordsWrite,
      Words_Many   => WordsMany,
      Words_Run    => WordsRun,
      Words_Within => WordsWithin,
      Words_Word   => WordsWord,
      Move_Read    => MoveRead,
      Move_Number  => MoveNumber,
      Move_From    => MoveReadAt,
      Move_Write   => MoveWrite,
      Move_To      => MoveWriteAt,
      Move_Word    => MoveWord,
      Move_Many    => MoveMany,
      Move_Run     => MoveRun,
      Move_Mask    => MoveMask,
      Move_Lanes   => MoveLanes,
      Write_Ready  => Parts.WriteReady,
      Read_Ready   => Parts.ReadReady,
      Read_Word    => ReadWord,
      Quiet        => Parts.Quiet,
      Failed       => Parts.HasFailed,
      Axi_AwValid  => Axi_AwValid,
      Axi_AwReady  => Axi_AwReady,
      Axi_AwAddr   => Axi_AwAddr,
      Axi_WValid   => Axi_WValid,
      Axi_WReady   => Axi_WReady,
      Axi_WData    => Axi_WData,
      Axi_WStrb    => Axi_WStrb,
      Axi_BValid   => Axi_BValid,
      Axi_BReady   => Axi_BReady,
      Axi_BResp    => Axi_BResp,
      Axi_ArValid  => Axi_ArValid,
      Axi_ArReady  => Axi_ArReady,
      Axi_ArAddr   => Axi_ArAddr,
      Axi_RValid   => Axi_RValid,
      Axi_RData    => Axi_RData
    );

  Zeroing <= '1' when r.State = StateZero else '0';

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
      Uses        => LargeUses,
      Parts       => Parts,
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
      Empty_More  => LargeMore,
      Empty_Found => EmptyFound,
      Zero        => LargeZeroes,
      Frame_Valid => LargeFrame,
      Frame_Give  => LargeReturns,
      Frames_Free => FramesFree,
      Words_From  => LargeFrom,
      Words_Count => LargeCount,
      Root_Leads  => LargeLeads
    );

  RootOfLarge <= directoryWord(r.Rec.Number) when hasTable(r.Rec.Part) else
                 runWord(r.Rec, to_unsigned(0, LeafBits_g), FrameBits_g);

  LargeRst  <= Rst or r.Broken;
  LargeHere <= '1' when r.State = StateLarge else '0';
  LargePart <= Kept.Part;

  i_seek : entity work.alloc_seek
    generic map (
      RootBits_g => RootBits_g
    )
    port map (
      Clk          => Clk,
      Uses         => SeekUses,
      Parts        => Parts,
      Start        => SeekStart,
      Alone        => SeekAlone,
      Moves        => IsRealloc,
      Fits         => r.Fits,
      Opened       => Opened,
      Here         => SeekHere,
      Done         => SeekDone,
      Status       => SeekStatus,
      Is_New       => SeekIsNew,
      Refuses      => SeekRefuses,
      Goes         => SeekGoes,
      To_Region    => SeekTo,
      Gets_Table   => SeekGets,
      Opens        => SeekOpens,
      Flushes      => SeekFlushes,
      Zeroes       => SeekZeroes,
      Tree_Found   => TreeFound,
      Empty_Found  => EmptyFound,
      Map_Changed  => MapChanged,
      Lacks_Frames => LacksFrames
    );

  SeekHere    <= '1' when r.State = StateSeek else '0';
  LacksFrames <= '1' when r.Lazy = '0' and unsigned(FramesFree) < r.Needs else '0';

  i_locate : entity work.alloc_locate
    generic map (
      AddrBits_g   => AddrBits_g,
      PageBits_g   => PageBits_g,
      RootBits_g   => RootBits_g,
      LeafBits_g   => LeafBits_g,
      ChunkBits_g  => ChunkBits_c,
      NumberBits_g => NumBits_c,
      RoomBits_g   => RoomBits_c
    )
    port map (
      Clk         => Clk,
      Uses        => LocateUses,
      Parts       => Parts,
      Window_Base => Window_Base,
      Start       => LocateStart,
      Addr        => Cmd_Addr,
      Page        => std_logic_vector(r.Page),
      Resizes     => IsRealloc,
      IsZero      => r.IsZero,
      IsBeyond    => r.IsBeyond,
      IsDying     => r.IsDying,
      Here        => LocateHere,
      Refuses     => LocateRefuses,
      Status      => LocateStatus,
      Is_Large    => LocateLarge,
      Is_Small    => LocateSmall,
      Last        => LocateLast,
      Kept        => Kept,
      Rec         => r.Rec,
      Goes        => LocateGoes,
      To_Region   => LocateTo,
      Opens       => LocateOpens,
      Data_Valid  => WordComes,
      Data        => ReadWord,
      Has_Word    => HasWord,
      Word        => r.Word,
      Unread      => r.Failed
    );

  LocateHere <= '1' when r.State = StateLocate else '0';
  IsRealloc  <= '1' when r.What = AllocRealloc_c else '0';
  WordComes  <= r.Awaits and Axi_RValid;

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
      Uses           => TouchUses,
      Parts          => Parts,
      Ticket         => Ticket,
      Changed        => Uses.Changes,
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
      Rec            => r.Rec,
      Gets_Table     => TouchGets,
      IsBroken       => r.Broken,
      Data_Valid     => Axi_RValid,
      Data           => ReadWord,
      Data_Failed    => Axi_RResp(1),
      HasFrame       => HasFrame,
      Word           => TouchWord,
      Words_Word     => WordsWord,
      Made           => TouchMade
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
  Busy   <= '0' when r.State = StateIdle and r.MayPlace = '1' and r.Telling = '0' and SweepIsTold = '0'
                     and IsDrained = '0' and SweepGiving = '0' and (r.Held = '0' or SweepIsOver = '0') else '1';
  Broken <= r.Broken;

  Resp_Valid  <= r.RespValid;
  Resp_Status <= r.Status;
  Resp_Addr   <= Window_Base & std_logic_vector(r.RespPage) & std_logic_vector(to_unsigned(0, PageBits_g))
                 when r.Status = AllocOk_c and r.What /= AllocFree_c else (others => '0');

  Axi_RReady <= '1';

  Uses <= Own or SeekUses or LocateUses or TouchUses or SweepUses or ReallocUses or LargeUses;

  Root_Valid      <= Uses.RootValid;
  Parts.RootReady <= Root_Ready;

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

    -- The command's place is the first one of its region, whose words may still be written: what is free is known.
    impure function isFresh return boolean is
    begin
      return r.IsNew = '1' and r.Source = SourceCommand;
    end function;

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
      Own.PlaceValid  <= '1';
      Own.PlaceTake   <= '1';
      Own.RecordWrite <= '1';
      v.Rec.Used  := r.UsedMore;
    end procedure;

    -- A place is sought, in an empty region or where others are.
    procedure seek (alone : std_logic) is
    begin
      SeekStart <= '1';
      SeekAlone <= alone;
      v.State   := StateSeek;
      if SeekGoes = '1' then
        v.Region := unsigned(SeekTo);
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
      TreeRoom    <= (others => '0');
      ShootFirst  <= unsigned(FrontFirst);
      ShootLast   <= unsigned(FrontLast);
      if SweepUses.RecordLoad = '1' then
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
      PutWord    <= ReallocWord;
      PutAt      <= unsigned(ReallocAt);
      ShootFirst <= unsigned(ReallocTells);
      ShootLast  <= unsigned(ReallocTill);
      v.First    := unsigned(ReallocFirst);
      v.Count    := unsigned(ReallocCount);
      v.Page     := unsigned(ReallocLast);
      v.Needs    := unsigned(ReallocNeeds);
      if ReallocUses.AskValid = '1' and Parts.ReadReady = '1' then
        v.Awaits := '1';
      end if;
      v.Rec       := ReallocRec;
      Root_Word   <= RootOfLarge;
      if ReallocGoes = '1' then
        v.Region := unsigned(ReallocTo);
      end if;
      if ReallocTakes = '1' then
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
      elsif ReallocSeeks = '1' then
        if ReallocAlone = '1' then
          v.Fits := '1' when r.Room >= unsigned(ReallocCount) else '0';
        end if;
        seek(ReallocAlone);
      elsif ReallocCounts = '1' then
        v.Then_To := StateIdle;
        v.State   := StateCount;
      elsif ReallocAdds = '1' then
        v.State := StateWords;
      end if;
    end procedure;

    -- What is done with a region where a place is sought. Never two of these: none waits for another.
    procedure seeks is
    begin
      v.Then_To  := StateSeek;
      v.IsNew    := SeekIsNew;
      v.First    := r.Region & unsigned(Place);
      if SeekIsNew = '1' then
        v.First := r.Region & to_unsigned(0, LeafBits_g);
      end if;
      if SeekGoes = '1' then
        v.Region := unsigned(SeekTo);
      end if;
      if SeekGets = '1' then
        v.Rec.State  := RegionShared;
        v.Rec.Chunk  := TableChunk;
        v.Rec.Number := TableNumber;
        v.Rec.Used   := (others => '0');
      end if;
      if SeekOpens = '1' then
        v.State := StateOpen;
      end if;
      if SeekFlushes = '1' then
        v.State := StateFlushed;
      end if;
      if SeekZeroes = '1' then
        count(to_unsigned(LeafPages_c, Count_t'length));
        v.State := StateZero;
      end if;
      if SeekRefuses = '1' then
        refuse(AllocNoFrames_c);
      end if;
      if SeekDone = '1' then
        v.Sought := SeekStatus;
        if r.What = AllocRealloc_c then
          v.State := StateRealloc;
        elsif SeekStatus = AllocOk_c then
          v.State := StateClaim;
        else
          refuse(SeekStatus);
        end if;
      end if;
    end procedure;

    -- What is done with an allocation that is located.
    procedure locates is
    begin
      PutWord   <= r.Word;
      PutWord(ValidBit_c) <= '0';
      PutWord(FreedBit_c) <= '1';
      v.Then_To := StateLocate;
      if LocateUses.AskValid = '1' and Parts.ReadReady = '1' then
        v.Awaits := '1';
      end if;
      if LocateGoes = '1' then
        v.Region := unsigned(LocateTo);
      end if;
      if LocateRefuses = '1' then
        refuse(LocateStatus);
      elsif LocateOpens = '1' then
        v.State := StateOpen;
      elsif LocateSmall = '1' or LocateLarge = '1' then
        v.IsLarge := '0';
        v.Then_To := StateIdle;
        v.State   := StateMarked;
        if r.What /= AllocRealloc_c or LocateLarge = '1' then
          v.Page := unsigned(LocateLast);
        end if;
        if r.What = AllocRealloc_c and LocateLarge = '1' then
          v.Word := pageWord(Frame_t'(others => '0'), '1', Kept.Writable, Kept.Memory, 0);
          beginRealloc(ReallocLarge);
        elsif r.What = AllocRealloc_c then
          beginRealloc(ReallocResize);
        end if;
      end if;
    end procedure;

  begin
    v := r;

    Cmd_Ready   <= '0';
    Touch_Ready <= '0';
    Step_Done   <= '0';
    Own         <= NoUse_c;

    PlaceLongest <= '0';
    PlaceFirst   <= withinOf(r.First);
    PlaceCount   <= r.Count;
    MapOpen      <= '0';
    SweepStart   <= '0';
    LargeStart   <= '0';
    LargeWhat    <= LargeMake;
    TreeRoom     <= r.Count;
    SeekStart    <= '0';
    SeekAlone    <= '0';
    LocateStart  <= '0';
    ReallocStart <= '0';
    ReallocWhat  <= ReallocResize;
    ReallocOver  <= '0';
    PutWord      <= r.Word;
    PutAt        <= withinOf(r.Page);
    DyingAdd     <= '0';
    TouchStart   <= '0';
    MadeValid    <= '0';
    ShootCommand <= '0';
    ShootFirst   <= r.First;
    ShootLast    <= r.Page;
    Root_Index   <= std_logic_vector(r.Region);
    Root_Word    <= (others => '0');

    if Resp_Ready = '1' then
      v.RespValid := '0';
    end if;

    v.MayPlace := Parts.PlaceReady;
    v.IsDying  := IsDying;
    v.Resumes  := r.Held and (SweepIsOver or r.Broken);
    v.UsedMore := r.Rec.Used + r.Count;
    v.UsedLess := r.Rec.Used - r.Count;
    if WordComes = '1' then
      v.Awaits := '0';
      v.Word   := ReadWord;
      v.Failed := Axi_RResp(1);
    end if;

    case r.State is

      when StateInit =>
        if KeptReady = '1' and Parts.TreeReady = '1' and Parts.EmptyReady = '1' and Parts.TableReady = '1'
          and Parts.FrameReady = '1' then
          v.State := StateIdle;
        end if;
        Cmd_Ready <= not r.RespValid;
        if Cmd_Valid = '1' and r.RespValid = '0' then
          answer(AllocInitialising_c);
        end if;

      when StateIdle =>
        if GivesFirst = '1' then
          null;
        elsif SweepIsTold = '1' and r.MayPlace = '1' then
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
          and r.MayPlace = '1' and (DyingFull = '0' or r.Broken = '1') then
          Cmd_Ready  <= '1';
          v.Source   := SourceCommand;
          v.What     := Cmd_What;
          v.Bytes    := unsigned(Cmd_Bytes);
          v.Ends     := or Cmd_Bytes(PageBits_g - 1 downto 0);
          v.Memory   := Cmd_Memory;
          v.Writable := Cmd_Writable;
          v.Lazy     := Cmd_Lazy;
          v.Page     := unsigned(Cmd_Addr(PageBits_g + WindowBits_c - 1 downto PageBits_g));
          LocateStart <= '1';
          v.Then_To  := StateCheck;
          v.State    := StateCheck;
          if Trails = '1' and r.Broken = '0' then
            dropTrail;
          end if;
        elsif Pause = '0' and r.Broken = '0' and r.MayPlace = '1' then
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
        v.First    := r.Page;
        v.IsNew    := '0';
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
          seek('0');
        end if;

      when StateSeek =>
        seeks;

      when StateClaim =>
        takePlace;
        v.Page      := r.Region & (withinOf(r.First) + r.More);
        Own.WordsStart  <= '1';
        v.State     := StateWords;

      when StateWords =>
        if Parts.WordsDone = '1' then
          v.State := StateWritten;
          if Parts.WordsFailed = '1' then
            -- So many were free: the frame store has failed.
            breakDown;
          end if;
        end if;

      when StateWritten =>
        if Parts.Quiet = '1' then
          v.State := StateTell;
          if Parts.HasFailed = '1' then
            breakDown;
          elsif r.IsNew = '1' then
            v.State := StateLink;
          end if;
        end if;

      when StateLink =>
        Own.RootValid <= '1';
        Root_Word  <= directoryWord(r.Rec.Number);
        if Root_Ready = '1' then
          v.State := StateTell;
        end if;

      when StateTell =>
        -- The answer follows when that is taken.
        MadeValid  <= '1';
        Own.Changes    <= '1';
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
        v.Then_To   := StateLarge;
        if LargeLeads = '1' then
          Root_Word <= RootOfLarge;
        end if;
        if LargeGoes = '1' then
          v.Region := unsigned(LargeTo);
        end if;
        if LargeWrite = '1' then
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
            v.Rec.Memory   := memoryOf(r.Word, Memories_c, Memory_g);
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
        locates;

      when StateMarked =>
        if Parts.Quiet = '1' then
          v.State := StateIdle;
          if Parts.HasFailed = '1' then
            breakDown;
          else
            letDie;
            Own.Changes <= '1';
          end if;
        end if;

      when StateRealloc =>
        reallocs;

      -- ---- a first touch

      when StateTouch =>
        Root_Word   <= directoryWord(r.Rec.Number);
        MadeValid   <= TouchMade;
        ShootFirst  <= r.Page;
        if TouchGets = '1' then
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
          Own.MapFlush <= '1';
          v.State  := StateFlushed;
        else
          Own.TableValid <= '1';
          Own.TableAny   <= '1';
          v.State    := StateHouseTable;
        end if;

      when StateHouseTable =>
        v.Rec.Chunk  := TableChunk;
        v.Rec.Number := TableNumber;
        v.Then_To    := StateHouseZeroed;
        count(to_unsigned(LeafPages_c, Count_t'length));
        if Parts.TableReady = '1' then
          v.State := StateZero;
          if Parts.TableOk = '0' then
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
        Own.TableValid <= '1';
        Own.TableGive  <= '1';
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
          if Parts.HasFailed = '1' then
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
          if Parts.HasFailed = '1' then
            breakDown;
          end if;
        end if;

      when StateZero =>
        if Parts.WriteReady = '1' then
          v.Got   := r.Got + BeatWords_c;
          v.Words := r.Words - BeatWords_c;
          if r.Words = BeatWords_c then
            v.State := StateZeroed;
          end if;
        end if;

      when StateZeroed =>
        if Parts.Quiet = '1' then
          v.State := r.Then_To;
          if Parts.HasFailed = '1' then
            breakDown;
          end if;
        end if;

      when StateCount =>
        PlaceLongest <= '1';
        if isFresh then
          v.State := StateCounted;
        elsif Parts.PlaceReady = '1' then
          Own.PlaceValid <= '1';
          v.State    := StateCounted;
        end if;

      when StateCounted =>
        TreeRoom <= unsigned(Longest);
        if Parts.PlaceReady = '1' or isFresh then
          Own.TreeValid   <= '1';
          Own.RecordWrite <= '1';
          v.Rec.Room  := resize(unsigned(Longest), RoomBits_c);
          v.Room      := unsigned(Longest);
          v.State     := StateSettle;
        end if;

      when StateSettle =>
        if Parts.TreeReady = '1' and Parts.EmptyReady = '1' and Parts.TableReady = '1' then
          v.State := r.Then_To;
        end if;

    end case;

    if Uses.RecordLoad = '1' then
      v.Rec := Kept;
    end if;

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
