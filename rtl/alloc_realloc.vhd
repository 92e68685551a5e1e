-- realloc: of an allocation more pages in place, or elsewhere, or fewer. Words move, never data.
--
-- It says what is done with the allocation that the allocator has found, and calls parts of the allocator: a place is
-- sought, words of new pages are written. One that goes elsewhere takes its new place, and lets the old one die; the
-- allocator comes back to it when that is drained, and other things may have happened meanwhile. Regions of one that
-- is large then are the matter of large_regions. The page that was the last of an allocation loses the mark later.
-- The order is that of the model crates/card/src/window/alloc/realloc.rs and shrink.rs.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.alloc_pkg.all;
  use work.region_pkg.all;
  use work.window_pkg.all;

entity alloc_realloc is
  generic (
    RootBits_g   : positive;
    LeafBits_g   : positive;
    FrameBits_g  : positive;
    ChunkBits_g  : positive;
    NumberBits_g : positive;
    RoomBits_g   : positive
  );
  port (
    Clk          : in    std_logic;
    Rst          : in    std_logic;
    -- What is done with parts of the allocator in this cycle, and what these answer.
    Uses         : out   Uses_t;
    Parts        : in    Parts_t;
    -- What is begun: an allocation, whose first page and word are Page and Word, gets so many Pages, where Rec is the
    -- record of its region; it is drained, and goes elsewhere; a page loses the mark. Of a large one Page is the last
    -- one, a cycle later, and Word has its rights.
    Start        : in    std_logic;
    What         : in    ReallocWork_t;
    Pages        : in    std_logic_vector(RootBits_g + LeafBits_g downto 0);
    Lazy         : in    std_logic;
    Page         : in    std_logic_vector(RootBits_g + LeafBits_g - 1 downto 0);
    Word         : in    TableWord_t;
    -- The record of the region where the allocator is; what it becomes; another region.
    Rec          : in    Region_Record_t(
      Chunk(ChunkBits_g - 1 downto 0), Number(NumberBits_g - 1 downto 0), Used(LeafBits_g downto 0),
      Room(RoomBits_g - 1 downto 0)
    );
    New_Rec      : out   Region_Record_t(
      Chunk(ChunkBits_g - 1 downto 0), Number(NumberBits_g - 1 downto 0), Used(LeafBits_g downto 0),
      Room(RoomBits_g - 1 downto 0)
    );
    Goes         : out   std_logic;
    To_Region    : out   std_logic_vector(RootBits_g - 1 downto 0);
    -- The table that was taken.
    New_Chunk    : in    std_logic_vector(ChunkBits_g - 1 downto 0);
    New_Number   : in    std_logic_vector(NumberBits_g - 1 downto 0);
    -- The allocator is at it, and not at a part that is called. Pages that are placed or written: their first one,
    -- how many, the last one, and how many of them need a frame, and what these become.
    Here         : in    std_logic;
    First        : in    std_logic_vector(RootBits_g + LeafBits_g - 1 downto 0);
    Count        : in    std_logic_vector(LeafBits_g downto 0);
    Needs        : in    std_logic_vector(RootBits_g + LeafBits_g downto 0);
    New_First    : out   std_logic_vector(RootBits_g + LeafBits_g - 1 downto 0);
    New_Count    : out   std_logic_vector(LeafBits_g downto 0);
    New_Last     : out   std_logic_vector(RootBits_g + LeafBits_g - 1 downto 0);
    New_Needs    : out   std_logic_vector(RootBits_g + LeafBits_g downto 0);
    -- It ends; its end is told of pages First to Last; it rests until what it waits for is over, which may be the
    -- sweep of what it was cut by; it is answered with a status; what was written or read has failed.
    Ends         : out   std_logic;
    Tells        : out   std_logic;
    Rests        : out   std_logic;
    Holds        : out   std_logic;
    Answers      : out   std_logic;
    Status       : out   AllocStatus_t;
    Fails        : out   std_logic;
    -- Parts: a place for Count pages is sought, in an empty region or else among others, and how that has ended.
    -- Words of these pages are written, and the answer follows. The region's longest free row is counted.
    Seeks        : out   std_logic;
    Alone        : out   std_logic;
    Sought       : in    AllocStatus_t;
    Adds         : out   std_logic;
    Counts       : out   std_logic;
    -- Regions of one that is large, or becomes that: what is begun with them, and what came of it (`large_regions`).
    -- The page is dying that the allocator has looked at for two cycles.
    Calls_Large  : out   std_logic;
    Large_What   : out   LargeWork_t;
    Large_Status : in    AllocStatus_t;
    Large_Moves  : in    std_logic;
    Large_To     : in    std_logic_vector(RootBits_g - 1 downto 0);
    Large_First  : in    std_logic_vector(RootBits_g + LeafBits_g - 1 downto 0);
    Large_Last   : in    std_logic_vector(RootBits_g + LeafBits_g - 1 downto 0);
    Large_Needs  : in    std_logic_vector(FrameBits_g downto 0);
    Large_Trails : in    std_logic;
    Of_Large     : out   std_logic;
    Had          : out   std_logic_vector(RootBits_g + LeafBits_g downto 0);
    Had_First    : out   std_logic_vector(RootBits_g - 1 downto 0);
    IsDying      : in    std_logic;
    -- Pages are taken: those from First on that are free in the open region, or those that were found.
    Takes        : out   std_logic;
    Frames_Free  : in    std_logic_vector(FrameBits_g downto 0);
    -- A word that is written, or read, and where; it has come, or could not be read.
    Put_Word     : out   TableWord_t;
    At           : out   std_logic_vector(LeafBits_g - 1 downto 0);
    Has_Word     : in    std_logic;
    Unread       : in    std_logic;
    -- Pages die from the one on, and some are told; they move elsewhere.
    Dies         : out   std_logic;
    Dies_First   : out   std_logic_vector(RootBits_g + LeafBits_g - 1 downto 0);
    Dies_Last    : out   std_logic_vector(RootBits_g + LeafBits_g - 1 downto 0);
    Tells_First  : out   std_logic_vector(RootBits_g + LeafBits_g - 1 downto 0);
    Moves        : out   std_logic;
    -- One is on its way elsewhere, until it is answered or memory has failed; frames are promised to it; its old
    -- place is drained. Where the allocation is.
    Drained      : in    std_logic;
    IsBroken     : in    std_logic;
    Over         : in    std_logic;
    IsMoving     : out   std_logic;
    Promised     : out   std_logic_vector(FrameBits_g downto 0);
    IsDrained    : out   std_logic;
    Is_At        : out   std_logic_vector(RootBits_g + LeafBits_g - 1 downto 0);
    -- A page that was the last of its allocation has the mark still.
    Trails       : out   std_logic;
    Trail        : out   std_logic_vector(RootBits_g + LeafBits_g - 1 downto 0);
    -- Words that move, or are cut (`move_words`), in the allocation's table of before, or those of a run
    -- (`split_run`)
    Move_Read    : out   std_logic;
    Read_Number  : out   std_logic_vector(NumberBits_g - 1 downto 0);
    Read_Within  : out   std_logic_vector(LeafBits_g - 1 downto 0);
    Data_Valid   : in    std_logic;
    Data         : in    Beat_t;
    Data_Failed  : in    std_logic;
    Move_Write   : out   std_logic;
    Write_Within : out   std_logic_vector(LeafBits_g - 1 downto 0);
    Write_Word   : out   TableWord_t;
    Write_Many   : out   std_logic;
    Write_Run    : out   std_logic;
    Write_Mask   : out   WordMask_t;
    Write_Lanes  : out   std_logic_vector(BeatWords_c * (LaneMarks_c + FrameBits_g) - 1 downto 0)
  );
end entity;

architecture rtl of alloc_realloc is

  constant PageBits_c : positive := RootBits_g + LeafBits_g;
  -- No run of frames goes beyond an aligned row of so many pages, as a power of two.
  constant Row_c      : positive := minimum(RunLong_c, LeafBits_g);

  subtype Page_t is unsigned(PageBits_c - 1 downto 0);

  subtype Within_t is unsigned(LeafBits_g - 1 downto 0);

  subtype Count_t is unsigned(LeafBits_g downto 0);

  type State_t is (
    -- More pages in place, or elsewhere.
    StateResize,
    StateResized,
    StateGrow,
    StateGrowHere,
    StateElsewhere,
    StateGrowCount,
    StateGrowClaim,
    StateSought,
    StateMove,
    StateMoveWords,
    StateMoved,
    StateAdd,
    StateAdded,
    -- More pages of one that is large, or becomes that.
    StateGrowLarge,
    StateGrowFrames,
    StateGrowRegions,
    StateFinishLarge,
    StateGrown,
    -- Fewer pages.
    StateCut,
    StateCutFrom,
    StateCutWords,
    StateCutMove,
    StateCutMoved,
    StateCutCount,
    StateCutSeen,
    -- Of a large allocation: what its last region has is cut, or gets a table, and records say so.
    StateLarge,
    StateLargeSize,
    StateLargeSized,
    StateShrink,
    StateShrinkPart,
    StateSplitAny,
    StateSplitTable,
    StateSplitTaken,
    StateSplit,
    StateSplitSeen,
    StateShrinkRecord,
    StateShrinkRoot,
    StateShrinkHead,
    StateShrinkLoad,
    StateShrinkSpan,
    StateShrinkDie,
    -- The page that was the last of its allocation loses the mark.
    StateTrail,
    StateTrailRead,
    StateTrailSeen,
    StateTrailWord,
    StateTrailed
  );

  type Registers_t is record
    State    : State_t;
    -- One that goes elsewhere is on its way, and its old place is drained. Frames that are promised to it.
    Moving   : std_logic;
    Drained  : std_logic;
    Promised : unsigned(FrameBits_g downto 0);
    -- The allocation: its table, its pages and the last one; it gets the same number, or fewer; its new place, or the
    -- last page that it keeps.
    OldTable : std_logic_vector(NumberBits_g - 1 downto 0);
    OldPage  : Page_t;
    OldCount : Count_t;
    -- Its pages, but for one, and all of them, one and two cycles later.
    OldMore  : Page_t;
    OldAll   : unsigned(PageBits_c downto 0);
    OldLast  : Page_t;
    OfLarge  : std_logic;
    IsSame   : std_logic;
    IsFewer  : std_logic;
    NewPage  : Page_t;
    -- Of a large one, that page is beyond the window. The one behind it, a cycle later; the first page that is told.
    IsBeyond : std_logic;
    Behind   : Page_t;
    Told     : Page_t;
    -- Frames for the new pages are more than there are; it is large then; they fit behind it in its region.
    NoFrames : std_logic;
    IsLarge  : std_logic;
    Fits     : std_logic;
    More     : Within_t;
    -- Of one that gets fewer pages, a cycle earlier: how many fewer; those from the beginning of the last one's row
    -- of 64. Those words that are read begin with its first one.
    Fewer    : Count_t;
    InRow    : unsigned(Row_c downto 0);
    Begins   : std_logic;
    -- A place in an empty region is sought, and why there was none.
    IsAlone  : std_logic;
    Why      : AllocStatus_t;
    -- A page that was the last of its allocation, and has the mark still.
    Trails   : std_logic;
    Trail    : Page_t;
  end record;

  signal r         : Registers_t;
  signal n         : Registers_t;

  signal ToLarge   : std_logic;
  signal MoveStart : std_logic;
  signal MoveFrom  : Page_t;
  signal MoveTo    : Page_t;
  signal MoveDone  : std_logic;
  signal MoveFails : std_logic;
  signal Shorter   : std_logic_vector(LeafBits_g downto 0);
  -- The first word's count of pages: that of a large allocation has none.
  signal Counted   : std_logic_vector(LeafBits_g downto 0);
  signal MoveValid : std_logic;
  signal MoveAt    : std_logic_vector(LeafBits_g - 1 downto 0);
  signal MoveWord  : TableWord_t;
  signal MoveMany  : std_logic;
  signal MoveMask  : WordMask_t;
  signal SplitStart : std_logic;
  signal SplitDone  : std_logic;
  signal SplitValid : std_logic;
  signal SplitAt   : std_logic_vector(LeafBits_g - 1 downto 0);
  signal SplitWord : TableWord_t;
  signal SplitMany : std_logic;

  function regionOf (which : Page_t) return unsigned is
  begin
    return which(PageBits_c - 1 downto LeafBits_g);
  end function;

  function withinOf (which : Page_t) return Within_t is
  begin
    return which(LeafBits_g - 1 downto 0);
  end function;

begin

  Of_Large    <= r.OfLarge;
  Had         <= std_logic_vector(r.OldAll);
  Had_First   <= std_logic_vector(regionOf(r.OldPage));
  IsMoving    <= r.Moving;
  IsDrained   <= r.Drained;
  Promised    <= std_logic_vector(r.Promised);
  Is_At       <= std_logic_vector(r.NewPage) when r.Moving = '1' else std_logic_vector(r.OldPage);
  Trails      <= r.Trails;
  Trail       <= std_logic_vector(r.Trail);
  Read_Number <= r.OldTable;
  Moves       <= not r.IsFewer;
  Dies_Last   <= std_logic_vector(r.OldLast);

  MoveFrom <= unsigned(First) when r.IsFewer = '1' else r.OldPage;
  MoveTo   <= unsigned(First) when r.IsFewer = '1' else r.NewPage;

  i_moves : entity work.move_words
    generic map (
      LeafBits_g  => LeafBits_g,
      FrameBits_g => FrameBits_g
    )
    port map (
      Clk          => Clk,
      Rst          => Rst,
      Start        => MoveStart,
      From         => std_logic_vector(withinOf(MoveFrom)),
      To_Place     => std_logic_vector(withinOf(MoveTo)),
      Count        => Count,
      Cut          => r.IsFewer,
      To_Large     => ToLarge,
      Begins       => r.Begins,
      Pages        => Counted,
      Base         => Word,
      Done         => MoveDone,
      Failed       => MoveFails,
      Shorter      => Shorter,
      Read_Valid   => Move_Read,
      Read_Ready   => Parts.ReadReady,
      Read_Within  => Read_Within,
      Data_Valid   => Data_Valid,
      Data         => Data,
      Data_Failed  => Data_Failed,
      Write_Valid  => MoveValid,
      Write_Ready  => Parts.WriteReady,
      Write_Within => MoveAt,
      Write_Word   => MoveWord,
      Write_Many   => MoveMany,
      Write_Mask   => MoveMask,
      Write_Lanes  => Write_Lanes
    );

  i_split : entity work.split_run
    generic map (
      LeafBits_g  => LeafBits_g,
      FrameBits_g => FrameBits_g
    )
    port map (
      Clk          => Clk,
      Rst          => Rst,
      Start        => SplitStart,
      Frame        => std_logic_vector(firstOfRun(Rec, FrameBits_g)),
      Last         => std_logic_vector(withinOf(r.NewPage)),
      Begins       => Rec.IsFirst,
      Writable     => Rec.Writable,
      Memory       => Rec.Memory,
      Done         => SplitDone,
      Write_Valid  => SplitValid,
      Write_Ready  => Parts.WriteReady,
      Write_Within => SplitAt,
      Write_Many   => SplitMany,
      Write_Word   => SplitWord
    );

  ToLarge <= r.IsLarge and not r.IsFewer;
  Counted <= std_logic_vector(to_unsigned(1, LeafBits_g + 1)) when r.IsLarge = '1' else Pages(LeafBits_g downto 0);

  Move_Write   <= MoveValid or SplitValid;
  Write_Within <= SplitAt when SplitValid = '1' else MoveAt;
  Write_Word   <= SplitWord when SplitValid = '1' else MoveWord;
  Write_Many   <= SplitMany when SplitValid = '1' else MoveMany;
  Write_Run    <= SplitValid;
  Write_Mask   <= (others => '1') when SplitValid = '1' else MoveMask;

  p_next : process (all) is
    variable v : Registers_t;

    procedure answer (as_status : AllocStatus_t) is
    begin
      Answers <= '1';
      Status  <= as_status;
    end procedure;

    procedure callLarge (what_then : LargeWork_t) is
    begin
      Calls_Large <= '1';
      Large_What <= what_then;
      v.State    := StateGrown;
    end procedure;

    -- Its new regions are its own, the gate to the old place is closed.
    procedure leaveForRegions is
    begin
      Dies       <= '1';
      Rests      <= '1';
      v.NewPage  := unsigned(Large_To) & to_unsigned(0, LeafBits_g);
      v.Moving   := '1';
      v.Promised := unsigned(Large_Needs);
    end procedure;

    -- Its new place is taken, the gate to the old one is closed.
    procedure leave is
    begin
      Takes     <= '1';
      Dies      <= '1';
      Counts    <= '1';
      v.NewPage := unsigned(First);
      v.Moving  := '1';
      if Lazy = '0' then
        v.Promised := resize(unsigned(Needs), FrameBits_g + 1);
      end if;
    end procedure;

    -- Words of more pages are written.
    procedure add is
    begin
      Adds            <= '1';
      Uses.WordsStart <= '1';
      Uses.WordsGoOn  <= '1';
    end procedure;

    procedure goTo (region : unsigned) is
    begin
      Goes      <= '1';
      To_Region <= std_logic_vector(region);
    end procedure;

    -- The region's run gives way to a table.
    procedure split is
    begin
      SplitStart     <= '1';
      New_Rec.Chunk  <= New_Chunk;
      New_Rec.Number <= New_Number;
      New_Rec.Part   <= PartTable_c;
      v.Told         := regionOf(r.NewPage) & to_unsigned(0, LeafBits_g);
      v.State        := StateSplit;
    end procedure;

    -- The first page whose word tells of a shorter run now, or the one behind the last that stays.
    impure function shortened return Page_t is
    begin
      return (regionOf(r.NewPage) & to_unsigned(0, LeafBits_g)) + unsigned(Shorter);
    end function;

    procedure does is
      variable last_v : unsigned(PageBits_c downto 0);
    begin
      case r.State is

        when StateResize =>
          New_Needs <= std_logic_vector(unsigned(Pages) - r.OldCount);
          v.IsSame  := '1' when unsigned(Pages) = r.OldCount else '0';
          v.IsFewer := '1' when unsigned(Pages) < r.OldCount else '0';
          v.IsLarge := or Pages(PageBits_c downto LeafBits_g);
          v.More    := resize(r.OldCount - unsigned(Pages(LeafBits_g downto 0)) - 1, LeafBits_g);
          v.State   := StateResized;

        when StateResized =>
          v.NoFrames := '1' when Lazy = '0' and unsigned(Frames_Free) < unsigned(Needs) else '0';
          New_Count  <= Needs(LeafBits_g downto 0);
          New_First  <= std_logic_vector(regionOf(r.OldLast) & (withinOf(r.OldLast) + 1));
          -- In its region there are so many behind it.
          v.Fits     := '1' when unsigned(Needs) <= resize(not withinOf(r.OldLast), PageBits_c + 1) else '0';
          v.NewPage  := regionOf(r.OldPage) & (withinOf(r.OldLast) - r.More - 1);
          v.State    := StateGrow;
          if r.IsSame = '1' then
            answer(AllocOk_c);
          elsif r.IsFewer = '1' then
            v.State := StateCut;
          end if;

        when StateGrow =>
          v.More  := r.OldCount(LeafBits_g - 1 downto 0) - 1;
          v.Trail := r.OldLast;
          if r.NoFrames = '1' then
            answer(AllocNoFrames_c);
          elsif r.Fits = '1' then
            Uses.PlaceValid <= '1';
            Uses.PlaceFind  <= '1';
            Uses.PlaceHere  <= '1';
            v.State   := StateGrowHere;
          else
            v.State   := StateElsewhere;
          end if;

        when StateGrowHere =>
          if Parts.PlaceReady = '1' then
            v.State := StateGrowCount;
            if Parts.PlaceOk = '0' then
              v.State := StateElsewhere;
            end if;
          end if;

        when StateElsewhere =>
          -- There is no place behind its pages. What has grown will grow: it goes to an empty region, if there is one.
          New_Count <= Pages(LeafBits_g downto 0);
          Seeks     <= not r.IsLarge;
          Alone     <= '1';
          v.IsAlone := '1';
          v.State   := StateSought;
          if r.IsLarge = '1' then
            callLarge(LargeGrow);
          end if;

        when StateGrowCount =>
          Uses.PutValid <= '1';
          if Parts.WriteReady = '1' then
            v.State := StateGrowClaim;
          end if;

        when StateGrowClaim =>
          Takes    <= '1';
          New_Last <= std_logic_vector(
            regionOf(r.OldPage) & (withinOf(unsigned(First)) + unsigned(Count(LeafBits_g - 1 downto 0)) - 1)
          );
          v.Trails := '1' when r.More /= 0 else '0';
          add;

        when StateSought =>
          if Sought = AllocOk_c then
            leave;
          elsif r.IsAlone = '1' then
            Seeks     <= '1';
            v.IsAlone := '0';
            v.Why     := Sought;
          elsif Sought = AllocNoSpace_c then
            answer(r.Why);
          else
            answer(Sought);
          end if;

        when StateMove =>
          -- Nobody uses the old place any more.
          Uses.RecordLoad     <= '1';
          Fails     <= IsBroken;
          v.Drained := '0';
          New_Count <= std_logic_vector(r.OldCount);
          v.Begins  := '1';
          v.State   := StateMoveWords;
          if r.OfLarge = '1' then
            v.State := StateFinishLarge;
          end if;

        when StateMoveWords =>
          MoveStart <= '1';
          v.State   := StateMoved;

        when StateMoved =>
          if MoveDone = '1' then
            Fails   <= MoveFails;
            v.State := StateAdd;
            if r.IsLarge = '1' then
              v.State := StateFinishLarge;
            end if;
          end if;

        when StateAdd =>
          v.Promised := (others => '0');
          New_First  <= std_logic_vector(
            regionOf(r.NewPage) & (withinOf(r.NewPage) + r.OldCount(LeafBits_g - 1 downto 0))
          );
          New_Count  <= Needs(LeafBits_g downto 0);
          New_Last   <= std_logic_vector(
            regionOf(r.NewPage) & (withinOf(r.NewPage) + resize(unsigned(Pages) - 1, LeafBits_g))
          );
          v.State    := StateAdded;

        when StateAdded =>
          add;

        -- ---- more pages of one that is large then

        when StateGrowLarge =>
          New_Needs <= std_logic_vector(unsigned(Pages) - r.OldAll);
          v.State   := StateGrowFrames;

        when StateGrowFrames =>
          v.NoFrames := '1' when Lazy = '0' and unsigned(Frames_Free) < unsigned(Needs) else '0';
          v.State    := StateGrowRegions;

        when StateGrowRegions =>
          -- What it was cut by lies where it would grow to.
          if r.NoFrames = '1' then
            answer(AllocNoFrames_c);
          elsif IsDying = '1' then
            Rests <= '1';
            Holds <= '1';
          else
            callLarge(LargeGrow);
          end if;

        when StateFinishLarge =>
          v.Promised := (others => '0');
          callLarge(LargeFinish);

        when StateGrown =>
          New_First <= Large_First;
          New_Last  <= Large_Last;
          v.Trail   := unsigned(Large_First) - 1;
          if Large_Status = AllocBusError_c then
            Fails <= '1';
          elsif Large_Status /= AllocOk_c then
            answer(Large_Status);
          elsif Large_Moves = '1' then
            leaveForRegions;
          else
            v.Trails := Large_Trails;
            Tells    <= '1';
          end if;

        -- ---- fewer pages

        when StateCut =>
          New_First <= std_logic_vector(r.NewPage);
          New_First(Row_c - 1 downto 0) <= (others => '0');
          v.State   := StateCutFrom;

        when StateCutFrom =>
          v.Begins := '0';
          if unsigned(First) <= r.OldPage then
            New_First <= std_logic_vector(r.OldPage);
            v.Begins  := '1';
          end if;
          v.State := StateCutWords;

        when StateCutWords =>
          New_Count <= std_logic_vector(resize(r.InRow, LeafBits_g + 1));
          if r.Begins = '1' then
            New_Count <= Pages(LeafBits_g downto 0);
          end if;
          v.State := StateCutMove;

        when StateCutMove =>
          MoveStart <= '1';
          v.State   := StateCutMoved;

        when StateCutMoved =>
          if MoveDone = '1' then
            v.State := StateCutCount;
            if MoveFails = '1' then
              answer(AllocBusError_c);
            end if;
          end if;

        when StateCutCount =>
          -- That of the first word, unless it was among them.
          Uses.PutValid <= not r.Begins and not r.OfLarge;
          New_First <= std_logic_vector(regionOf(r.NewPage) & (withinOf(r.NewPage) + 1));
          New_Count <= std_logic_vector(r.Fewer);
          v.Told    := shortened;
          if Parts.WriteReady = '1' or r.Begins = '1' or r.OfLarge = '1' then
            v.State := StateCutSeen;
          end if;

        when StateCutSeen =>
          Dies_First  <= First;
          Tells_First <= std_logic_vector(r.Told);
          if Parts.Quiet = '1' then
            if Parts.HasFailed = '1' then
              Fails <= '1';
            elsif r.OfLarge = '1' then
              v.State := StateShrinkRecord;
            else
              Ends    <= '1';
              Dies    <= '1';
              Uses.Changes <= '1';
            end if;
          end if;

        -- ---- of a large allocation

        when StateLarge =>
          last_v     := ('0' & r.OldPage) + unsigned(Pages) - 1;
          v.NewPage  := last_v(PageBits_c - 1 downto 0);
          v.IsBeyond := last_v(PageBits_c);
          v.OldLast  := unsigned(Page);
          v.IsLarge  := '1';
          v.State    := StateLargeSize;

        when StateLargeSize =>
          v.IsSame  := '1' when r.NewPage = r.OldLast and r.IsBeyond = '0' else '0';
          v.IsFewer := '1' when r.NewPage < r.OldLast and r.IsBeyond = '0' else '0';
          v.State   := StateLargeSized;

        when StateLargeSized =>
          v.State  := StateGrowLarge;
          New_Last <= std_logic_vector(regionOf(r.OldLast) & (withinOf(r.OldLast) + 1));
          if r.IsSame = '1' then
            answer(AllocOk_c);
          elsif r.IsFewer = '1' then
            goTo(regionOf(r.NewPage));
            v.State := StateShrink;
          end if;

        when StateShrink =>
          Uses.RecordLoad   <= '1';
          v.State := StateShrinkPart;

        when StateShrinkPart =>
          v.OldTable := Rec.Number;
          v.Told     := r.Behind;
          v.State    := StateShrinkRecord;
          if hasTable(Rec.Part) then
            v.State := StateCut;
          elsif Rec.Part = PartRun_c and withinOf(r.NewPage) /= (LeafBits_g - 1 downto 0 => '1') then
            Uses.TableValid <= '1';
            Uses.TableAny   <= '1';
            v.State     := StateSplitAny;
          end if;

        when StateSplitAny =>
          if Parts.TableReady = '1' then
            v.State := StateSplitTable;
            if Parts.TableOk = '1' then
              split;
            end if;
          end if;

        when StateSplitTable =>
          Uses.TableValid <= '1';
          v.State     := StateSplitTaken;

        when StateSplitTaken =>
          if Parts.TableReady = '1' then
            if Parts.TableOk = '1' then
              split;
            else
              answer(AllocNoFrames_c);
            end if;
          end if;

        when StateSplit =>
          if SplitDone = '1' then
            v.State := StateSplitSeen;
          end if;

        when StateSplitSeen =>
          if Parts.Quiet = '1' then
            Fails   <= Parts.HasFailed;
            v.State := StateShrinkRecord;
          end if;

        when StateShrinkRecord =>
          Uses.RecordWrite   <= '1';
          New_Rec.Used   <= resize(withinOf(r.NewPage), LeafBits_g + 1) + 1;
          New_Rec.IsLast <= '1';
          v.State := StateShrinkRoot;

        when StateShrinkRoot =>
          -- A cycle at least, as that may be the record that is read next.
          Uses.RootValid <= '1' when Rec.Part /= PartNothing_c else '0';
          if Parts.RootReady = '1' or Rec.Part = PartNothing_c then
            v.State := StateShrinkHead;
          end if;

        when StateShrinkHead =>
          goTo(regionOf(r.OldPage));
          v.State := StateShrinkLoad;

        when StateShrinkLoad =>
          Uses.RecordLoad   <= '1';
          v.State := StateShrinkSpan;

        when StateShrinkSpan =>
          Uses.RecordWrite   <= '1';
          New_Rec.Room <= resize(regionOf(r.NewPage) - regionOf(r.OldPage), RoomBits_g);
          v.State := StateShrinkDie;

        when StateShrinkDie =>
          Dies_First  <= std_logic_vector(r.Behind);
          Tells_First <= std_logic_vector(r.Told);
          Dies        <= '1';
          Uses.Changes     <= '1';
          Ends        <= '1';

        -- ---- the mark of a page that was the last

        when StateTrail =>
          Uses.RecordLoad   <= '1';
          v.State := StateTrailRead;

        when StateTrailRead =>
          Uses.AskValid <= '1';
          At        <= std_logic_vector(withinOf(r.Trail));
          if Parts.ReadReady = '1' then
            v.State := StateTrailSeen;
          end if;

        when StateTrailSeen =>
          if Has_Word = '1' then
            v.State := StateTrailWord;
          end if;

        when StateTrailWord =>
          -- It means nothing to a walk: it stays if it cannot be read.
          At       <= std_logic_vector(withinOf(r.Trail));
          Put_Word <= Word;
          Put_Word(LastBit_c) <= '0';
          if Unread = '1' or Word(LastBit_c) = '0' then
            v.State := StateTrailed;
          else
            Uses.PutValid <= '1';
            if Parts.WriteReady = '1' then
              v.State := StateTrailed;
            end if;
          end if;

        when StateTrailed =>
          v.Trails := '0';
          if Parts.Quiet = '1' then
            Uses.Changes <= '1';
            Ends    <= '1';
            Fails   <= Parts.HasFailed;
          end if;

      end case;
    end procedure;

  begin
    v := r;

    New_First   <= First;
    New_Count   <= Count;
    New_Last    <= Page;
    New_Needs   <= Needs;
    Ends        <= '0';
    Tells       <= '0';
    Rests       <= '0';
    Holds       <= '0';
    Answers     <= '0';
    Status      <= AllocOk_c;
    Fails       <= '0';
    Seeks       <= '0';
    Alone       <= '0';
    Adds        <= '0';
    Counts      <= '0';
    Calls_Large <= '0';
    Large_What  <= LargeGrow;
    Uses        <= NoUse_c;
    Takes       <= '0';
    Put_Word    <= firstOf(Word, unsigned(Pages));
    At          <= std_logic_vector(withinOf(r.OldPage));
    Dies        <= '0';
    Dies_First  <= std_logic_vector(r.OldPage);
    Tells_First <= std_logic_vector(r.OldPage);
    MoveStart   <= '0';
    SplitStart  <= '0';
    New_Rec     <= Rec;
    Goes        <= '0';
    To_Region   <= std_logic_vector(regionOf(r.NewPage));

    v.Behind := r.NewPage + 1;
    v.OldMore := r.OldLast - r.OldPage;
    v.OldAll  := ('0' & r.OldMore) + 1;
    v.Fewer  := r.OldCount - unsigned(Pages(LeafBits_g downto 0));
    v.InRow  := ('0' & r.NewPage(Row_c - 1 downto 0)) + 1;

    -- Never both: what is done does not wait for what is begun.
    if Here = '1' then
      does;
    end if;
    if Start = '1' then
      case What is
        when ReallocResize =>
          v.OfLarge  := '0';
          v.OldTable := Rec.Number;
          v.OldPage  := unsigned(Page);
          v.OldLast  := regionOf(unsigned(Page)) & lastOf(withinOf(unsigned(Page)), Word);
          v.OldCount := morePages(Word, LeafBits_g) + 1;
          v.State    := StateResize;
        when ReallocLarge =>
          v.OfLarge := '1';
          v.OldPage := unsigned(Page);
          v.State   := StateLarge;
        when ReallocFinish =>
          v.State := StateMove;
        when ReallocTrail =>
          v.State := StateTrail;
      end case;
    end if;

    if Drained = '1' and r.Moving = '1' then
      v.Drained := '1';
    end if;
    if Over = '1' then
      v.Moving   := '0';
      v.Drained  := '0';
      v.Promised := (others => '0');
    end if;
    if Rst = '1' then
      v.Moving   := '0';
      v.Drained  := '0';
      v.Trails   := '0';
      v.Promised := (others => '0');
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
