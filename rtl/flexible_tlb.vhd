-- A TLB of few entries of flexible length: each is of a run of pages, of any number and anywhere, in as many
-- frames behind one another.
--
-- A page is looked up in each cycle, and answered two cycles later. Runs are put in, taken out and made
-- read-only by commands, which go through the entries one after the other while nothing is looked up: what is
-- looked up after a command was taken finds all of it done. A run that continues others is joined with them;
-- of one that is taken out in part, what remains stays, as far as there are entries for it.
-- Timing, ports and generics: docs/rtl/flexible_tlb.md. The model: crates/card/src/flexible.rs.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.index_pkg.all;
  use work.window_pkg.all;

entity flexible_tlb is
  generic (
    -- Of a page's number, with that of its address space above it.
    KeyBits_g   : positive := 40;
    -- Of a frame's number.
    FrameBits_g : positive := 28;
    -- Pages of the longest run, as a power of two.
    RunBits_g   : positive := 15;
    Entries_g   : positive := 32;
    -- For proofs: Twice says what it must never say, and costs what it takes to know.
    Checks_g    : boolean  := false
  );
  port (
    Clk            : in    std_logic;
    Rst            : in    std_logic;
    -- Pages
    Look_Valid     : in    std_logic;
    Look_Ready     : out   std_logic;
    Look_Key       : in    std_logic_vector(KeyBits_g - 1 downto 0);
    -- An entry has the page that was taken in the cycle before.
    Look_Hit       : out   std_logic;
    -- For one cycle, two cycles later: whether an entry has the page, and where it is
    Found_Valid    : out   std_logic;
    Found_Held     : out   std_logic;
    Found_Writable : out   std_logic;
    Found_Memory   : out   std_logic_vector(MemoryBits_c - 1 downto 0);
    Found_Frame    : out   std_logic_vector(FrameBits_g - 1 downto 0);
    -- For so many pages the run goes on, this one included.
    Found_Pages    : out   std_logic_vector(RunBits_g downto 0);
    -- Commands for the pages from First up to, without, Bound: 00 takes them out; 01 makes them read-only;
    -- 10 puts them in, in the frames from Frame on, in the place of what was there. Nothing happens if there
    -- are none; of more pages than the longest run has, what was there is taken out only.
    Cmd_Valid      : in    std_logic;
    Cmd_Ready      : out   std_logic;
    Cmd_Kind       : in    std_logic_vector(1 downto 0);
    Cmd_First      : in    std_logic_vector(KeyBits_g - 1 downto 0);
    Cmd_Bound      : in    std_logic_vector(KeyBits_g downto 0);
    Cmd_Writable   : in    std_logic;
    Cmd_Memory     : in    std_logic_vector(MemoryBits_c - 1 downto 0);
    Cmd_Frame      : in    std_logic_vector(FrameBits_g - 1 downto 0);
    -- Entries, or parts of them, that had to go for lack of room, since the reset.
    Evictions      : out   std_logic_vector(31 downto 0);
    -- Never: two entries have the page that is looked up.
    Twice          : out   std_logic
  );
end entity;

architecture rtl of flexible_tlb is

  constant PlaceBits_c : positive := bitsOf(Entries_g);
  -- Where the frames of a run lie: its rights, its memory, and what is added to a page's number.
  constant WhereBits_c : positive := 1 + MemoryBits_c + FrameBits_g;
  -- Beside it, the lowest bits of the run's bound.
  constant KeptBits_c  : positive := WhereBits_c + RunBits_g + 1;
  constant RunMax_c    : positive := 2 ** RunBits_g;
  -- Bits of the lower half of a number of pages.
  constant Half_c      : positive := (KeyBits_g + 1) / 2;

  constant KindProtect_c : std_logic_vector(1 downto 0) := "01";
  constant KindInsert_c  : std_logic_vector(1 downto 0) := "10";

  subtype Key_t is unsigned(KeyBits_g - 1 downto 0);
  subtype Bound_t is unsigned(KeyBits_g downto 0);
  subtype Pages_t is unsigned(RunBits_g downto 0);
  subtype Where_t is std_logic_vector(WhereBits_c - 1 downto 0);
  subtype Flags_t is std_logic_vector(Entries_g - 1 downto 0);
  subtype Place_t is natural range 0 to Entries_g - 1;

  type Keys_t is array (0 to Entries_g - 1) of std_logic_vector(KeyBits_g - 1 downto 0);

  type Bounds_t is array (0 to Entries_g - 1) of std_logic_vector(KeyBits_g downto 0);

  type Kept_t is array (0 to 2 ** PlaceBits_c - 1) of std_logic_vector(KeptBits_c - 1 downto 0);

  -- A part of an entry: before the pages of a command, within them, behind them.
  subtype Part_t is natural range 0 to 2;

  type PartKeys_t is array (Part_t) of Key_t;

  type PartBounds_t is array (Part_t) of Bound_t;

  type PartPages_t is array (Part_t) of Pages_t;

  type State_t is (
    -- Nothing is to be done; a command is looked at
    Idle, Begun,
    -- An entry is read, compared with the command's pages; its parts are measured, chosen and put, one at a time
    CutRead, CutCompare, CutMeasure, CutChoose, CutPut,
    -- An entry is read, compared with the new run, and joined with it
    JoinRead, JoinCompare, JoinTake,
    -- The new run is put
    PutWait, PutRun
  );

  type Registers_t is record
    State     : State_t;
    LookValid : std_logic;
    LookKey   : std_logic_vector(KeyBits_g - 1 downto 0);
    -- One cycle later.
    HitValid  : std_logic;
    HitKey    : unsigned(maximum(KeyBits_g, FrameBits_g) - 1 downto 0);
    Hits      : Flags_t;
    -- The entries used lately; when all have been, only the last one counts.
    Recent    : Flags_t;
    -- The command's pages, how many they are, and where; of a new run as far as it is joined.
    Kind      : std_logic_vector(1 downto 0);
    First     : Key_t;
    Bound     : Bound_t;
    Pages     : Bound_t;
    Where     : Where_t;
    -- The entry that has its turn.
    Place     : Place_t;
    Held      : std_logic;
    OfFirst   : Key_t;
    OfBound   : Bound_t;
    OfWhere   : Where_t;
    -- Its parts, those that there are, and how many pages are to be put of each.
    Firsts    : PartKeys_t;
    Bounds    : PartBounds_t;
    Are       : std_logic_vector(2 downto 0);
    Left      : PartPages_t;
    -- The part that is put next.
    Part      : Part_t;
    -- None was put yet.
    IsFirst   : std_logic;
    -- It lies right before the run, or right behind, and both have so many pages.
    IsBefore  : std_logic;
    IsBehind  : std_logic;
    Joined    : unsigned(RunBits_g + 1 downto 0);
    -- Of the command's pages: a bit is borrowed from the upper half.
    Borrow    : std_logic;
    -- An entry that is free, and the one to go if none is, as it was a cycle ago.
    HasFree   : std_logic;
    Free      : Place_t;
    Victim    : Place_t;
    Evictions : unsigned(31 downto 0);
  end record;

  signal r : Registers_t;

  signal Kept     : Kept_t;
  signal Firsts   : Keys_t;
  signal Bounds   : Bounds_t;
  signal Helds    : Flags_t;
  signal Hits     : Flags_t;
  signal Clear    : std_logic;
  signal Put      : std_logic;
  signal PutPlace : Place_t;
  signal PutFirst : Key_t;
  signal PutBound : Bound_t;
  signal PutWhere : Where_t;
  signal Longest  : Part_t;
  signal IsCut    : std_logic;
  signal Lost     : std_logic;
  signal Found    : std_logic_vector(KeptBits_c - 1 downto 0);

  -- The first entry that is set; any if none is.
  function firstOf (flags : Flags_t) return Place_t is
    constant Index_c : natural := to_integer(unsigned(lowestOf(flags, PlaceBits_c)));
  begin
    if Index_c > Entries_g - 1 then
      return 0;
    end if;
    return Index_c;
  end function;

begin

  assert KeyBits_g > RunBits_g
    report "flexible_tlb: a run has fewer pages than there are" severity failure;
  assert FrameBits_g <= NumberBits_c
    report "flexible_tlb: numbers of frames have at most 32 bits" severity failure;

  ------------------------------------------------------------------------------------------------
  -- Looks
  ------------------------------------------------------------------------------------------------
  Look_Ready <= '1' when r.State = Idle and Cmd_Valid = '0' else '0';
  Cmd_Ready  <= '1' when r.State = Idle and r.LookValid = '0' and r.HitValid = '0' else '0';

  g_entries : for i in 0 to Entries_g - 1 generate
    signal ClearHere : std_logic;
    signal PutHere   : std_logic;
  begin

    ClearHere <= Clear when r.Place = i else '0';
    PutHere   <= Put when PutPlace = i else '0';

    i_entry : entity work.flexible_entry
      generic map (
        KeyBits_g => KeyBits_g
      )
      port map (
        Clk      => Clk,
        Rst      => Rst,
        Look_Key => r.LookKey,
        Look_Hit => Hits(i),
        Clear    => ClearHere,
        Put      => PutHere,
        First_In => std_logic_vector(PutFirst),
        Bound_In => std_logic_vector(PutBound),
        Held     => Helds(i),
        First    => Firsts(i),
        Bound    => Bounds(i)
      );

  end generate;

  Look_Hit       <= isAny(Hits, 6);
  Found          <= Kept(to_integer(unsigned(indexOf(r.Hits, PlaceBits_c))));
  Found_Valid    <= r.HitValid;
  Found_Held     <= or (r.Hits);
  Found_Writable <= Found(WhereBits_c - 1);
  Found_Memory   <= Found(WhereBits_c - 2 downto FrameBits_g);
  Found_Frame    <= std_logic_vector(unsigned(Found(FrameBits_g - 1 downto 0)) + r.HitKey(FrameBits_g - 1 downto 0));
  Found_Pages    <= std_logic_vector(unsigned(Found(KeptBits_c - 1 downto WhereBits_c)) - r.HitKey(RunBits_g downto 0));
  Evictions      <= std_logic_vector(r.Evictions);

  g_checks : if Checks_g generate
    Twice <= r.LookValid and isSeveral(Hits);
  else generate
    Twice <= '0';
  end generate;

  ------------------------------------------------------------------------------------------------
  -- What is written: the longest part that is left, of parts of one length the first; or the new run
  ------------------------------------------------------------------------------------------------
  Longest <= 0 when r.Left(0) >= r.Left(1) and r.Left(0) >= r.Left(2) else
             1 when r.Left(1) >= r.Left(2) else 2;

  -- The pages of the command that the entry has are taken out, or are read-only from now on.
  IsCut <= r.Held and isBelow('0' & r.OfFirst, r.Bound) and isBelow('0' & r.First, r.OfBound)
           when r.Kind /= KindProtect_c or r.OfWhere(WhereBits_c - 1) = '1' else '0';

  p_put : process (all) is
  begin
    Clear    <= '0';
    Put      <= '0';
    Lost     <= '0';
    PutPlace <= r.Free;
    PutFirst <= r.First;
    PutBound <= r.Bound;
    PutWhere <= r.Where;
    case r.State is
      when CutCompare =>
        Clear <= IsCut;
      when CutPut =>
        Put  <= r.IsFirst or r.HasFree;
        Lost <= not (r.IsFirst or r.HasFree);
        if r.IsFirst = '1' then
          PutPlace <= r.Place;
        end if;
        PutFirst <= r.Firsts(r.Part);
        PutBound <= r.Bounds(r.Part);
        PutWhere <= r.OfWhere;
        if r.Part = 1 then
          PutWhere(WhereBits_c - 1) <= '0';
        end if;
      when JoinTake =>
        if (r.IsBefore = '1' or r.IsBehind = '1') and r.Joined <= RunMax_c then
          Clear <= '1';
        end if;
      when PutRun =>
        Put <= '1';
        if r.HasFree = '0' then
          Lost     <= '1';
          PutPlace <= r.Victim;
        end if;
      when others =>
        null;
    end case;
  end process;

  p_kept : process (Clk) is
  begin
    if rising_edge(Clk) then
      if Put = '1' then
        Kept(PutPlace) <= std_logic_vector(PutBound(RunBits_g downto 0)) & PutWhere;
      end if;
    end if;
  end process;

  p_registers : process (Clk) is
    variable recent_v  : Flags_t;
    variable touched_v : Flags_t;
    variable lower_v   : unsigned(Half_c downto 0);
    variable borrow_v  : unsigned(0 downto 0);

    -- The next entry has its turn, or what comes behind the last one.
    procedure follow (again, behind : State_t) is
    begin
      if r.Place = Entries_g - 1 then
        r.Place <= 0;
        r.State <= behind;
      else
        r.Place <= r.Place + 1;
        r.State <= again;
      end if;
    end procedure;

    procedure cut is
    begin
      if r.Kind = KindInsert_c and r.Pages <= RunMax_c then
        follow(CutRead, JoinRead);
      else
        follow(CutRead, Idle);
      end if;
    end procedure;

  begin
    if rising_edge(Clk) then
      -- Looks
      r.LookValid <= Look_Valid and Look_Ready;
      r.LookKey   <= Look_Key;
      r.HitValid  <= r.LookValid;
      r.HitKey    <= resize(unsigned(r.LookKey), r.HitKey'length);
      r.Hits      <= Hits;

      -- Who is used last
      touched_v := (others => '0');
      if r.HitValid = '1' then
        touched_v := r.Hits;
      elsif r.State = PutRun then
        touched_v(PutPlace) := '1';
      end if;
      recent_v := r.Recent or touched_v;
      if and (recent_v) = '1' then
        recent_v := touched_v;
      end if;
      r.Recent  <= recent_v;
      r.Victim  <= firstOf(not r.Recent);
      r.HasFree <= not (and (Helds));
      r.Free    <= firstOf(not Helds);
      if Lost = '1' then
        r.Evictions <= r.Evictions + 1;
      end if;

      -- The entry that has its turn
      r.Held    <= Helds(r.Place);
      r.OfFirst <= unsigned(Firsts(r.Place));
      r.OfBound <= unsigned(Bounds(r.Place));
      if r.State = CutRead or r.State = JoinRead then
        r.OfWhere <= Kept(r.Place)(WhereBits_c - 1 downto 0);
      end if;

      case r.State is
        when Idle =>
          r.Kind  <= Cmd_Kind;
          r.First <= unsigned(Cmd_First);
          r.Bound <= unsigned(Cmd_Bound);
          r.Where <= Cmd_Writable & Cmd_Memory & Cmd_Frame;
          r.Place <= 0;
          if Cmd_Valid = '1' and Cmd_Ready = '1' then
            r.State <= Begun;
          end if;

        when Begun =>
          -- The upper half comes a cycle later.
          lower_v := ('0' & r.Bound(Half_c - 1 downto 0)) - ('0' & r.First(Half_c - 1 downto 0));
          r.Pages(Half_c - 1 downto 0) <= lower_v(Half_c - 1 downto 0);
          r.Borrow <= lower_v(Half_c);
          r.Where(FrameBits_g - 1 downto 0) <= std_logic_vector(
            unsigned(r.Where(FrameBits_g - 1 downto 0)) - resize(r.First, FrameBits_g));
          r.State <= CutRead;
          if isBelow('0' & r.First, r.Bound) = '0' then
            r.State <= Idle;
          end if;

        when CutRead =>
          borrow_v(0) := r.Borrow;
          r.Pages(KeyBits_g downto Half_c) <= r.Bound(KeyBits_g downto Half_c)
                                              - ('0' & r.First(KeyBits_g - 1 downto Half_c)) - borrow_v;
          r.State <= CutCompare;

        when CutCompare =>
          r.Firsts <= (r.OfFirst, r.First, r.Bound(KeyBits_g - 1 downto 0));
          r.Bounds <= ('0' & r.First, r.Bound, r.OfBound);
          if isBelow(r.First, r.OfFirst) = '1' then
            r.Firsts(1) <= r.OfFirst;
          end if;
          if isBelow(r.OfBound, r.Bound) = '1' then
            r.Bounds(1) <= r.OfBound;
          end if;
          r.Are(0) <= isBelow(r.OfFirst, r.First);
          r.Are(1) <= '1' when r.Kind = KindProtect_c else '0';
          r.Are(2) <= isBelow(r.Bound, r.OfBound);
          r.State  <= CutMeasure;
          if IsCut = '0' then
            cut;
          end if;

        when CutMeasure =>
          for i in Part_t loop
            r.Left(i) <= (others => '0');
            if r.Are(i) = '1' then
              r.Left(i) <= r.Bounds(i)(RunBits_g downto 0) - r.Firsts(i)(RunBits_g downto 0);
            end if;
          end loop;
          r.IsFirst <= '1';
          r.State   <= CutChoose;

        when CutChoose =>
          -- An entry that is free is known again, if one was taken in the cycle before.
          r.Part  <= Longest;
          r.State <= CutPut;
          if r.Left(0) = 0 and r.Left(1) = 0 and r.Left(2) = 0 then
            cut;
          end if;

        when CutPut =>
          r.Left(r.Part) <= (others => '0');
          r.IsFirst      <= '0';
          r.State        <= CutChoose;

        when JoinRead =>
          r.State <= JoinCompare;

        when JoinCompare =>
          r.IsBefore <= '0';
          r.IsBehind <= '0';
          if r.Held = '1' and r.OfWhere = r.Where then
            r.IsBefore <= '1' when r.OfBound = r.First else '0';
            r.IsBehind <= '1' when r.Bound = r.OfFirst else '0';
          end if;
          -- Neither has more pages than the longest run.
          r.Joined <= r.Pages(RunBits_g + 1 downto 0)
                      + (resize(r.OfBound, RunBits_g + 2) - resize(r.OfFirst, RunBits_g + 2));
          r.State  <= JoinTake;

        when JoinTake =>
          if Clear = '1' then
            r.Pages <= resize(r.Joined, KeyBits_g + 1);
            if r.IsBefore = '1' then
              r.First <= r.OfFirst;
            else
              r.Bound <= r.OfBound;
            end if;
          end if;
          follow(JoinRead, PutWait);

        when PutWait =>
          r.State <= PutRun;

        when PutRun =>
          r.State <= Idle;
      end case;

      if Rst = '1' then
        r.State     <= Idle;
        r.LookValid <= '0';
        r.HitValid  <= '0';
        r.Recent    <= (others => '0');
        r.Place     <= 0;
        r.Evictions <= (others => '0');
      end if;
    end if;
  end process;

end architecture;
