-- Large allocations: the regions that one has for itself, one after the other.
--
-- It says what is done with the region where the allocator is: its record, its word of the root, its table or its run
-- of frames. A large allocation is made in passes over its regions: everything that they need is taken, and given
-- back if it is not enough; words of tables are written; when they are visible the root leads to them. One that gets
-- more pages does so with its last region and those behind it, if they are empty. Else other regions are taken, and
-- when its old ones are drained its tables and runs go there; so does the table of a small one that becomes large.
-- One that is freed is swept region by region, then its regions are left, and are empty when an invalidation is done.
-- What is done, and in which order, is as in the model crates/card/src/window/alloc/large.rs, realloc.rs and
-- sweep.rs.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.alloc_pkg.all;

entity large_regions is
  generic (
    RootBits_g  : positive;
    LeafBits_g  : positive;
    FrameBits_g : positive
  );
  port (
    Clk         : in    std_logic;
    -- Whatever was done is over: after a reset, or when memory has failed.
    Rst         : in    std_logic;
    -- What is done with parts of the allocator in this cycle, and what these answer.
    Uses        : out   Uses_t;
    Parts       : in    Parts_t;
    -- What is to be done. All that it is done with stands until it is done.
    Start       : in    std_logic;
    What        : in    LargeWork_t;
    -- Of what is made: its pages, as many as a region has or more, and whether it is lazy.
    Pages       : in    std_logic_vector(RootBits_g + LeafBits_g downto 0);
    Lazy        : in    std_logic;
    -- Of what gets more pages: whether it is a large one, its pages so far, its first region. The allocator is at its
    -- last region when that begins, and at the first one of its new place when it goes there.
    Of_Large    : in    std_logic;
    Had         : in    std_logic_vector(RootBits_g + LeafBits_g downto 0);
    Had_First   : in    std_logic_vector(RootBits_g - 1 downto 0);
    -- Of what is swept: its regions, and whether its frames stay in use.
    From        : in    std_logic_vector(RootBits_g - 1 downto 0);
    Till        : in    std_logic_vector(RootBits_g - 1 downto 0);
    Moved       : in    std_logic;
    -- For one cycle: it has ended. How, until another begins; the first region of the allocation, the first and the
    -- last of the pages that it got. It has to go elsewhere, for which so many frames are promised; the page before
    -- these has the mark of the last one in a table.
    Done        : out   std_logic;
    Status      : out   AllocStatus_t;
    To_First    : out   std_logic_vector(RootBits_g - 1 downto 0);
    First_Page  : out   std_logic_vector(RootBits_g + LeafBits_g - 1 downto 0);
    Last_Page   : out   std_logic_vector(RootBits_g + LeafBits_g - 1 downto 0);
    Moves       : out   std_logic;
    Needs       : out   std_logic_vector(FrameBits_g downto 0);
    Trails      : out   std_logic;
    -- The allocator is at a region, and nothing else is done there. It goes to another one, and has its record: Part
    -- is that of the record, in the cycle in which it is read.
    Here        : in    std_logic;
    Region      : in    std_logic_vector(RootBits_g - 1 downto 0);
    Goes        : out   std_logic;
    To_Region   : out   std_logic_vector(RootBits_g - 1 downto 0);
    Part        : in    RegionPart_t;
    -- The region's record is written: it becomes one of this allocation, what was taken becomes its own, or another
    -- use and another part.
    Write       : out   std_logic;
    Is_New      : out   std_logic;
    Takes       : out   std_logic;
    As_Use      : out   RegionUse_t;
    As_Part     : out   RegionPart_t;
    -- Pages of the allocation in the region; whether it is the first or the last one; regions behind the first one.
    Pages_In    : out   std_logic_vector(LeafBits_g downto 0);
    Is_First    : out   std_logic;
    Is_Last     : out   std_logic;
    Span        : out   std_logic_vector(RootBits_g - 1 downto 0);
    -- A row of so many more empty regions is looked for; the first one.
    Empty_More  : out   std_logic_vector(RootBits_g - 1 downto 0);
    Empty_Found : in    std_logic_vector(RootBits_g - 1 downto 0);
    -- All words of the table that was taken are written with 0.
    Zero        : out   std_logic;
    -- A run of frames of a whole region is taken, or given back.
    Frame_Valid : out   std_logic;
    Frame_Give  : out   std_logic;
    Frames_Free : in    std_logic_vector(FrameBits_g downto 0);
    -- Words of the region's pages that are written: so many from a place on.
    Words_From  : out   std_logic_vector(LeafBits_g - 1 downto 0);
    Words_Count : out   std_logic_vector(LeafBits_g downto 0);
    -- The region's word of the root leads to its part, or nowhere.
    Root_Leads  : out   std_logic
  );
end entity;

architecture rtl of large_regions is

  subtype Region_t is unsigned(RootBits_g - 1 downto 0);

  subtype Count_t is unsigned(LeafBits_g downto 0);

  subtype Pages_t is unsigned(RootBits_g + LeafBits_g downto 0);

  -- What is done with one region after the other.
  type Pass_t is (
    -- What they need is taken.
    PassPlan,
    -- They are empty no more, and words of their tables are written.
    PassWords,
    -- The root leads to them.
    PassRoots,
    -- Records of its last region of before, and of its first one, say what it has now.
    PassEnd,
    PassHead,
    -- What was taken is given back.
    PassUndo,
    -- The run of one of them is given back.
    PassRun,
    -- They are left, and empty.
    PassRetire,
    PassEmpty
  );

  type State_t is (
    StateIdle,
    -- Whether the regions behind it are empty, if it needs any.
    StateGrow,
    StateHere,
    StateHereFound,
    -- A row of empty regions is looked for.
    StateFind,
    StateFound,
    -- The page is known from which on it gets more.
    StateFit,
    StateFitted,
    -- A region gets a run; else any table, since all of its words are written; else, or where it is not whole, a
    -- table of zeroes.
    StateAt,
    StateTake,
    StateRun,
    StateAny,
    StateAnyTaken,
    StateTable,
    StateTaken,
    StateZeroed,
    StatePut,
    StateEnough,
    -- A region's record is read, and what the pass does is done.
    StateTurn,
    StateRead,
    StateSee,
    StateBegin,
    StateWords,
    StateRoot,
    StateGive,
    StateGiven,
    StateMark,
    StateNext,
    -- All words are visible.
    StateVisible,
    -- One that goes elsewhere: the parts of its regions do.
    StateFinish,
    StateFinishWords,
    StateMoveFrom,
    StateMoveRoot,
    StateMoveLeave,
    StateMoveAt,
    StateMoveKnown,
    StateMovePut,
    StateMoveNext,
    StateDone
  );

  type Registers_t is record
    State   : State_t;
    -- What was begun in the cycle before.
    Starts  : std_logic;
    Work    : LargeWork_t;
    Pass    : Pass_t;
    First   : Region_t;
    Last    : Region_t;
    -- It gets more pages: from this region on, and within it; in place, with regions more behind those it has, less
    -- one, where all ones means none; its last region so far.
    Grows   : std_logic;
    InPlace : std_logic;
    NewFrom : Region_t;
    From    : unsigned(LeafBits_g - 1 downto 0);
    More    : Region_t;
    HadLast : Region_t;
    -- The region with pages of before and new ones: one of before, and where the allocator is; it had a table, or has
    -- taken one. The region is the first one, whose table words will go to; new pages begin there, or before it.
    IsCut   : std_logic;
    IsShared : std_logic;
    HadTable : std_logic;
    GotTable : std_logic;
    IsHead  : std_logic;
    IsBegin : std_logic;
    Reached : std_logic;
    -- A region's part goes from one to the other.
    MoveFrom : Region_t;
    MoveTo   : Region_t;
    -- The region behind the one that is looked at, a cycle later.
    Following : Region_t;
    -- Regions behind the first one, and the last page's place in its region.
    Span    : Region_t;
    LastIn  : unsigned(LeafBits_g - 1 downto 0);
    -- All pages of the last one are of the allocation. The region is the last one, or all of its pages are, a cycle
    -- later; its pages, two.
    IsFull  : std_logic;
    IsLast  : std_logic;
    IsWhole : std_logic;
    PagesIn : Count_t;
    -- Of its pages those that it gets: where they begin, and how many; as late as PagesIn.
    FromIn  : unsigned(LeafBits_g - 1 downto 0);
    WordsIn : Count_t;
    Part    : RegionPart_t;
    -- All pages that it has in its last region. It has to go elsewhere.
    LastCount : Count_t;
    Moves     : std_logic;
    -- There was no run for a region; nothing comes back before all have something.
    NoRun   : std_logic;
    -- Frames that are needed for words.
    Needs   : Pages_t;
    Status  : AllocStatus_t;
  end record;

  signal r       : Registers_t;
  signal n       : Registers_t;

  -- Where a pass over all that is new begins.
  signal PassFrom : Region_t;

begin

  To_First   <= std_logic_vector(r.First);
  First_Page <= std_logic_vector(r.NewFrom & r.From);
  Moves      <= r.Moves;
  Needs      <= std_logic_vector(resize(r.Needs, FrameBits_g + 1));
  Trails     <= Of_Large and (r.HadTable or r.GotTable);
  Last_Page  <= std_logic_vector(r.Last & r.LastIn);
  Status     <= r.Status;
  Pages_In   <= std_logic_vector(r.PagesIn);
  Is_First   <= '1' when unsigned(Region) = r.First else '0';
  Is_Last    <= r.IsLast;
  Span       <= std_logic_vector(r.Span);

  Words_From  <= std_logic_vector(r.FromIn);
  Words_Count <= std_logic_vector(r.WordsIn);

  PassFrom <= r.NewFrom when r.InPlace = '1' else r.First;

  p_next : process (all) is
    variable v      : Registers_t;
    variable less_v : Pages_t;

    procedure goTo (to_where : Region_t) is
    begin
      Goes      <= '1';
      To_Region <= std_logic_vector(to_where);
    end procedure;

    procedure beginPass (pass : Pass_t; first_one : Region_t) is
    begin
      goTo(first_one);
      v.Pass  := pass;
      v.State := StateTurn;
    end procedure;

    -- It is not to be had: the regions up to this one give back what they have taken.
    procedure undo (last_one : Region_t) is
    begin
      beginPass(PassUndo, PassFrom);
      v.Status := AllocNoFrames_c;
      v.Last   := last_one;
    end procedure;

    procedure refuse (status_of : AllocStatus_t) is
    begin
      v.Status := status_of;
      v.State  := StateDone;
    end procedure;

    -- There is no table for this region.
    procedure noTable is
    begin
      if unsigned(Region) = PassFrom then
        refuse(AllocNoFrames_c);
      else
        undo(unsigned(Region) - 1);
      end if;
    end procedure;

    procedure beginWords is
    begin
      beginPass(PassWords, r.NewFrom);
      if Lazy = '1' then
        v.State := StateVisible;
      end if;
    end procedure;

    -- What is known of the allocation as it was, a cycle or two later.
    procedure compare is
    begin
      v.From   := unsigned(Had(LeafBits_g - 1 downto 0)) and (LeafBits_g - 1 downto 0 => r.Grows);
      v.IsCut  := or Had(LeafBits_g - 1 downto 0);
      v.NewFrom  := r.First + (unsigned(Had(RootBits_g + LeafBits_g - 1 downto LeafBits_g))
                             and (RootBits_g - 1 downto 0 => r.Grows));
      v.HadLast := r.NewFrom - unsigned'("" & not r.IsCut);
      v.More   := r.Span - unsigned(Had(RootBits_g + LeafBits_g - 1 downto LeafBits_g)) - unsigned'("" & r.IsCut);
      v.IsBegin  := '1' when unsigned(Region) = r.NewFrom else '0';
      v.IsShared := v.IsBegin and r.IsCut and Of_Large and r.Grows;
      v.IsHead   := r.Grows and not Of_Large;
      if unsigned(Region) /= r.First then
        v.IsHead := '0';
      end if;
    end procedure;

    -- Frames for the words of a table that it has or gets.
    procedure count is
    begin
      if Lazy = '0' and r.Reached = '1' and (hasTable(r.Part) or (r.IsShared = '1' and r.HadTable = '1')) then
        v.Needs := r.Needs + r.WordsIn;
      end if;
    end procedure;

  begin
    v      := r;
    less_v := unsigned(Pages) - 1;

    v.Following := unsigned(Region) + 1;
    v.IsFull  := and r.LastIn;
    v.IsLast  := '1' when unsigned(Region) = r.Last else '0';
    v.IsWhole := not v.IsLast or r.IsFull;
    v.Starts  := Start;
    v.Work    := What;
    v.LastCount := ('0' & r.LastIn) + 1;
    v.PagesIn := to_unsigned(2 ** LeafBits_g, Count_t'length);
    if r.IsLast = '1' then
      v.PagesIn := r.LastCount;
    end if;
    v.FromIn := (others => '0');
    if r.IsBegin = '1' then
      v.FromIn := r.From;
    end if;
    v.WordsIn := v.PagesIn - v.FromIn;
    compare;

    Done        <= '0';
    Goes        <= '0';
    To_Region   <= std_logic_vector(r.Following);
    Write       <= '0';
    Is_New      <= '0';
    Takes       <= '0';
    As_Use      <= RegionLarge;
    As_Part     <= r.Part;
    Uses        <= NoUse_c;
    Empty_More  <= std_logic_vector(r.Span);
    Zero        <= '0';
    Frame_Valid <= '0';
    Frame_Give  <= '0';
    Root_Leads  <= '0';

    case r.State is

      when StateIdle =>
        v.Span   := less_v(RootBits_g + LeafBits_g - 1 downto LeafBits_g);
        v.LastIn := less_v(LeafBits_g - 1 downto 0);
        if r.Starts = '1' then
          v.Needs   := (others => '0');
          v.NoRun   := '0';
          v.Status  := AllocOk_c;
          v.Moves   := '0';
          v.Grows   := '0';
          v.InPlace := '0';
          v.Reached := '1';
          v.Last    := unsigned(Till);
          case r.Work is
            when LargeMake =>
              v.State := StateFind;
            when LargeGrow =>
              v.First    := unsigned(Had_First);
              v.Grows    := '1';
              v.InPlace  := Of_Large;
              v.HadTable := '1' when hasTable(Part) else '0';
              v.GotTable := '0';
              v.State    := StateGrow;
            when LargeFinish =>
              v.First := unsigned(Region);
              v.Grows := '1';
              v.State := StateFinish;
            when LargeRun =>
              beginPass(PassRun, unsigned(Region));
            when LargeRetire =>
              beginPass(PassRetire, unsigned(From));
            when LargeEmpty =>
              beginPass(PassEmpty, unsigned(From));
          end case;
        end if;

      -- ---- what gets more: whether it stays

      when StateGrow =>
        goTo(r.Following);
        v.State := StateHere;
        if Of_Large = '0' or (and Region) = '1' then
          v.InPlace := '0';
          v.State   := StateFind;
        end if;
        if Of_Large = '1' and (and r.More) = '1' then
          v.InPlace := '1';
          v.State   := StateFit;
        end if;

      when StateHere =>
        Uses.EmptyValid <= '1';
        Uses.EmptyFind  <= '1';
        Uses.EmptyHere  <= '1';
        Empty_More  <= std_logic_vector(r.More);
        v.State     := StateHereFound;

      when StateHereFound =>
        if Parts.EmptyReady = '1' then
          v.State := StateFit;
          if Parts.EmptyOk = '0' then
            v.InPlace := '0';
            v.State   := StateFind;
          end if;
        end if;

      -- ---- what is made: a plan first

      when StateFind =>
        Uses.EmptyValid <= '1';
        Uses.EmptyFind  <= '1';
        v.State     := StateFound;

      when StateFound =>
        v.First := unsigned(Empty_Found);
        v.Last  := unsigned(Empty_Found) + r.Span;
        v.Pass  := PassPlan;
        if Parts.EmptyReady = '1' then
          goTo(unsigned(Empty_Found));
          v.State := StateFit when r.Grows = '1' else StateAt;
          if Parts.EmptyOk = '0' then
            refuse(AllocNoSpace_c);
          end if;
        end if;

      when StateFit =>
        v.Last  := r.First + r.Span;
        v.State := StateFitted;

      when StateFitted =>
        v.Pass    := PassPlan;
        v.Reached := r.InPlace;
        goTo(PassFrom);
        v.State := StateAt;

      when StateAt =>
        -- Whether the region is the last one is known in the next cycle.
        v.Part  := PartNothing_c;
        v.Reached := r.Reached or v.IsBegin;
        v.State := StateTake;

      when StateTake =>
        Frame_Valid <= r.IsWhole and not Lazy and not r.NoRun and r.Reached and not r.IsHead and not r.IsShared;
        if r.IsHead = '1' then
          v.State := StateTable;
        elsif Lazy = '1' or r.Reached = '0' or (r.IsShared = '1' and r.HadTable = '1') then
          v.State := StatePut;
        elsif r.IsWhole = '0' or r.IsShared = '1' then
          v.State := StateTable;
        elsif r.NoRun = '1' then
          v.State := StateAny;
        elsif Parts.FrameReady = '1' then
          v.State := StateRun;
        end if;

      when StateRun =>
        v.Part := PartRun_c;
        if Parts.GivenValid = '1' then
          v.State := StatePut;
          if Parts.GivenOk = '0' then
            v.NoRun := '1';
            v.State := StateAny;
          end if;
        end if;

      when StateAny =>
        Uses.TableValid <= '1';
        Uses.TableAny   <= '1';
        v.State     := StateAnyTaken;

      when StateAnyTaken =>
        v.Part := PartTable_c;
        if Parts.TableReady = '1' then
          v.State := StatePut;
          if Parts.TableOk = '0' then
            v.State := StateTable;
          end if;
        end if;

      when StateTable =>
        Uses.TableValid <= '1';
        v.State     := StateTaken;

      when StateTaken =>
        v.Part := PartReady_c;
        if Parts.TableReady = '1' then
          v.State := StatePut;
          if Parts.TableOk = '0' then
            noTable;
          elsif Parts.TableZero = '0' then
            Zero    <= '1';
            v.State := StateZeroed;
          end if;
        end if;

      when StateZeroed =>
        if Here = '1' then
          v.State := StatePut;
        end if;

      when StatePut =>
        -- A region that it has keeps all else that is known of it, until it has more.
        if Parts.EmptyReady = '1' then
          Write  <= '1';
          Is_New <= '1';
          Takes  <= '1';
          Uses.EmptyValid <= '1';
          if r.IsShared = '1' and r.InPlace = '1' then
            Write  <= '1' when hasTable(r.Part) else '0';
            Is_New <= '0';
          end if;
          if r.IsShared = '1' then
            v.GotTable := '1' when hasTable(r.Part) else '0';
          end if;
          goTo(r.Following);
          count;
          v.State := StateAt;
          if r.IsLast = '1' then
            v.State := StateEnough;
          end if;
        end if;

      when StateEnough =>
        beginWords;
        if unsigned(Frames_Free) < r.Needs then
          undo(r.Last);
        elsif r.Grows = '1' and r.InPlace = '0' then
          v.Moves := '1';
          v.State := StateDone;
        end if;

      -- ---- a pass

      when StateTurn =>
        -- Its record may just have been written.
        v.State := StateRead;

      when StateRead =>
        Uses.RecordLoad   <= '1';
        v.Part  := Part;
        v.State := StateSee;

      when StateSee =>
        v.State := StateMark;
        case r.Pass is
          when PassPlan | PassEnd | PassHead =>
            null;
          when PassWords =>
            v.State := StateNext;
            if hasTable(r.Part) then
              v.State := StateBegin;
            end if;
          when PassRoots =>
            v.State := StateRoot;
            if r.Part = PartNothing_c then
              v.State := StateNext;
            end if;
          when PassUndo =>
            if r.IsShared = '1' and r.InPlace = '1' and r.GotTable = '0' then
              v.State := StateNext;
            elsif r.Part /= PartNothing_c then
              v.State := StateGive;
            end if;
          when PassRun =>
            v.State := StateRoot;
            if r.Part = PartNothing_c then
              v.State := StateDone;
            end if;
          when PassRetire =>
            if hasTable(r.Part) then
              v.State := StateRoot;
            end if;
          when PassEmpty =>
            if hasTable(r.Part) then
              v.State := StateGive;
            end if;
        end case;

      when StateBegin =>
        Uses.WordsStart <= '1';
        Uses.WordsGoOn  <= not Is_First or r.Grows;
        v.State     := StateWords;

      when StateWords =>
        if Parts.WordsDone = '1' then
          v.State := StateNext;
          if Parts.WordsFailed = '1' then
            -- So many were free: the frame store has failed.
            refuse(AllocBusError_c);
          end if;
        end if;

      when StateRoot =>
        Uses.RootValid <= '1';
        Root_Leads <= '1' when r.Pass = PassRoots or r.Pass = PassEnd else '0';
        if Parts.RootReady = '1' then
          v.State := StateMark;
          if r.Pass = PassRoots or r.Pass = PassEnd then
            v.State := StateNext;
          elsif r.Pass = PassRun and Moved = '0' then
            v.State := StateGive;
          end if;
        end if;

      when StateGive =>
        -- All words of a table that is left were written with 0.
        Uses.TableUsed <= '0' when r.Pass = PassEmpty or r.Part = PartReady_c else '1';
        if hasTable(r.Part) then
          Uses.TableValid <= '1';
          Uses.TableGive  <= '1';
          v.State     := StateGiven;
        else
          Frame_Valid <= '1';
          Frame_Give  <= '1';
          if Parts.FrameReady = '1' then
            v.State := StateGiven;
          end if;
        end if;

      when StateGiven =>
        if (hasTable(r.Part) and Parts.TableReady = '1') or (not hasTable(r.Part) and Parts.GivenValid = '1') then
          v.State := StateMark;
        end if;

      when StateMark =>
        v.State := StateNext;
        case r.Pass is
          when PassEnd | PassHead =>
            Write  <= '1';
            Is_New <= '1';
            if r.Pass = PassEnd and r.Part /= PartNothing_c then
              v.State := StateRoot;
            end if;
          when PassUndo =>
            Write <= '1';
            if r.IsShared = '1' and r.InPlace = '1' then
              As_Part <= PartNothing_c;
            else
              As_Use      <= RegionEmpty;
              Uses.EmptyValid <= '1';
              Uses.EmptyValue <= '1';
            end if;
          when PassRun =>
            Write   <= '1';
            As_Part <= PartNothing_c;
          when PassRetire =>
            Write  <= '1';
            As_Use <= RegionRetiring;
          when PassEmpty =>
            Write       <= '1';
            As_Use      <= RegionEmpty;
            Uses.EmptyValid <= '1';
            Uses.EmptyValue <= '1';
          when others =>
            null;
        end case;

      when StateNext =>
        if Parts.EmptyReady = '1' then
          if r.Pass = PassRun or r.Pass = PassHead then
            v.State := StateDone;
          elsif r.Pass = PassEnd then
            beginPass(PassHead, r.First);
          elsif r.IsLast = '0' then
            goTo(r.Following);
            v.State := StateRead;
          elsif r.Pass = PassWords then
            v.State := StateVisible;
          elsif r.Pass = PassRoots and r.InPlace = '1' then
            beginPass(PassEnd, r.HadLast);
          else
            v.State := StateDone;
          end if;
        end if;

      when StateVisible =>
        if Parts.Quiet = '1' then
          beginPass(PassRoots, PassFrom);
          if Parts.HasFailed = '1' then
            refuse(AllocBusError_c);
          end if;
        end if;

      -- ---- one that goes elsewhere: nobody uses the old regions any more, and the new ones have nothing

      when StateFinish =>
        v.Last  := r.First + r.Span;
        v.State := StateFinishWords;
        if Of_Large = '1' then
          goTo(unsigned(Had_First));
          v.MoveFrom := unsigned(Had_First);
          v.MoveTo   := r.First;
          v.State    := StateMoveFrom;
        end if;

      when StateFinishWords =>
        beginWords;

      when StateMoveFrom =>
        Uses.RecordLoad      <= '1';
        v.Part     := Part;
        v.MoveFrom := r.MoveFrom + 1;
        v.State    := StateMoveRoot;

      when StateMoveRoot =>
        Uses.RootValid <= '1' when r.Part /= PartNothing_c else '0';
        if r.Part = PartNothing_c then
          v.State := StateMoveNext;
        elsif Parts.RootReady = '1' then
          v.State := StateMoveLeave;
        end if;

      when StateMoveLeave =>
        Write   <= '1';
        As_Part <= PartNothing_c;
        goTo(r.MoveTo);
        v.State := StateMoveAt;

      when StateMoveAt =>
        -- How many of its pages are in the region is known two cycles later.
        v.State := StateMoveKnown;

      when StateMoveKnown =>
        v.State := StateMovePut;

      when StateMovePut =>
        Write   <= '1';
        Is_New  <= '1';
        v.State := StateMoveNext;

      when StateMoveNext =>
        v.MoveTo   := r.MoveTo + 1;
        goTo(r.MoveFrom);
        v.State := StateMoveFrom;
        if r.MoveTo = r.HadLast then
          beginWords;
        end if;

      when StateDone =>
        Done    <= '1';
        v.State := StateIdle;

    end case;

    Uses.RecordWrite <= Write;

    if Rst = '1' then
      v.State  := StateIdle;
      v.Starts := '0';
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
