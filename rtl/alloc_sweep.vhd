-- The sweep: what no allocation has any more, oldest first, until its pages can be had again.
--
-- A step of it reads some words of a table, writes 0, and lets their frames go, or gives back the run of a region.
-- Behind the last one a region that nobody has any more is left, and the range is told of; when that is done its
-- places are free. It says what is done with the region where the allocator is, and calls parts of the allocator,
-- which comes back to it behind them. The order is that of the model crates/card/src/window/alloc/sweep.rs.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.alloc_pkg.all;
  use work.region_pkg.all;
  use work.window_pkg.all;

entity alloc_sweep is
  generic (
    RootBits_g   : positive;
    LeafBits_g   : positive;
    FrameBits_g  : positive;
    ChunkBits_g  : positive;
    NumberBits_g : positive;
    RoomBits_g   : positive;
    -- Words of a step, a power of two.
    Batch_g      : positive;
    -- Memories, and the number of the only one.
    Memories_g   : positive;
    Memory_g     : natural
  );
  port (
    Clk          : in    std_logic;
    Rst          : in    std_logic;
    -- What is done with parts of the allocator in this cycle, and what these answer.
    Uses         : out   Uses_t;
    Parts        : in    Parts_t;
    -- A range more, which is drained later (`dying_ranges`); whether pages are dying.
    Add          : in    std_logic;
    Add_First    : in    std_logic_vector(RootBits_g + LeafBits_g - 1 downto 0);
    Add_Last     : in    std_logic_vector(RootBits_g + LeafBits_g - 1 downto 0);
    Add_Large    : in    std_logic;
    Add_Moved    : in    std_logic;
    IsFull       : out   std_logic;
    Drained      : in    std_logic;
    Gate_Page    : in    std_logic_vector(RootBits_g + LeafBits_g - 1 downto 0);
    Gate_Closed  : out   std_logic;
    Page         : in    std_logic_vector(RootBits_g + LeafBits_g - 1 downto 0);
    IsDying      : out   std_logic;
    -- Nothing is dying.
    IsOver       : out   std_logic;
    -- The range in front.
    First        : out   std_logic_vector(RootBits_g + LeafBits_g - 1 downto 0);
    Last         : out   std_logic_vector(RootBits_g + LeafBits_g - 1 downto 0);
    -- Of a large allocation: the first region that it leaves.
    Leaves_From  : out   std_logic_vector(RootBits_g - 1 downto 0);
    Moved        : out   std_logic;
    Count        : out   std_logic_vector(LeafBits_g downto 0);
    -- There is a step to do, in that region, as was known a cycle earlier; or an invalidation is done, and what comes
    -- of it is what is done now.
    Waits        : out   std_logic;
    Region       : out   std_logic_vector(RootBits_g - 1 downto 0);
    Told         : in    std_logic;
    -- Memory has failed: nothing comes of that any more.
    IsBroken     : in    std_logic;
    IsTold       : out   std_logic;
    -- It is begun. The allocator is at it, and not at a part that is called.
    Start        : in    std_logic;
    Here         : in    std_logic;
    -- Frames are on their way back.
    Gives        : out   std_logic;
    -- It ends: behind a step, or not; a part follows it: the longest free row is counted, or the table goes back.
    Steps        : out   std_logic;
    Ends         : out   std_logic;
    Counts       : out   std_logic;
    Gives_Table  : out   std_logic;
    -- Parts that are called: the region is opened, unless it could not be read; regions of a large allocation.
    Opens        : out   std_logic;
    Unread       : in    std_logic;
    Calls_Large  : out   std_logic;
    Large_What   : out   LargeWork_t;
    -- What was written or read has failed.
    Fails        : out   std_logic;
    -- The region's record, with which First and Count are read; it is written, with another use or without these
    -- pages.
    Rec          : in    Region_Record_t(
      Chunk(ChunkBits_g - 1 downto 0), Number(NumberBits_g - 1 downto 0), Used(LeafBits_g downto 0),
      Room(RoomBits_g - 1 downto 0)
    );
    Write        : out   std_logic;
    As_Use       : out   RegionUse_t;
    -- Places of the open region are free.
    Frees        : out   std_logic;
    -- The range is told of.
    Shoots       : out   std_logic;
    -- Beats of the table, and frames that come back (`sweep_batch`)
    Read_Valid   : out   std_logic;
    Write_Valid  : out   std_logic;
    Within       : out   std_logic_vector(LeafBits_g - 1 downto 0);
    Write_Mask   : out   WordMask_t;
    Data_Valid   : in    std_logic;
    Data         : in    Beat_t;
    Data_Failed  : in    std_logic;
    Few_Of       : out   std_logic_vector(MemoryBits_c - 1 downto 0);
    Few          : in    std_logic;
    Frame_Valid  : out   std_logic;
    Frame_Memory : out   std_logic_vector(MemoryBits_c - 1 downto 0);
    Frame_Size   : out   std_logic_vector(SizeBits_c - 1 downto 0);
    Frame_First  : out   std_logic_vector(FrameBits_g - 1 downto 0)
  );
end entity;

architecture rtl of alloc_sweep is

  type State_t is (
    -- A step: words are read, zeroed, and their frames come back; or a region's run does.
    StateBegin,
    StatePart,
    StateWords,
    -- The region is left, or those of a large allocation.
    StateRegions,
    StateRetire,
    StateRetireRegion,
    StateRetireRoot,
    StateEnding,
    -- The invalidation is done.
    StateSwept,
    StateSweptRegion,
    StateFreePlaces,
    StateEmptied
  );

  type Registers_t is record
    State : State_t;
    -- Words of a step.
    Words : unsigned(LeafBits_g downto 0);
  end record;

  signal r           : Registers_t;
  signal n           : Registers_t;

  signal HasTold     : std_logic;

  signal BatchStart  : std_logic;
  signal BatchDone   : std_logic;
  signal BatchFailed : std_logic;
  signal BatchGives  : std_logic;

  signal Advance     : std_logic;
  signal ToNext      : std_logic;
  signal Finish      : std_logic;
  signal Drop        : std_logic;
  signal IsSweeping  : std_logic;
  signal FrontFirst  : std_logic_vector(RootBits_g + LeafBits_g - 1 downto 0);
  signal FrontLast   : std_logic_vector(RootBits_g + LeafBits_g - 1 downto 0);
  signal FrontLarge  : std_logic;
  -- It begins within a region, which its allocation keeps; the first that it leaves, or that it leaves none, a cycle
  -- later.
  signal IsWithin    : std_logic;
  signal LeavesNone  : std_logic;
  signal LeavesFrom  : std_logic_vector(RootBits_g - 1 downto 0);
  signal FrontMoved  : std_logic;
  signal FrontOver   : std_logic;
  signal FrontCount  : std_logic_vector(LeafBits_g downto 0);
  signal FrontAt     : std_logic_vector(RootBits_g + LeafBits_g - 1 downto 0);
  signal FrontLeft   : std_logic_vector(LeafBits_g downto 0);

  function regionOf (which : std_logic_vector) return std_logic_vector is
  begin
    return which(RootBits_g + LeafBits_g - 1 downto LeafBits_g);
  end function;

begin

  First  <= FrontFirst;
  Last   <= FrontLast;
  Moved  <= FrontMoved;
  IsTold <= HasTold and not IsBroken;
  Count  <= FrontCount;
  Gives  <= BatchGives;
  Region <= regionOf(FrontAt) when IsTold = '0' and FrontOver = '0' else
            LeavesFrom when FrontLarge = '1' else regionOf(FrontFirst);

  Leaves_From <= LeavesFrom;
  IsWithin    <= or FrontFirst(LeafBits_g - 1 downto 0);

  i_dying : entity work.dying_ranges
    generic map (
      PageBits_g => RootBits_g + LeafBits_g,
      LeafBits_g => LeafBits_g
    )
    port map (
      Clk         => Clk,
      Rst         => Rst,
      Add         => Add,
      Add_First   => Add_First,
      Add_Last    => Add_Last,
      Add_Large   => Add_Large,
      Add_Moved   => Add_Moved,
      IsFull      => IsFull,
      Drained     => Drained,
      IsSweeping  => IsSweeping,
      First       => FrontFirst,
      Last        => FrontLast,
      IsLarge     => FrontLarge,
      Moved       => FrontMoved,
      Count       => FrontCount,
      At          => FrontAt,
      IsOver      => FrontOver,
      Left        => FrontLeft,
      Advance     => Advance,
      By          => std_logic_vector(r.Words),
      To_Next     => ToNext,
      Finish      => Finish,
      Drop        => Drop,
      Gate_Page   => Gate_Page,
      Gate_Closed => Gate_Closed,
      Page        => Page,
      IsDying     => IsDying,
      IsNone      => IsOver
    );

  i_batch : entity work.sweep_batch
    generic map (
      LeafBits_g  => LeafBits_g,
      FrameBits_g => FrameBits_g,
      Batch_g     => Batch_g,
      Memories_g  => Memories_g,
      Memory_g    => Memory_g
    )
    port map (
      Clk          => Clk,
      Rst          => Rst,
      Start        => BatchStart,
      First        => FrontAt(LeafBits_g - 1 downto 0),
      Words        => std_logic_vector(r.Words),
      Moved        => FrontMoved,
      Done         => BatchDone,
      Failed       => BatchFailed,
      Gives        => BatchGives,
      Read_Valid   => Read_Valid,
      Read_Ready   => Parts.ReadReady,
      Write_Valid  => Write_Valid,
      Write_Ready  => Parts.WriteReady,
      Within       => Within,
      Write_Mask   => Write_Mask,
      Quiet        => Parts.Quiet,
      Write_Failed => Parts.HasFailed,
      Data_Valid   => Data_Valid,
      Data         => Data,
      Data_Failed  => Data_Failed,
      Few_Of       => Few_Of,
      Few          => Few,
      Frame_Valid  => Frame_Valid,
      Frame_Ready  => Parts.FrameReady,
      Frame_Memory => Frame_Memory,
      Frame_Size   => Frame_Size,
      Frame_First  => Frame_First,
      Given_Valid  => Parts.GivenValid
    );

  p_next : process (all) is
    variable v : Registers_t;

    procedure callLarge (what : LargeWork_t) is
    begin
      Calls_Large <= '1';
      Large_What <= what;
    end procedure;

    procedure does is
    begin
      case r.State is

        when StateBegin =>
          Uses.RecordLoad     <= '1';
          v.Words := to_unsigned(Batch_g, LeafBits_g + 1);
          if (or FrontLeft(LeafBits_g downto exponent(Batch_g))) = '0' then
            v.Words := unsigned(FrontLeft);
          end if;
          v.State := StatePart;

        when StatePart =>
          -- Words may be swept while frames of others come back.
          if FrontOver = '0' and (FrontLarge = '0' or hasTable(Rec.Part)) then
            BatchStart <= '1';
            v.State := StateWords;
          elsif BatchGives = '0' then
            v.State := StateRegions;
            if FrontOver = '0' then
              callLarge(LargeRun);
            elsif FrontLarge = '1' and LeavesNone = '0' then
              callLarge(LargeRetire);
            elsif FrontLarge = '1' then
              v.State := StateEnding;
            else
              v.State := StateRetire;
            end if;
          end if;

        when StateWords =>
          if BatchDone = '1' then
            Advance <= '1';
            ToNext  <= '1' when r.Words = unsigned(FrontLeft) else '0';
            Steps   <= '1';
            Fails   <= BatchFailed;
          end if;

        when StateRegions =>
          v.State := StateEnding;
          if FrontOver = '0' then
            Advance <= '1';
            Steps   <= '1';
          end if;

        when StateRetire =>
          v.State := StateEnding;
          if Rec.State = RegionShared and Rec.Used = unsigned(FrontCount) then
            Opens     <= '1';
            v.State := StateRetireRegion;
          end if;

        when StateRetireRegion =>
          v.State := StateEnding;
          if Unread = '0' then
            Uses.MapClose  <= '1';
            Uses.TreeValid <= '1';
            Write     <= '1';
            Uses.RecordWrite <= '1';
            v.State := StateRetireRoot;
          end if;

        when StateRetireRoot =>
          Uses.RootValid <= '1';
          if Parts.RootReady = '1' then
            v.State := StateEnding;
          end if;

        when StateEnding =>
          if Parts.TreeReady = '1' then
            Shoots <= '1';
            Finish <= '1';
            Steps  <= '1';
          end if;

        when StateSwept =>
          Uses.RecordLoad     <= '1';
          v.State := StateSweptRegion;

        when StateSweptRegion =>
          As_Use <= RegionEmpty;
          if FrontLarge = '1' then
            v.State := StateEmptied;
            if LeavesNone = '0' then
              callLarge(LargeEmpty);
            end if;
          elsif Rec.State = RegionRetiring then
            Write       <= '1';
            Uses.RecordWrite <= '1';
            Uses.EmptyValid <= '1';
            Uses.EmptyValue <= '1';
            Gives_Table <= '1';
            Drop        <= '1';
          else
            Opens     <= '1';
            v.State := StateFreePlaces;
          end if;

        when StateFreePlaces =>
          Drop   <= '1';
          Frees  <= not Unread;
          Uses.PlaceValid  <= not Unread;
          Uses.RecordWrite <= not Unread;
          Counts <= not Unread;
          Ends   <= Unread;

        when StateEmptied =>
          Drop <= '1';
          Ends <= '1';

      end case;
    end procedure;

  begin
    v := r;
    Steps       <= '0';
    Ends        <= '0';
    Counts      <= '0';
    Gives_Table <= '0';
    Opens       <= '0';
    Calls_Large <= '0';
    Large_What  <= LargeRun;
    Fails       <= '0';
    Write       <= '0';
    As_Use      <= RegionRetiring;
    Uses        <= NoUse_c;
    Frees       <= '0';
    Shoots      <= '0';
    BatchStart  <= '0';
    Advance     <= '0';
    ToNext      <= '1';
    Finish      <= '0';
    Drop        <= '0';

    -- Never both: what is done does not wait for what is begun.
    if Here = '1' then
      does;
    end if;
    if Start = '1' then
      v.State := StateSwept when IsTold = '1' else StateBegin;
    end if;
    n <= v;
  end process;

  p_registers : process (Clk) is
  begin
    if rising_edge(Clk) then
      r          <= n;
      Waits      <= IsSweeping;
      LeavesFrom <= std_logic_vector(unsigned(regionOf(FrontFirst)) + unsigned'("" & IsWithin));
      LeavesNone <= IsWithin when regionOf(FrontFirst) = regionOf(FrontLast) else '0';
      if Start = '1' then
        HasTold <= '0';
      end if;
      if Told = '1' then
        HasTold <= '1';
      end if;
      if Rst = '1' then
        HasTold <= '0';
      end if;
    end if;
  end process;

end architecture;
