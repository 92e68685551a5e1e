-- How often the card reaches for pages in other memories, per group of pages: a group whose count reaches the
-- threshold is told, once, until it is cleared (GRIT, section II-B2). The model is crates/card/src/counters.rs.
--
-- As many groups are counted as there are entries. A new group that finds none free makes all go whose count is
-- below the threshold: they have been the quiet ones.
-- Timing, ports and generics: docs/rtl/access_counters.md.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.index_pkg.all;
  use work.window_pkg.all;

entity access_counters is
  generic (
    -- Of the number of an address space, and of a page in it.
    SpaceBits_g : positive := 8;
    PageBits_g  : positive := 36;
    -- Pages of a group, as a power of two: 64 KiB of pages of 4 KiB.
    GroupBits_g : natural  := 4;
    -- Of what one report says, and of a count, which stays at its largest value.
    TimesBits_g : positive := 8;
    CountBits_g : positive := 16;
    -- Groups that are counted at once.
    Groups_g    : positive := 32
  );
  port (
    Clk           : in    std_logic;
    Rst           : in    std_logic;
    -- Accesses to a page, so many.
    Access_Valid  : in    std_logic;
    Access_Ready  : out   std_logic;
    Access_Space  : in    std_logic_vector(SpaceBits_g - 1 downto 0);
    Access_Page   : in    std_logic_vector(PageBits_g - 1 downto 0);
    Access_Times  : in    std_logic_vector(TimesBits_g - 1 downto 0);
    -- The groups of the pages from First to Last are set to zero, or all of them. With all, Threshold is taken
    -- over; 0 is taken as 1.
    Clear_Valid   : in    std_logic;
    Clear_Ready   : out   std_logic;
    Clear_All     : in    std_logic;
    Clear_Space   : in    std_logic_vector(SpaceBits_g - 1 downto 0);
    Clear_First   : in    std_logic_vector(PageBits_g - 1 downto 0);
    Clear_Last    : in    std_logic_vector(PageBits_g - 1 downto 0);
    Threshold     : in    std_logic_vector(CountBits_g - 1 downto 0);
    -- A group that has reached the threshold, and its count when it was put here.
    Notice_Valid  : out   std_logic;
    Notice_Ready  : in    std_logic;
    Notice_Space  : out   std_logic_vector(SpaceBits_g - 1 downto 0);
    Notice_Group  : out   std_logic_vector(PageBits_g - GroupBits_g - 1 downto 0);
    Notice_Count  : out   std_logic_vector(CountBits_g - 1 downto 0);
    -- Groups that were not counted, or no longer, because too many were.
    Forgotten     : out   std_logic_vector(31 downto 0)
  );
end entity;

architecture rtl of access_counters is

  constant NumberBits_c : positive := PageBits_g - GroupBits_g;
  constant IndexBits_c  : positive := bitsOf(Groups_g);
  -- Two at least: tools stumble over an index that has no bits.
  constant Places_c     : positive := maximum(Groups_g, 2);

  subtype Flags_t is std_logic_vector(Groups_g - 1 downto 0);

  subtype Index_t is natural range 0 to Groups_g - 1;

  subtype Count_t is unsigned(CountBits_g - 1 downto 0);

  subtype Number_t is std_logic_vector(NumberBits_c - 1 downto 0);

  type Group_t is record
    Space  : std_logic_vector(SpaceBits_g - 1 downto 0);
    Number : Number_t;
  end record;

  type Groups_t is array (0 to Groups_g - 1) of Group_t;

  -- The same, of which one is read.
  type Keys_t is array (0 to Places_c - 1) of std_logic_vector(SpaceBits_g + NumberBits_c - 1 downto 0);

  type Counts_t is array (0 to Places_c - 1) of Count_t;

  type Order_t is array (0 to Groups_g - 1) of Flags_t;

  type State_t is (
    StateIdle,
    -- The group is looked for among those that are counted.
    StateLook,
    -- Its count is read, added to and written. Meanwhile the next access may come.
    StateCount,
    -- Entries are looked at one after the other: read, compared with the range, and cleared if they are of it.
    StateRead,
    StateCompare,
    StateClear
  );

  type Registers_t is record
    State     : State_t;
    Key       : Group_t;
    Times     : unsigned(TimesBits_g - 1 downto 0);
    -- The last group of a range that is cleared, the entry that is looked at, and what is known of it.
    Last      : Number_t;
    Place     : Index_t;
    Entry     : Group_t;
    IsOf      : std_logic;
    IsFrom    : std_logic;
    IsTo      : std_logic;
    -- Where the group is, or a free entry.
    Hit       : std_logic;
    HasFree   : std_logic;
    Index     : Index_t;
    FreeIndex : Index_t;
    -- A count was written in the cycle before: where, which, and whether it is of a new group.
    Counted   : std_logic;
    IsNew     : std_logic;
    At        : Index_t;
    Sum       : Count_t;
    Threshold : Count_t;
    Valid     : Flags_t;
    -- Its count has reached the threshold; it is still to be told.
    IsLoud    : Flags_t;
    Waits     : Flags_t;
    -- Of two that are to be told, the one of the row waits for the other one, which has a higher number.
    Order     : Order_t;
    Groups    : Groups_t;
    -- The one that has waited longest.
    HasFirst  : std_logic;
    First     : Index_t;
    -- Entries whose count has not reached it.
    Quiet     : natural range 0 to Groups_g;
    -- So many more than Forgotten says.
    Lost      : natural range 0 to Groups_g;
    Forgotten : unsigned(31 downto 0);
    Told      : std_logic;
    Notice    : Group_t;
    Reached   : Count_t;
  end record;

  signal r      : Registers_t;
  signal n      : Registers_t;

  signal Counts : Counts_t;
  signal Keys   : Keys_t;
  signal Key    : Group_t;
  signal At     : Index_t;
  signal Sum    : Count_t;
  signal Write  : std_logic;

  function orOne (value : std_logic_vector) return Count_t is
  begin
    if unsigned(value) = 0 then
      return to_unsigned(1, CountBits_g);
    end if;
    return unsigned(value);
  end function;

  function groupOf (page : std_logic_vector(PageBits_g - 1 downto 0)) return Number_t is
  begin
    return page(PageBits_g - 1 downto GroupBits_g);
  end function;

  -- The sum of a count and of accesses, or the largest count.
  function added (before : Count_t; times : unsigned(TimesBits_g - 1 downto 0)) return Count_t is
    variable sum_v : unsigned(CountBits_g downto 0);
  begin
    sum_v := resize(before, CountBits_g + 1) + times;
    if sum_v(CountBits_g) = '1' then
      return (others => '1');
    end if;
    return sum_v(CountBits_g - 1 downto 0);
  end function;

  -- As integers: a bound that does not fit the bits is taken for its lowest ones in a netlist.
  function toIndex (bits : std_logic_vector(IndexBits_c - 1 downto 0)) return Index_t is
    constant Index_c : natural := to_integer(unsigned(bits));
  begin
    if Index_c < Groups_g then
      return Index_c;
    end if;
    return 0;
  end function;

  -- Of those that wait, the one that waits for none.
  function firstOf (waits : Flags_t; order : Order_t) return Flags_t is
    variable first_v : Flags_t := waits;
    variable others_v : Flags_t;
  begin
    for i in waits'range loop
      for j in waits'range loop
        if j > i then
          others_v(j) := waits(j) and order(i)(j);
        elsif j < i then
          others_v(j) := waits(j) and not order(j)(i);
        else
          others_v(j) := '0';
        end if;
      end loop;
      first_v(i) := waits(i) and not isAny(others_v, 3);
    end loop;
    return first_v;
  end function;

begin

  assert GroupBits_g < PageBits_g
    report "access_counters: a group is less than all pages" severity failure;
  assert TimesBits_g <= CountBits_g
    report "access_counters: one report's accesses fit a count" severity failure;

  -- A range is cleared before what comes with it is counted.
  Access_Ready <= '1' when Clear_Valid = '0' and (r.State = StateIdle or Write = '1') else '0';
  Clear_Ready  <= '1' when r.State = StateIdle else '0';
  Notice_Valid <= r.Told;
  Notice_Space <= r.Notice.Space;
  Notice_Group <= r.Notice.Number;
  Notice_Count <= std_logic_vector(r.Reached);
  Forgotten    <= std_logic_vector(r.Forgotten);

  ------------------------------------------------------------------------------------------------
  -- Counts
  ------------------------------------------------------------------------------------------------
  At    <= r.Index when r.Hit = '1' else r.FreeIndex;
  Sum   <= added(Counts(r.Index), r.Times) when r.Hit = '1' else resize(r.Times, CountBits_g);
  Write <= '1' when r.State = StateCount and (r.Hit = '1' or r.HasFree = '1') else '0';

  -- Nobody is told while entries are looked at.
  p_key : process (all) is
    variable key_v : std_logic_vector(Keys(0)'range);
  begin
    if r.State = StateRead then
      key_v := Keys(r.Place);
    else
      key_v := Keys(r.First);
    end if;
    Key <= (key_v(key_v'high downto NumberBits_c), key_v(NumberBits_c - 1 downto 0));
  end process;

  p_counts : process (Clk) is
  begin
    if rising_edge(Clk) then
      if Write = '1' then
        Counts(At) <= Sum;
        Keys(At)   <= r.Key.Space & r.Key.Number;
      end if;
    end if;
  end process;

  ------------------------------------------------------------------------------------------------
  -- Groups
  ------------------------------------------------------------------------------------------------
  p_next : process (all) is
    variable v       : Registers_t;
    variable hits_v  : Flags_t;
    variable first_v : Flags_t;
    variable calm_v  : boolean;
  begin
    v := r;
    calm_v := Clear_Valid = '0' and r.State /= StateRead and r.State /= StateCompare and r.State /= StateClear;

    first_v    := firstOf(r.Waits, r.Order);
    v.HasFirst := isAny(r.Waits, 6);
    v.First    := toIndex(indexOf(first_v, IndexBits_c));
    if r.Told = '0' or Notice_Ready = '1' then
      v.Told    := '0';
      v.Notice  := Key;
      v.Reached := Counts(r.First);
      if r.HasFirst = '1' and calm_v then
        v.Told           := '1';
        v.Waits(r.First) := '0';
        v.HasFirst       := '0';
      end if;
    end if;

    v.Forgotten := r.Forgotten + r.Lost;
    v.Lost      := 0;

    -- What was counted in the cycle before.
    v.Counted := '0';
    if r.Counted = '1' then
      if r.Sum >= r.Threshold then
        v.IsLoud(r.At) := '1';
        if r.IsLoud(r.At) = '0' then
          v.Waits(r.At) := '1';
          for i in r.Order'range loop
            if i < r.At then
              v.Order(i)(r.At) := '0';
            elsif i > r.At then
              v.Order(r.At)(i) := '1';
            end if;
          end loop;
        end if;
        if r.IsNew = '0' and r.IsLoud(r.At) = '0' then
          v.Quiet := r.Quiet - 1;
        end if;
      elsif r.IsNew = '1' then
        v.Quiet := r.Quiet + 1;
      end if;
    end if;

    case r.State is
      when StateIdle =>
        null;

      when StateLook =>
        for i in hits_v'range loop
          hits_v(i) := r.Valid(i) when r.Groups(i) = r.Key else '0';
        end loop;
        v.Hit       := isAny(hits_v, 6);
        v.HasFree   := not (and r.Valid);
        v.Index     := toIndex(indexOf(hits_v, IndexBits_c));
        v.FreeIndex := toIndex(lowestOf(not r.Valid, IndexBits_c));
        v.State     := StateCount;

      when StateCount =>
        v.State := StateIdle;
        v.At    := At;
        v.Sum   := Sum;
        v.IsNew := not r.Hit;
        if Write = '1' then
          v.Counted    := '1';
          v.Groups(At) := r.Key;
          v.Valid(At)  := '1';
        elsif r.Quiet /= 0 then
          v.Valid := r.Valid and r.IsLoud;
          v.Lost  := r.Quiet;
          v.Quiet := 0;
          v.State := StateLook;
        else
          v.Lost := 1;
        end if;

      when StateRead =>
        v.Entry := Key;
        v.State := StateCompare;

      when StateCompare =>
        v.IsOf   := r.Valid(r.Place) when r.Entry.Space = r.Key.Space else '0';
        v.IsFrom := '1' when unsigned(r.Entry.Number) >= unsigned(r.Key.Number) else '0';
        v.IsTo   := '1' when unsigned(r.Entry.Number) <= unsigned(r.Last) else '0';
        v.State  := StateClear;

      when StateClear =>
        if (r.IsOf and r.IsFrom and r.IsTo) = '1' then
          v.Valid(r.Place)  := '0';
          v.IsLoud(r.Place) := '0';
          v.Waits(r.Place)  := '0';
          v.HasFirst        := '0';
          if r.IsLoud(r.Place) = '0' then
            v.Quiet := r.Quiet - 1;
          end if;
        end if;
        if r.Place = Groups_g - 1 then
          v.State := StateIdle;
        else
          v.Place := r.Place + 1;
          v.State := StateRead;
        end if;
    end case;

    if Access_Valid = '1' and Access_Ready = '1' then
      v.Key   := (Access_Space, groupOf(Access_Page));
      v.Times := unsigned(Access_Times);
      v.State := StateLook;
    end if;

    if Clear_Valid = '1' and Clear_Ready = '1' then
      if Clear_All = '1' then
        v.Threshold := orOne(Threshold);
        v.Valid     := (others => '0');
        v.IsLoud    := (others => '0');
        v.Waits     := (others => '0');
        v.HasFirst  := '0';
        v.Quiet     := 0;
      else
        v.Key   := (Clear_Space, groupOf(Clear_First));
        v.Last  := groupOf(Clear_Last);
        v.Place := 0;
        v.State := StateRead;
      end if;
    end if;

    n <= v;
  end process;

  p_registers : process (Clk) is
  begin
    if rising_edge(Clk) then
      r <= n;
      if Rst = '1' then
        r.State     <= StateIdle;
        r.Threshold <= orOne(Threshold);
        r.Counted   <= '0';
        r.Valid     <= (others => '0');
        r.IsLoud    <= (others => '0');
        r.Waits     <= (others => '0');
        r.HasFirst  <= '0';
        r.Quiet     <= 0;
        r.Lost      <= 0;
        r.Forgotten <= (others => '0');
        r.Told      <= '0';
      end if;
    end if;
  end process;

end architecture;
