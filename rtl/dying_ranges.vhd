-- The pages that no allocation has any more: as many ranges as may wait for their sweep, the oldest one in front.
--
-- A range is draining until its invalidation is done, then it is swept, then it ends: its words are 0, and
-- walks of before may be under way. Until it is dropped its pages are dying: the gate answers walks of them with *not
-- mapped*. A range of a small allocation lies in one region. Of one of a large allocation, which may begin within a
-- region, the gate is closed to all that is behind its first page in its regions, also to what is behind its last page:
-- nobody else has a page there.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.index_pkg.all;

entity dying_ranges is
  generic (
    -- Of a page's number in the window, and in its region.
    PageBits_g : positive;
    LeafBits_g : positive;
    Ranges_g   : positive := 4
  );
  port (
    Clk         : in    std_logic;
    Rst         : in    std_logic;
    -- One more; there is no room for it where IsFull is 1.
    Add         : in    std_logic;
    Add_First   : in    std_logic_vector(PageBits_g - 1 downto 0);
    Add_Last    : in    std_logic_vector(PageBits_g - 1 downto 0);
    -- It was a large allocation; its frames are elsewhere now, and stay in use.
    Add_Large   : in    std_logic;
    Add_Moved   : in    std_logic;
    IsFull      : out   std_logic;
    -- The last one is drained.
    Drained     : in    std_logic;
    -- The one in front: whether it can be swept; its pages.
    IsSweeping  : out   std_logic;
    First       : out   std_logic_vector(PageBits_g - 1 downto 0);
    Last        : out   std_logic_vector(PageBits_g - 1 downto 0);
    IsLarge     : out   std_logic;
    Moved       : out   std_logic;
    -- Where the sweep is, or that it is over; pages that are left in that region, and those of a range that lies in one
    -- region. All four are of a cycle earlier.
    At          : out   std_logic_vector(PageBits_g - 1 downto 0);
    IsOver      : out   std_logic;
    Left        : out   std_logic_vector(LeafBits_g downto 0);
    Count       : out   std_logic_vector(LeafBits_g downto 0);
    -- So many of its pages are swept, or all that are left in the region; it is swept, and ends; it goes.
    Advance     : in    std_logic;
    By          : in    std_logic_vector(LeafBits_g downto 0);
    To_Next     : in    std_logic;
    Finish      : in    std_logic;
    Drop        : in    std_logic;
    -- Whether two pages are dying.
    Gate_Page   : in    std_logic_vector(PageBits_g - 1 downto 0);
    Gate_Closed : out   std_logic;
    Page        : in    std_logic_vector(PageBits_g - 1 downto 0);
    IsDying     : out   std_logic;
    -- Nothing is.
    IsNone      : out   std_logic
  );
end entity;

architecture rtl of dying_ranges is

  subtype Page_t is unsigned(PageBits_g - 1 downto 0);

  subtype Count_t is unsigned(LeafBits_g downto 0);

  type Stage_t is (
    -- Nobody is there.
    StageNone,
    StageDraining,
    StageSweeping,
    StageEnding
  );

  type Range_t is record
    Stage : Stage_t;
    First : Page_t;
    Last  : Page_t;
    Large : std_logic;
    Moved : std_logic;
  end record;

  type Ranges_t is array (0 to Ranges_g - 1) of Range_t;

  signal Ranges : Ranges_t;
  -- The next page of the one in front, once some are swept, and whether all are.
  signal HasBegun : std_logic;
  signal NextAt   : Page_t;
  signal NextOver : std_logic;
  signal NowAt    : Page_t;
  -- The last page of the region where the sweep is.
  signal LastIn   : Page_t;
  signal AtLast   : std_logic;

  function regionOf (which : Page_t) return unsigned is
  begin
    return which(PageBits_g - 1 downto LeafBits_g);
  end function;

  function withinOf (which : Page_t) return unsigned is
  begin
    return which(LeafBits_g - 1 downto 0);
  end function;

  -- Pages of one region.
  function pagesTo (from_page : Page_t; to_page : Page_t) return Count_t is
  begin
    return ('0' & withinOf(to_page)) - ('0' & withinOf(from_page)) + 1;
  end function;

  -- Each of the comparisons has a bit of its own, so that tools do not put one behind the other.
  function covers (all_ranges : Ranges_t; which : Page_t) return std_logic is
    variable is_v     : std_logic_vector(all_ranges'range);
    variable behind_v : std_logic_vector(all_ranges'range);
    variable before_v : std_logic_vector(all_ranges'range);
  begin
    for i in all_ranges'range loop
      is_v(i) := '1' when regionOf(which) = regionOf(all_ranges(i).First) else '0';
      behind_v(i) := not isBelow(which, all_ranges(i).First);
      before_v(i) := not isBelow(withinOf(all_ranges(i).Last), withinOf(which));
      if all_ranges(i).Large = '1' then
        is_v(i) := '1';
        before_v(i) := not isBelow(regionOf(all_ranges(i).Last), regionOf(which));
      end if;
      if all_ranges(i).Stage = StageNone then
        is_v(i) := '0';
      end if;
    end loop;
    return or (is_v and behind_v and before_v);
  end function;

begin

  IsFull      <= '0' when Ranges(Ranges_g - 1).Stage = StageNone else '1';
  IsNone      <= '1' when Ranges(0).Stage = StageNone else '0';
  IsSweeping  <= '1' when Ranges(0).Stage = StageSweeping else '0';
  First       <= std_logic_vector(Ranges(0).First);
  Last        <= std_logic_vector(Ranges(0).Last);
  IsLarge     <= Ranges(0).Large;
  Moved       <= Ranges(0).Moved;
  Gate_Closed <= covers(Ranges, unsigned(Gate_Page));
  IsDying     <= covers(Ranges, unsigned(Page));

  NowAt  <= NextAt when HasBegun = '1' else Ranges(0).First;
  AtLast <= '1' when regionOf(NowAt) = regionOf(Ranges(0).Last) else '0';
  LastIn <= Ranges(0).Last when AtLast = '1' else (others => '1');

  p_front : process (Clk) is
  begin
    if rising_edge(Clk) then
      At     <= std_logic_vector(NowAt);
      IsOver <= HasBegun and NextOver;
      Left   <= std_logic_vector(pagesTo(NowAt, LastIn));
      Count  <= std_logic_vector(pagesTo(Ranges(0).First, Ranges(0).Last));
    end if;
  end process;

  p_ranges : process (Clk) is
    variable ranges_v : Ranges_t;
  begin
    if rising_edge(Clk) then
      ranges_v := Ranges;
      for i in ranges_v'range loop
        if Drained = '1' and ranges_v(i).Stage = StageDraining then
          ranges_v(i).Stage := StageSweeping;
        end if;
      end loop;
      if Advance = '1' then
        HasBegun <= '1';
        NextAt   <= regionOf(NowAt) & (withinOf(NowAt) + unsigned(By(LeafBits_g - 1 downto 0)));
        NextOver <= '0';
        if To_Next = '1' then
          NextAt   <= (regionOf(NowAt) + 1) & to_unsigned(0, LeafBits_g);
          NextOver <= AtLast;
        end if;
      end if;
      if Finish = '1' then
        ranges_v(0).Stage := StageEnding;
      end if;
      -- Behind the last one; nobody is added and dropped in one cycle.
      for i in ranges_v'range loop
        if Add = '1' and Ranges(i).Stage = StageNone and (i = 0 or Ranges(maximum(i, 1) - 1).Stage /= StageNone) then
          ranges_v(i) := (StageDraining, unsigned(Add_First), unsigned(Add_Last), Add_Large, Add_Moved);
        end if;
      end loop;
      if Drop = '1' then
        for i in 0 to Ranges_g - 2 loop
          ranges_v(i) := ranges_v(i + 1);
        end loop;
        ranges_v(Ranges_g - 1).Stage := StageNone;
        HasBegun <= '0';
      end if;
      Ranges <= ranges_v;
      if Rst = '1' then
        HasBegun <= '0';
        for i in Ranges'range loop
          Ranges(i).Stage <= StageNone;
        end loop;
      end if;
    end if;
  end process;

end architecture;
