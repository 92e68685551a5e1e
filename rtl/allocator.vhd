-- The allocator of the card's window: malloc and free of small allocations, eager and lazy, first touches, and
-- the sweep behind them; for a window of two levels, in one memory.
--
-- One operation at a time: what has to be done next when it is idle is, in this order, the end of the sweep's
-- invalidation, a first touch, a command, a step of the background. No operation waits for an invalidation, so
-- a touch is always answered. What it does to the tables, and in which order, is that of the model
-- crates/card/src/window/alloc; docs/rtl/allocator.md is the specification of both, and says what only the
-- model does.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.alloc_pkg.all;
  use work.bit_pkg.all;
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
    -- The number of that memory.
    Memory_g    : natural  := 0;
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
    -- Commands: malloc of Bytes, or free of Addr
    Cmd_Valid      : in    std_logic;
    Cmd_Ready      : out   std_logic;
    Cmd_Free       : in    std_logic;
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
    -- AXI4, single words of the tables
    Axi_AwValid    : out   std_logic;
    Axi_AwReady    : in    std_logic;
    Axi_AwAddr     : out   std_logic_vector(PhysBits_g - 1 downto 0);
    Axi_WValid     : out   std_logic;
    Axi_WReady     : in    std_logic;
    Axi_WData      : out   std_logic_vector(WordBits_c - 1 downto 0);
    Axi_BValid     : in    std_logic;
    Axi_BReady     : out   std_logic;
    Axi_BResp      : in    std_logic_vector(1 downto 0);
    Axi_ArValid    : out   std_logic;
    Axi_ArReady    : in    std_logic;
    Axi_ArAddr     : out   std_logic_vector(PhysBits_g - 1 downto 0);
    Axi_RValid     : in    std_logic;
    Axi_RReady     : out   std_logic;
    Axi_RData      : in    std_logic_vector(WordBits_c - 1 downto 0);
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
  constant MapBits_c    : positive := bitsOf(MapWords_c);
  constant Maps_c       : positive := 2 ** (RootBits_g + WordShift_c);
  constant MapBytes_c   : positive := MapWords_c * 2 ** WordShift_c;
  constant Fixed_c      : positive := (Maps_c + Regions_c * MapBytes_c + 2 ** PageBits_g - 1) / 2 ** PageBits_g;
  -- Tables of a chunk; every region has one, beside those that are ready.
  constant PerChunk_c   : positive := 2 ** (maximum(TableBits_c, PageBits_g) - TableBits_c);
  constant Chunks_c     : positive := (Regions_c + Ready_g + PerChunk_c - 1) / PerChunk_c;
  constant ChunkBits_c  : positive := bitsOf(Chunks_c);
  -- The number of a table has as many bits as the memory has tables, as powers of two.
  constant NumBits_c : positive := maximum(FrameBits_g + PageBits_g - TableBits_c, 1);
  constant Dying_c      : positive := 4;
  -- Words of a step of the sweep.
  constant Batch_c      : positive := minimum(512, LeafPages_c);

  subtype Page_t is unsigned(WindowBits_c - 1 downto 0);

  subtype Region_t is unsigned(RootBits_g - 1 downto 0);

  subtype Within_t is unsigned(LeafBits_g - 1 downto 0);

  -- Pages of a region, up to all of them.
  subtype Count_t is unsigned(LeafBits_g downto 0);

  subtype Frame_t is unsigned(FrameBits_g - 1 downto 0);

  subtype Addr_t is std_logic_vector(PhysBits_g - 1 downto 0);

  type Use_t is (RegionEmpty, RegionShared, RegionRetiring);

  -- Who has a region: with so many pages together, and the longest row of free ones.
  type Region_Record_t is record
    State  : Use_t;
    Chunk  : std_logic_vector(ChunkBits_c - 1 downto 0);
    Number : std_logic_vector(NumBits_c - 1 downto 0);
    Used   : Count_t;
    Room   : Count_t;
  end record;

  constant RecordBits_c : positive := 2 + ChunkBits_c + NumBits_c + 2 * (LeafBits_g + 1);

  subtype Kept_t is std_logic_vector(RecordBits_c - 1 downto 0);

  type Regions_t is array (0 to Regions_c - 1) of Kept_t;

  type Stage_t is (
    -- Its invalidation is not done.
    StageDraining,
    -- Nobody has a translation or gets one.
    StageSweeping,
    -- Its words are 0; walks of before may be under way.
    StageEnding
  );

  -- Pages that no allocation has any more.
  type Dying_t is record
    Stage : Stage_t;
    First : Page_t;
    Last  : Page_t;
    Count : Count_t;
    -- The next page to sweep; all are swept.
    At    : Page_t;
    Swept : std_logic;
  end record;

  type Dying_All_t is array (0 to Dying_c - 1) of Dying_t;

  subtype Slot_t is natural range 0 to Dying_c - 1;

  -- Of a word that is swept: it was not 0, it had a frame, and which.
  subtype Swept_t is std_logic_vector(FrameBits_g + 1 downto 0);

  type Batch_t is array (0 to Batch_c - 1) of Swept_t;

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
    StateRun,
    StateTake,
    StateTaken,
    StateWords,
    StateWritten,
    StateLink,
    StateTell,
    -- free: the allocation's first word is read, and marked.
    StateLocate,
    StateLocateRead,
    StateLocated,
    StateMark,
    StateMarked,
    -- A first touch.
    StateTouch,
    StateTouchKnown,
    StateTouchRead,
    StateTouchSeen,
    StateTouchWord,
    StateTouchTake,
    StateTouchTaken,
    StateTouchWrite,
    StateTouched,
    -- The sweep: words are read, zeroed, and their frames come back; then the region is left.
    StateSweep,
    StateSweepRead,
    StateSweepZero,
    StateSweepZeroed,
    StateSweepGive,
    StateSweepGiven,
    StateRetire,
    StateRetireRegion,
    StateRetireRoot,
    StateEnding,
    StateSwept,
    StateFreePlaces,
    -- What can wait: a table is made ready.
    StateHouse,
    StateHouseTable,
    StateHouseZeroed,
    StateStepped,
    -- Parts of several of these, after which Then_To follows: a table comes back, another region is opened
    -- (Else_To: it could not be read), the open one's bitmap is written, a table is zeroed, the longest row is
    -- counted anew.
    StateGiveTable,
    StateOpen,
    StateFlush,
    StateFlushed,
    StateOpenRead,
    StateOpened,
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
    Else_To  : State_t;
    Source   : Source_t;
    Broken   : std_logic;
    -- The command.
    Free     : std_logic;
    Bytes    : unsigned(63 downto 0);
    Memory   : std_logic_vector(MemoryBits_c - 1 downto 0);
    Writable : std_logic;
    Lazy     : std_logic;
    -- A malloc waits until its invalidation has been taken, a free until it is done.
    Telling  : std_logic;
    Draining : std_logic;
    -- Its pages; there are none, or more than there are.
    Pages    : unsigned(WindowBits_c downto 0);
    IsZero   : std_logic;
    IsBeyond : std_logic;
    -- The page that is looked at. An address is outside of the window, or dying, or within a page.
    Page     : Page_t;
    Outside  : std_logic;
    IsDying  : std_logic;
    IsBegin  : std_logic;
    -- The region of it, and its record.
    Region   : Region_t;
    Rec      : Region_Record_t;
    IsNew    : std_logic;
    -- Of an allocation: its first page and its pages.
    First    : Page_t;
    Count    : Count_t;
    Left     : Count_t;
    -- The run of frames that is written: its size, words that are left of it, the next frame.
    Size     : natural range 0 to RunLong_c;
    RunLeft  : Count_t;
    Frame    : Frame_t;
    Word     : TableWord_t;
    -- The open region; memory has its bitmap otherwise.
    IsOpen   : std_logic;
    Opened   : Region_t;
    Room     : Count_t;
    Changed  : std_logic;
    Opening  : std_logic;
    -- The page behind the last that got a frame, and the frame behind that one.
    HasHint  : std_logic;
    HintPage : unsigned(WindowBits_c downto 0);
    HintFrame : Frame_t;
    Dying    : Dying_All_t;
    Head     : Slot_t;
    Tail     : Slot_t;
    Held     : natural range 0 to Dying_c;
    -- The one that waits for the command's invalidation.
    Drains   : Slot_t;
    SweepDone : std_logic;
    -- Words that were asked for and words that came or went, of as many as Words.
    Asked    : Count_t;
    Got      : Count_t;
    Words    : Count_t;
    Failed   : std_logic;
    -- Answers.
    RespValid : std_logic;
    Status   : AllocStatus_t;
    RespPage : Page_t;
    FoundValid : std_logic;
    FoundStatus : Status_t;
    FoundWord  : TableWord_t;
    -- The touch would write; its walk has seen the page's word, and with which ticket.
    Writes   : std_logic;
    Seen     : std_logic;
    Ticket   : std_logic_vector(TicketBits_g - 1 downto 0);
  end record;

  function toKept (rec : Region_Record_t) return Kept_t is
  begin
    return std_logic_vector(to_unsigned(Use_t'pos(rec.State), 2)) & rec.Chunk & rec.Number
      & std_logic_vector(rec.Used) & std_logic_vector(rec.Room);
  end function;

  function toRecord (kept : Kept_t) return Region_Record_t is
    variable rec : Region_Record_t;
  begin
    rec.Room   := unsigned(kept(LeafBits_g downto 0));
    rec.Used   := unsigned(kept(2 * LeafBits_g + 1 downto LeafBits_g + 1));
    rec.Number := kept(NumBits_c + 2 * LeafBits_g + 1 downto 2 * LeafBits_g + 2);
    rec.Chunk  := kept(RecordBits_c - 3 downto NumBits_c + 2 * LeafBits_g + 2);
    case kept(RecordBits_c - 1 downto RecordBits_c - 2) is
      when "00" =>
        rec.State := RegionEmpty;
      when "01" =>
        rec.State := RegionShared;
      when others =>
        rec.State := RegionRetiring;
    end case;
    return rec;
  end function;

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

  -- Where a word of a region's bitmap lies.
  function mapAddr (region : Region_t; index : Count_t) return Addr_t is
    variable word_v : unsigned(PhysBits_g - 1 downto 0);
  begin
    word_v := resize(region, PhysBits_g);
    word_v := shift_left(word_v, exponent(MapWords_c)) or resize(index, PhysBits_g);
    return std_logic_vector(shift_left(word_v, WordShift_c) + Maps_c);
  end function;

  function following (slot : Slot_t) return Slot_t is
  begin
    return (slot + 1) mod Dying_c;
  end function;

  -- The frame that a word names.
  function frameOf (word : TableWord_t) return Frame_t is
  begin
    return unsigned(word(NumberLow_c + FrameBits_g - 1 downto NumberLow_c));
  end function;

  -- What a first word says: the allocation's pages, but for that one.
  function morePages (word : TableWord_t) return Count_t is
  begin
    return '0' & unsigned(word(PagesLow_c + LeafBits_g - 1 downto PagesLow_c));
  end function;

  -- Whether the pages of a first word go beyond its region.
  function isBeyond (page : Page_t; word : TableWord_t) return boolean is
    constant Last_c : Count_t := morePages(word) + withinOf(page);
  begin
    return Last_c(LeafBits_g) = '1'
      or unsigned(word(PagesLow_c + PagesBits_c - 1 downto PagesLow_c)) >= to_unsigned(LeafPages_c, PagesBits_c + 1);
  end function;

  signal r            : Registers_t;
  signal n            : Registers_t;

  signal Regions      : Regions_t;
  signal Kept         : Kept_t;
  signal RegionWrite  : std_logic;
  signal KeptWrite    : std_logic;
  signal KeptAt       : Region_t;
  signal KeptIn       : Kept_t;
  signal InitRegion   : unsigned(RootBits_g downto 0);

  signal Batch        : Batch_t;
  signal BatchWord    : Swept_t;
  signal BatchWrite   : std_logic;

  -- The open region's bitmap.
  signal PlaceValid   : std_logic;
  signal PlaceReady   : std_logic;
  signal PlaceFind    : std_logic;
  signal PlaceLongest : std_logic;
  signal PlaceTake    : std_logic;
  signal PlaceFirst   : Within_t;
  signal PlaceCount   : Count_t;
  signal PlaceOk      : std_logic;
  signal Place        : std_logic_vector(LeafBits_g - 1 downto 0);
  signal Longest      : std_logic_vector(LeafBits_g downto 0);
  signal MapIndex     : std_logic_vector(MapBits_c - 1 downto 0);
  signal MapWord      : RowWord_t;
  signal MapLoad      : std_logic;
  signal MapSwap      : std_logic;

  signal TreeValid    : std_logic;
  signal TreeReady    : std_logic;
  signal TreeFind     : std_logic;
  signal TreeRoom     : Count_t;
  signal TreeOk       : std_logic;
  signal TreeFound    : std_logic_vector(RootBits_g - 1 downto 0);

  signal EmptyValid   : std_logic;
  signal EmptyReady   : std_logic;
  signal EmptyFind    : std_logic;
  signal EmptyValue   : std_logic;
  signal EmptyOk      : std_logic;
  signal EmptyFound   : std_logic_vector(RootBits_g - 1 downto 0);

  signal TableValid   : std_logic;
  signal TableReady   : std_logic;
  signal TableGive    : std_logic;
  signal TableAny     : std_logic;
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
  signal FrameGive    : std_logic;
  signal FrameHinted  : std_logic;
  signal FrameSize    : natural range 0 to RunLong_c;
  signal FrameFirst   : Frame_t;
  signal StoreValid   : std_logic;
  signal StoreGive    : std_logic;
  signal StoreHinted  : std_logic;
  signal StoreSize    : std_logic_vector(SizeBits_c - 1 downto 0);
  signal StoreFirst   : std_logic_vector(FrameBits_g - 1 downto 0);
  signal GivenValid   : std_logic;
  signal GivenOk      : std_logic;
  signal GivenFirst   : std_logic_vector(FrameBits_g - 1 downto 0);
  signal FramesFree   : std_logic_vector(FrameBits_g downto 0);

  signal WriteValid   : std_logic;
  signal WriteReady   : std_logic;
  signal WriteAddr    : Addr_t;
  signal WriteWord    : TableWord_t;
  signal ReadValid    : std_logic;
  signal ReadReady    : std_logic;
  signal ReadAddr     : Addr_t;
  signal Quiet        : std_logic;
  signal HasFailed    : std_logic;

  signal MadeValid    : std_logic;
  signal ShootCommand : std_logic;
  signal ShootSweep   : std_logic;
  signal ShootFirst   : Page_t;
  signal ShootLast    : Page_t;
  -- Of a touch: what is kept of it, and whether the page is one of the last.
  signal Changed      : std_logic;
  signal Touched      : std_logic;
  signal TouchFind    : std_logic;
  signal TouchInfo    : std_logic_vector(FrameBits_g downto 0);
  signal TouchReady   : std_logic;
  signal TouchIsOld   : std_logic;
  signal IsTouched    : std_logic;
  signal FoundInfo    : std_logic_vector(FrameBits_g downto 0);

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
  KeptWrite <= RegionWrite or not InitRegion(RootBits_g);
  KeptAt    <= r.Region when InitRegion(RootBits_g) = '1' else InitRegion(RootBits_g - 1 downto 0);
  KeptIn    <= toKept(n.Rec) when InitRegion(RootBits_g) = '1' else (others => '0');

  p_regions : process (Clk) is
  begin
    if rising_edge(Clk) then
      if KeptWrite = '1' then
        Regions(to_integer(KeptAt)) <= KeptIn;
      end if;
      Kept <= Regions(to_integer(n.Region));
    end if;
  end process;

  p_batch : process (Clk) is
  begin
    if rising_edge(Clk) then
      if BatchWrite = '1' then
        Batch(to_integer(r.Got) mod Batch_c) <=
          (or Axi_RData) & '0' & Axi_RData(NumberLow_c + FrameBits_g - 1 downto NumberLow_c);
        if hasFrame(Axi_RData) then
          Batch(to_integer(r.Got) mod Batch_c)(FrameBits_g) <= '1';
        end if;
      end if;
    end if;
  end process;

  BatchWord <= Batch(to_integer(r.Got) mod Batch_c);

  i_places : entity work.place_row
    generic map (
      LeafBits_g => LeafBits_g,
      WordBits_g => MapBits_c
    )
    port map (
      Clk        => Clk,
      Rst        => Rst,
      Op_Valid   => PlaceValid,
      Op_Ready   => PlaceReady,
      Op_Find    => PlaceFind,
      Op_Longest => PlaceLongest,
      Op_Take    => PlaceTake,
      Op_First   => std_logic_vector(PlaceFirst),
      Op_Count   => std_logic_vector(PlaceCount),
      Ok         => PlaceOk,
      Place      => Place,
      Longest    => Longest,
      Word_Index => MapIndex,
      Word       => MapWord,
      Load_Valid => MapLoad,
      Load_Index => MapIndex,
      Load_Word  => Axi_RData,
      Swap       => MapSwap
    );

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
      Initial_g   => '1'
    )
    port map (
      Clk      => Clk,
      Rst      => Rst,
      Op_Valid => EmptyValid,
      Op_Ready => EmptyReady,
      Op_Find  => EmptyFind,
      Op_Index => std_logic_vector(r.Region),
      Op_Value => EmptyValue,
      Ok       => EmptyOk,
      Found    => EmptyFound
    );

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
      Op_Zero     => '1',
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

  -- Only one of the two asks at a time.
  StoreValid  <= FrameValid or ForTables;
  StoreGive   <= TablesGive when ForTables = '1' else FrameGive;
  StoreHinted <= FrameHinted and not ForTables;
  StoreSize   <= TablesSize when ForTables = '1' else std_logic_vector(to_unsigned(FrameSize, SizeBits_c));
  StoreFirst  <= TablesFirst when ForTables = '1' else std_logic_vector(FrameFirst);

  i_frames : entity work.frame_store
    generic map (
      FrameBits_g => FrameBits_g,
      Frames_g    => Frames_g
    )
    port map (
      Clk        => Clk,
      Rst        => Rst,
      Fixed      => std_logic_vector(to_unsigned(Fixed_c, FrameBits_g)),
      Promised   => (others => '0'),
      Free       => FramesFree,
      Op_Valid   => StoreValid,
      Op_Ready   => FrameReady,
      Op_Give    => StoreGive,
      Op_Size    => StoreSize,
      Op_HasHint => StoreHinted,
      Op_First   => StoreFirst,
      Resp_Valid => GivenValid,
      Resp_Ready => '1',
      Resp_Ok    => GivenOk,
      Resp_First => GivenFirst
    );

  i_barrier : entity work.barrier
    generic map (
      PhysBits_g => PhysBits_g
    )
    port map (
      Clk         => Clk,
      Rst         => Rst,
      Write_Valid => WriteValid,
      Write_Ready => WriteReady,
      Write_Addr  => WriteAddr,
      Write_Word  => WriteWord,
      Read_Valid  => ReadValid,
      Read_Ready  => ReadReady,
      Read_Addr   => ReadAddr,
      Quiet       => Quiet,
      Failed      => HasFailed,
      Axi_AwValid => Axi_AwValid,
      Axi_AwReady => Axi_AwReady,
      Axi_AwAddr  => Axi_AwAddr,
      Axi_WValid  => Axi_WValid,
      Axi_WReady  => Axi_WReady,
      Axi_WData   => Axi_WData,
      Axi_BValid  => Axi_BValid,
      Axi_BReady  => Axi_BReady,
      Axi_BResp   => Axi_BResp,
      Axi_ArValid => Axi_ArValid,
      Axi_ArReady => Axi_ArReady,
      Axi_ArAddr  => Axi_ArAddr,
      Axi_RValid  => Axi_RValid
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
      Sweep        => ShootSweep,
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

  i_touches : entity work.recent_touches
    generic map (
      PageBits_g   => WindowBits_c,
      InfoBits_g   => FrameBits_g + 1,
      TicketBits_g => TicketBits_g
    )
    port map (
      Clk        => Clk,
      Rst        => Rst,
      Ticket     => Ticket,
      Changed    => Changed,
      Touched    => Touched,
      Page       => std_logic_vector(r.Page),
      Info       => TouchInfo,
      Find       => TouchFind,
      Of_Ticket  => r.Ticket,
      Ready      => TouchReady,
      Is_Old     => TouchIsOld,
      Is_Touched => IsTouched,
      Found      => FoundInfo
    );

  TouchInfo <= r.Word(WritableBit_c) & std_logic_vector(frameOf(r.Word));

  ------------------------------------------------------------------------------------------------
  -- Ports
  ------------------------------------------------------------------------------------------------
  Busy   <= '0' when r.State = StateIdle and r.Telling = '0' and r.SweepDone = '0' else '1';
  Broken <= r.Broken;

  Resp_Valid  <= r.RespValid;
  Resp_Status <= r.Status;
  Resp_Addr   <= Window_Base & std_logic_vector(r.RespPage) & std_logic_vector(to_unsigned(0, PageBits_g))
                 when r.Status = AllocOk_c and r.Free = '0' else (others => '0');

  Found_Valid    <= r.FoundValid;
  Found_Status   <= r.FoundStatus;
  Found_Writable <= r.FoundWord(WritableBit_c);
  Found_Memory   <= r.FoundWord(MemoryLow_c + MemoryBits_c - 1 downto MemoryLow_c);
  Found_Size     <= r.FoundWord(SizeLow_c + SizeBits_c - 1 downto SizeLow_c);
  Found_Frame    <= std_logic_vector(frameOf(r.FoundWord));

  Axi_RReady <= '1';

  p_gate : process (all) is
  begin
    Gate_Closed <= '0';
    for i in r.Dying'range loop
      if (i + Dying_c - r.Head) mod Dying_c < r.Held and unsigned(Gate_Page) >= r.Dying(i).First
        and unsigned(Gate_Page) <= r.Dying(i).Last then
        Gate_Closed <= '1';
      end if;
    end loop;
  end process;

  ------------------------------------------------------------------------------------------------
  -- What comes next
  ------------------------------------------------------------------------------------------------
  p_next : process (all) is
    variable v      : Registers_t;
    variable front  : Dying_t;
    variable left_v : Page_t;
    variable run_v  : natural range 0 to RunLong_c;
    variable runs_v : boolean;

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

    procedure found (status : Status_t; word : TableWord_t) is
    begin
      v.FoundValid  := '1';
      v.FoundStatus := status;
      v.FoundWord   := word;
      if status = StatusOk_c and r.Writes = '1' and word(WritableBit_c) = '0' then
        v.FoundStatus := StatusReadOnly_c;
      end if;
      v.State := StateIdle;
    end procedure;

    -- A write has failed: nobody knows what lies in memory, and there is nothing more.
    procedure breakDown is
    begin
      v.Broken := '1';
      v.State  := StateIdle;
      case r.Source is
        when SourceCommand =>
          refuse(AllocBusError_c);
        when SourceTouch =>
          found(StatusBusError_c, r.Word);
        when SourceHouse =>
          null;
      end case;
    end procedure;

    -- Words are asked for, or written, from the first one on.
    procedure count (words : Count_t) is
    begin
      v.Asked  := (others => '0');
      v.Got    := (others => '0');
      v.Words  := words;
      v.Failed := '0';
    end procedure;

    procedure step is
    begin
      v.State := StateStepped;
    end procedure;

    -- A run of 2**size frames fits the page and those left.
    impure function fits (size : natural) return boolean is
    begin
      if size > LeafBits_g then
        return false;
      end if;
      for i in 0 to RunLong_c - 1 loop
        if i < size and r.Page(i) = '1' then
          return false;
        end if;
      end loop;
      return r.Left >= 2 ** size;
    end function;

    -- The next smaller run.
    function smaller (size : natural) return natural is
    begin
      if size = RunLong_c then
        return RunShort_c;
      end if;
      return 0;
    end function;

    impure function isDying (page : Page_t) return std_logic is
      variable dying_v : std_logic := '0';
    begin
      for i in r.Dying'range loop
        if (i + Dying_c - r.Head) mod Dying_c < r.Held and page >= r.Dying(i).First and page <= r.Dying(i).Last then
          dying_v := '1';
        end if;
      end loop;
      return dying_v;
    end function;

  begin
    v := r;
    front := r.Dying(r.Head);
    left_v := front.Last - front.At;

    Cmd_Ready   <= '0';
    Touch_Ready <= '0';
    Step_Done   <= '0';

    RegionWrite  <= '0';
    BatchWrite   <= '0';
    PlaceValid   <= '0';
    PlaceFind    <= '0';
    PlaceLongest <= '0';
    PlaceTake    <= '0';
    PlaceFirst   <= withinOf(r.First);
    PlaceCount   <= r.Count;
    MapIndex     <= std_logic_vector(resize(r.Got, MapBits_c));
    MapLoad      <= '0';
    MapSwap      <= '0';
    TreeValid    <= '0';
    TreeFind     <= '0';
    TreeRoom     <= r.Count;
    EmptyValid   <= '0';
    EmptyFind    <= '0';
    EmptyValue   <= '0';
    TableValid   <= '0';
    TableGive    <= '0';
    TableAny     <= '0';
    FrameValid   <= '0';
    FrameGive    <= '0';
    FrameHinted  <= '0';
    FrameSize    <= 0;
    FrameFirst   <= r.HintFrame;
    WriteValid   <= '0';
    WriteAddr    <= wordAddr(r.Rec.Number, withinOf(r.Page));
    WriteWord    <= r.Word;
    Changed      <= '0';
    Touched      <= '0';
    TouchFind    <= '0';
    ReadValid    <= '0';
    ReadAddr     <= wordAddr(r.Rec.Number, withinOf(r.Page));
    MadeValid    <= '0';
    ShootCommand <= '0';
    ShootSweep   <= '0';
    ShootFirst   <= r.First;
    ShootLast    <= r.Page;
    Root_Valid   <= '0';
    Root_Index   <= std_logic_vector(r.Region);
    Root_Word    <= (others => '0');

    if Resp_Ready = '1' then
      v.RespValid := '0';
    end if;
    if Found_Ready = '1' then
      v.FoundValid := '0';
    end if;

    case r.State is

      when StateInit =>
        if InitRegion(RootBits_g) = '1' and TreeReady = '1' and EmptyReady = '1' and TableReady = '1'
          and FrameReady = '1' then
          v.State := StateIdle;
        end if;
        Cmd_Ready <= not r.RespValid;
        if Cmd_Valid = '1' and r.RespValid = '0' then
          answer(AllocInitialising_c);
        end if;

      when StateIdle =>
        if r.SweepDone = '1' then
          v.Source    := SourceHouse;
          v.SweepDone := '0';
          v.Region    := regionOf(front.First);
          v.State     := StateSwept;
        elsif Touch_Valid = '1' and r.FoundValid = '0' then
          Touch_Ready <= '1';
          v.Source := SourceTouch;
          v.Page   := unsigned(Touch_Page);
          v.Writes := Touch_Write;
          v.Seen   := Touch_Seen;
          v.Word   := Touch_Word;
          v.Ticket := Touch_Ticket;
          v.Region := regionOf(v.Page);
          v.State  := StateTouch;
        elsif Cmd_Valid = '1' and r.RespValid = '0' and r.Telling = '0' and r.Draining = '0'
          and r.Held /= Dying_c then
          Cmd_Ready  <= '1';
          v.Source   := SourceCommand;
          v.Free     := Cmd_Free;
          v.Bytes    := unsigned(Cmd_Bytes);
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
          v.State    := StateCheck;
        elsif Pause = '0' and r.Broken = '0' then
          v.Source := SourceHouse;
          v.Region := regionOf(front.First);
          if r.Held /= 0 and front.Stage = StageSweeping then
            v.State := StateSweep;
          elsif r.Telling = '0' and r.Draining = '0' and (r.Changed = '1' or TableWants = '1') then
            v.State := StateHouse;
          end if;
        end if;

      when StateCheck =>
        v.Pages    := resize(shift_right(r.Bytes, PageBits_g), WindowBits_c + 1);
        if r.Bytes(PageBits_g - 1 downto 0) /= 0 then
          v.Pages := v.Pages + 1;
        end if;
        v.IsZero   := '1' when r.Bytes = 0 else '0';
        -- More pages than the window has, where one that is begun counts.
        v.IsBeyond := '0';
        if shift_right(r.Bytes, PageBits_g + WindowBits_c + 1) /= 0
          or (r.Bytes(PageBits_g + WindowBits_c) = '1' and r.Bytes(PageBits_g + WindowBits_c - 1 downto 0) /= 0) then
          v.IsBeyond := '1';
        end if;
        v.IsDying  := isDying(r.Page);
        v.Region   := regionOf(r.Page);
        v.State    := StateMalloc;
        if r.Free = '1' then
          v.State := StateLocate;
        end if;
        if r.Broken = '1' then
          refuse(AllocBusError_c);
        end if;

      -- ---- malloc

      when StateMalloc =>
        v.Count := resize(r.Pages, LeafBits_g + 1);
        v.State := StatePlace;
        if r.IsZero = '1' then
          refuse(AllocZeroSize_c);
        elsif r.IsBeyond = '1' then
          refuse(AllocTooLarge_c);
        elsif unsigned(r.Memory) /= Memory_g then
          refuse(AllocUnknownMemory_c);
        elsif r.Lazy = '0' and unsigned(FramesFree) < r.Pages then
          refuse(AllocNoFrames_c);
        elsif r.Pages >= LeafPages_c then
          -- Large ones are the model's alone.
          refuse(AllocNoSpace_c);
        end if;

      when StatePlace =>
        v.Then_To := StateFind;
        if r.IsOpen = '1' and r.Room >= r.Count then
          v.Region := r.Opened;
          v.State  := StateRegion;
        else
          TreeValid <= '1';
          TreeFind  <= '1';
          v.State   := StateTree;
        end if;

      when StateTree =>
        if TreeReady = '1' then
          v.Region := unsigned(TreeFound);
          v.State  := StateRegion;
          if TreeOk = '0' then
            v.State := StateEmpty;
          end if;
        end if;

      when StateRegion =>
        v.Rec   := toRecord(Kept);
        v.State := StateOpen;

      when StateFind =>
        PlaceValid <= '1';
        PlaceFind  <= '1';
        v.State    := StateFound;

      when StateFound =>
        v.IsNew := '0';
        v.First := r.Region & unsigned(Place);
        if PlaceReady = '1' then
          v.State := StateClaim;
          if PlaceOk = '0' then
            -- It has room, unless memory was changed by somebody else.
            refuse(AllocBadEntry_c);
          end if;
        end if;

      when StateEmpty =>
        EmptyValid <= '1';
        EmptyFind  <= '1';
        v.State    := StateEmptyFound;

      when StateEmptyFound =>
        v.Region  := unsigned(EmptyFound);
        v.Then_To := StateTable;
        v.Opening := '0';
        if EmptyReady = '1' then
          count(to_unsigned(MapWords_c, Count_t'length));
          v.State := StateTable;
          if EmptyOk = '0' then
            refuse(AllocNoSpace_c);
          elsif r.Changed = '1' then
            v.State := StateFlush;
          end if;
        end if;

      when StateTable =>
        TableValid <= '1';
        v.State    := StateTabled;

      when StateTabled =>
        v.Rec     := (RegionShared, TableChunk, TableNumber, (others => '0'), (others => '0'));
        v.Then_To := StateNew;
        count(to_unsigned(LeafPages_c, Count_t'length));
        if TableReady = '1' then
          v.State := StateNew;
          if TableOk = '0' then
            refuse(AllocNoFrames_c);
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
        v.IsOpen   := '1';
        v.Opened     := r.Region;
        v.IsNew    := '1';
        v.First    := r.Region & to_unsigned(0, LeafBits_g);
        v.State    := StateEnough;

      when StateEnough =>
        -- A table may have taken frames.
        if PlaceReady = '1' and EmptyReady = '1' then
          v.State := StateClaim;
          if r.Lazy = '0' and unsigned(FramesFree) < r.Count then
            TableValid <= '1';
            TableGive  <= '1';
            EmptyValid <= '1';
            EmptyValue <= '1';
            v.IsOpen   := '0';
            v.Changed  := '0';
            v.State    := StateAbandoned;
          end if;
        end if;

      when StateAbandoned =>
        if TableReady = '1' and EmptyReady = '1' then
          refuse(AllocNoFrames_c);
        end if;

      when StateClaim =>
        PlaceValid  <= '1';
        PlaceTake   <= '1';
        RegionWrite <= '1';
        v.Rec.Used  := r.Rec.Used + r.Count;
        v.Changed   := '1';
        v.Page      := r.First;
        v.Left      := r.Count;
        v.State     := StateRun;

      when StateRun =>
        v.Size := 0;
        for size in RunShort_c to RunLong_c loop
          if (size = RunShort_c or size = RunLong_c) and fits(size) then
            v.Size := size;
          end if;
        end loop;
        v.State := StateTake;
        if r.Lazy = '1' then
          v.Size    := 0;
          v.RunLeft := r.Left;
          v.State   := StateWords;
        end if;

      when StateTake =>
        FrameValid  <= '1';
        FrameSize   <= r.Size;
        FrameHinted <= r.HasHint when r.HintPage = resize(r.Page, WindowBits_c + 1) else '0';
        if FrameReady = '1' then
          v.State := StateTaken;
        end if;

      when StateTaken =>
        v.Frame   := unsigned(GivenFirst);
        v.RunLeft := shift_left(to_unsigned(1, Count_t'length), r.Size);
        if GivenValid = '1' then
          if GivenOk = '1' then
            v.HasHint   := '1';
            v.HintPage  := resize(r.Page, WindowBits_c + 1) + v.RunLeft;
            v.HintFrame := resize(v.Frame + v.RunLeft, FrameBits_g);
            v.State     := StateWords;
          elsif r.Size /= 0 then
            v.Size  := smaller(r.Size);
            v.State := StateTake;
          else
            -- So many were free: the frame store has failed.
            breakDown;
          end if;
        end if;

      when StateWords =>
        WriteValid <= '1';
        WriteWord  <= marked(pageWord(r.Frame, r.Lazy, r.Writable, r.Memory, r.Size), r.Page = r.First,
          r.Left = 1, r.Count);
        if WriteReady = '1' then
          v.Frame   := r.Frame + 1;
          v.Page    := r.Page + 1;
          v.Left    := r.Left - 1;
          v.RunLeft := r.RunLeft - 1;
          if r.Left = 1 then
            v.Page  := r.Page;
            v.State := StateWritten;
          elsif r.RunLeft = 1 then
            v.State := StateRun;
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

      -- ---- free

      when StateLocate =>
        v.Rec   := toRecord(Kept);
        v.State := StateLocateRead;
        if r.Outside = '1' or r.IsDying = '1' or v.Rec.State /= RegionShared then
          refuse(AllocNotAllocated_c);
        end if;

      when StateLocateRead =>
        ReadValid <= '1';
        if ReadReady = '1' then
          v.State := StateLocated;
        end if;

      when StateLocated =>
        v.Word   := Axi_RData;
        v.Failed := Axi_RResp(1);
        if Axi_RValid = '1' then
          v.State := StateMark;
        end if;

      when StateMark =>
        v.Count := morePages(r.Word) + 1;
        v.First := r.Page;
        -- The gate is closed from here on.
        v.Dying(r.Tail) := (StageDraining, r.Page, r.Page + morePages(r.Word), v.Count, r.Page, '0');
        WriteWord <= r.Word;
        WriteWord(ValidBit_c) <= '0';
        WriteWord(FreedBit_c) <= '1';
        if r.Failed = '1' then
          refuse(AllocBusError_c);
        elsif stateOf(r.Word) /= PageMapped and stateOf(r.Word) /= PageReserved then
          refuse(AllocNotAllocated_c);
        elsif r.IsBegin = '0' or r.Word(FirstBit_c) = '0' then
          refuse(AllocInside_c);
        elsif isBeyond(r.Page, r.Word) then
          refuse(AllocBadEntry_c);
        else
          WriteValid <= '1';
          if WriteReady = '1' then
            v.Drains := r.Tail;
            v.Tail   := following(r.Tail);
            v.Held   := r.Held + 1;
            v.State  := StateMarked;
          end if;
        end if;

      when StateMarked =>
        ShootFirst <= r.Dying(r.Drains).First;
        ShootLast  <= r.Dying(r.Drains).Last;
        if Quiet = '1' then
          v.State := StateIdle;
          if HasFailed = '1' then
            breakDown;
          else
            Changed      <= '1';
            ShootCommand <= '1';
            v.Draining   := '1';
          end if;
        end if;

      -- ---- a first touch

      when StateTouch =>
        v.Rec   := toRecord(Kept);
        v.State := StateTouchKnown;
        TouchFind <= '1';
        if r.Broken = '1' then
          found(StatusBusError_c, r.Word);
        elsif isDying(r.Page) = '1' or v.Rec.State /= RegionShared then
          found(StatusNotMapped_c, r.Word);
        end if;

      when StateTouchKnown =>
        -- What the walk has seen is the page's word, unless the page was touched meanwhile, or more has changed.
        if TouchReady = '1' then
          v.State := StateTouchWord;
          if TouchIsOld = '1' or (IsTouched = '0' and r.Seen = '0') then
            v.State := StateTouchRead;
          elsif IsTouched = '1' then
            v.Word := pageWord(unsigned(FoundInfo(FrameBits_g - 1 downto 0)), '0', FoundInfo(FrameBits_g),
              std_logic_vector(to_unsigned(Memory_g, MemoryBits_c)), 0);
          end if;
        end if;

      when StateTouchRead =>
        ReadValid <= '1';
        if ReadReady = '1' then
          v.State := StateTouchSeen;
        end if;

      when StateTouchSeen =>
        v.Word := Axi_RData;
        if Axi_RValid = '1' then
          v.State := StateTouchWord;
          if Axi_RResp(1) = '1' then
            found(StatusBusError_c, r.Word);
          end if;
        end if;

      when StateTouchWord =>
        if stateOf(r.Word) = PageMapped then
          found(StatusOk_c, r.Word);
        elsif stateOf(r.Word) /= PageReserved then
          found(StatusNotMapped_c, r.Word);
        elsif r.Writes = '1' and r.Word(WritableBit_c) = '0' then
          found(StatusReadOnly_c, r.Word);
        else
          v.State := StateTouchTake;
        end if;

      when StateTouchTake =>
        FrameValid  <= '1';
        FrameHinted <= r.HasHint when r.HintPage = resize(r.Page, WindowBits_c + 1) else '0';
        if FrameReady = '1' then
          v.State := StateTouchTaken;
        end if;

      when StateTouchTaken =>
        if GivenValid = '1' then
          v.State := StateTouchWrite;
          if GivenOk = '1' then
            v.HasHint   := '1';
            v.HintPage  := resize(r.Page, WindowBits_c + 1) + 1;
            v.HintFrame := unsigned(GivenFirst) + 1;
            v.Word(ValidBit_c)    := '1';
            v.Word(ReservedBit_c) := '0';
            v.Word(NumberLow_c + NumberBits_c - 1 downto NumberLow_c) :=
              std_logic_vector(resize(unsigned(GivenFirst), NumberBits_c));
          else
            found(StatusNoFrame_c, r.Word);
          end if;
        end if;

      when StateTouchWrite =>
        WriteValid <= '1';
        if WriteReady = '1' then
          v.State := StateTouched;
        end if;

      when StateTouched =>
        ShootFirst <= r.Page;
        if Quiet = '1' then
          if HasFailed = '1' then
            breakDown;
          else
            MadeValid <= '1';
            Touched   <= '1';
            found(StatusOk_c, r.Word);
          end if;
        end if;

      -- ---- the sweep

      when StateSweep =>
        v.Rec := toRecord(Kept);
        count(to_unsigned(Batch_c, Count_t'length));
        if left_v < Batch_c then
          v.Words := resize(left_v, Count_t'length) + 1;
        end if;
        v.Page  := front.At;
        v.State := StateSweepRead;
        if front.Swept = '1' then
          v.State := StateRetire;
        end if;

      when StateSweepRead =>
        ReadAddr <= wordAddr(r.Rec.Number, withinOf(r.Page) + r.Asked(LeafBits_g - 1 downto 0));
        if r.Asked /= r.Words then
          ReadValid <= '1';
          if ReadReady = '1' then
            v.Asked := r.Asked + 1;
          end if;
        end if;
        if Axi_RValid = '1' then
          BatchWrite <= '1';
          v.Got      := r.Got + 1;
          v.Failed   := r.Failed or Axi_RResp(1);
        end if;
        if r.Got = r.Words then
          v.Got   := (others => '0');
          v.State := StateSweepZero;
          if r.Failed = '1' then
            breakDown;
          end if;
        end if;

      when StateSweepZero =>
        WriteAddr <= wordAddr(r.Rec.Number, withinOf(r.Page) + r.Got(LeafBits_g - 1 downto 0));
        WriteWord <= (others => '0');
        WriteValid <= BatchWord(FrameBits_g + 1);
        if WriteReady = '1' or BatchWord(FrameBits_g + 1) = '0' then
          v.Got := r.Got + 1;
          if v.Got = r.Words then
            v.State := StateSweepZeroed;
          end if;
        end if;

      when StateSweepZeroed =>
        v.Got := (others => '0');
        if Quiet = '1' then
          v.State := StateSweepGive;
          if HasFailed = '1' then
            breakDown;
          end if;
        end if;

      when StateSweepGive =>
        -- One that was not in use, which no word says, is left alone.
        FrameValid <= BatchWord(FrameBits_g);
        FrameGive  <= '1';
        FrameFirst <= unsigned(BatchWord(FrameBits_g - 1 downto 0));
        if BatchWord(FrameBits_g) = '1' then
          if FrameReady = '1' then
            v.State := StateSweepGiven;
          end if;
        else
          v.Got := r.Got + 1;
        end if;
        if r.Got = r.Words then
          FrameValid <= '0';
          v.Got      := r.Got;
          v.Dying(r.Head).At := front.At + r.Words;
          if left_v < r.Words then
            v.Dying(r.Head).Swept := '1';
          end if;
          step;
        end if;

      when StateSweepGiven =>
        if GivenValid = '1' then
          v.Got   := r.Got + 1;
          v.State := StateSweepGive;
        end if;

      when StateRetire =>
        v.Then_To := StateRetireRegion;
        v.Else_To := StateEnding;
        v.State   := StateEnding;
        if r.Rec.State = RegionShared and r.Rec.Used = front.Count then
          v.State := StateOpen;
        end if;

      when StateRetireRegion =>
        -- It is the open one.
        v.IsOpen    := '0';
        v.Changed   := '0';
        v.Rec.State := RegionRetiring;
        v.Rec.Room  := (others => '0');
        RegionWrite <= '1';
        TreeValid   <= '1';
        TreeRoom    <= (others => '0');
        v.State     := StateRetireRoot;

      when StateRetireRoot =>
        Root_Valid <= '1';
        if Root_Ready = '1' then
          v.State := StateEnding;
        end if;

      when StateEnding =>
        ShootFirst <= front.First;
        ShootLast  <= front.Last;
        if TreeReady = '1' then
          ShootSweep <= '1';
          v.Dying(r.Head).Stage := StageEnding;
          step;
        end if;

      when StateSwept =>
        v.Rec     := toRecord(Kept);
        v.Then_To := StateFreePlaces;
        v.Else_To := StateIdle;
        v.First   := front.First;
        v.Count   := front.Count;
        v.Head    := following(r.Head);
        v.Held    := r.Held - 1;
        v.State   := StateOpen;
        if v.Rec.State = RegionRetiring then
          RegionWrite <= '1';
          v.Rec.State := RegionEmpty;
          EmptyValid  <= '1';
          EmptyValue  <= '1';
          v.Then_To   := StateIdle;
          v.State     := StateGiveTable;
        end if;

      when StateFreePlaces =>
        PlaceValid  <= '1';
        RegionWrite <= '1';
        v.Rec.Used  := r.Rec.Used - r.Count;
        v.Changed   := '1';
        v.Then_To   := StateIdle;
        v.State     := StateCount;

      -- ---- what can wait

      when StateHouse =>
        v.Opening := '0';
        v.Then_To := StateStepped;
        count(to_unsigned(MapWords_c, Count_t'length));
        if r.Changed = '1' then
          v.State := StateFlush;
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
        v.Opening := '1';
        count(to_unsigned(MapWords_c, Count_t'length));
        v.State   := StateOpenRead;
        if r.IsOpen = '1' and r.Opened = r.Region then
          v.State := r.Then_To;
        elsif r.Changed = '1' then
          v.State := StateFlush;
        end if;

      when StateFlush =>
        WriteValid <= '1';
        WriteAddr  <= mapAddr(r.Opened, r.Got);
        WriteWord  <= MapWord;
        if WriteReady = '1' then
          v.Got := r.Got + 1;
          if v.Got = r.Words then
            v.Got   := (others => '0');
            v.State := StateFlushed;
            if r.Opening = '1' then
              v.State := StateOpenRead;
            end if;
          end if;
        end if;

      when StateFlushed =>
        if Quiet = '1' then
          v.Changed := '0';
          v.State   := r.Then_To;
          if HasFailed = '1' then
            breakDown;
          end if;
        end if;

      when StateOpenRead =>
        ReadAddr <= mapAddr(r.Region, r.Asked);
        if r.Asked /= r.Words then
          ReadValid <= '1';
          if ReadReady = '1' then
            v.Asked := r.Asked + 1;
          end if;
        end if;
        if Axi_RValid = '1' then
          MapLoad  <= '1';
          v.Got    := r.Got + 1;
          v.Failed := r.Failed or Axi_RResp(1);
        end if;
        if r.Got = r.Words then
          v.State := StateOpened;
        end if;

      when StateOpened =>
        if Quiet = '1' then
          v.State := r.Then_To;
          if HasFailed = '1' then
            breakDown;
          elsif r.Failed = '1' then
            -- What was open stays so. A command is refused; places that were to be free stay in use.
            v.State := r.Else_To;
            if r.Source = SourceCommand then
              refuse(AllocBusError_c);
            end if;
          else
            MapSwap   <= '1';
            v.IsOpen  := '1';
            v.Opened    := r.Region;
            v.Room    := r.Rec.Room;
            v.Changed := '0';
          end if;
        end if;

      when StateZero =>
        WriteValid <= '1';
        WriteAddr  <= wordAddr(r.Rec.Number, r.Got(LeafBits_g - 1 downto 0));
        WriteWord  <= (others => '0');
        if WriteReady = '1' then
          v.Got := r.Got + 1;
          if v.Got = r.Words then
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
          v.Rec.Room  := unsigned(Longest);
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
    if r.Draining = '1' and CommandDone = '1' then
      v.Draining := '0';
      v.Dying(r.Drains).Stage := StageSweeping;
      answer(AllocOk_c);
    end if;
    if SweepDone = '1' then
      v.SweepDone := '1';
    end if;

    if Rst = '1' then
      v.State     := StateInit;
      v.Broken    := '0';
      v.Telling   := '0';
      v.Draining  := '0';
      v.IsOpen    := '0';
      v.Changed   := '0';
      v.HasHint   := '0';
      v.Head      := 0;
      v.Tail      := 0;
      v.Held      := 0;
      v.SweepDone := '0';
      v.RespValid := '0';
      v.FoundValid := '0';
    end if;
    n <= v;
  end process;

  p_registers : process (Clk) is
  begin
    if rising_edge(Clk) then
      r <= n;
      if InitRegion(RootBits_g) = '0' then
        InitRegion <= InitRegion + 1;
      end if;
      if Rst = '1' then
        InitRegion <= (others => '0');
      end if;
    end if;
  end process;

end architecture;
