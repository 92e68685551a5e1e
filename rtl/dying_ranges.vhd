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
    Ranges_g   : positive range 2 to positive'high := 4
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

  -- The gate is closed to all from the first page to the last one.
  type Range_t is record
    Stage : Stage_t;
    First : Page_t;
    Last  : Page_t;
  end record;

  type Ranges_t is array (0 to Ranges_g - 1) of Range_t;

  constant Width_c : positive := 2 * PageBits_g + 2;

  signal Ranges : Ranges_t;
  -- Their pages, in their order; where the next one comes, and the one in front has its place.
  signal Added    : std_logic_vector(Width_c - 1 downto 0);
  signal InFront  : std_logic_vector(Width_c - 1 downto 0);
  signal HasRoom  : std_logic;
  signal HasSome  : std_logic;
  signal AddPlace : natural range 0 to Ranges_g;
  signal Front    : natural range 0 to Ranges_g;
  signal FirstOf  : Page_t;
  signal LastOf   : Page_t;
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
      is_v(i)     := '0' when all_ranges(i).Stage = StageNone else '1';
      behind_v(i) := not isBelow(which, all_ranges(i).First);
      before_v(i) := not isBelow(all_ranges(i).Last, which);
    end loop;
    return or (is_v and behind_v and before_v);
  end function;

begin

  IsFull      <= not HasRoom;
  IsNone      <= not HasSome;
  IsSweeping  <= '1' when Ranges(Front).Stage = StageSweeping else '0';
  First       <= std_logic_vector(FirstOf);
  Last        <= std_logic_vector(LastOf);
  IsLarge     <= InFront(1);
  Moved       <= InFront(0);
  Gate_Closed <= covers(Ranges, unsigned(Gate_Page));
  IsDying     <= covers(Ranges, unsigned(Page));

  ------------------------------------------------------------------------------------------------
  -- The one in front
  ------------------------------------------------------------------------------------------------
  Added   <= Add_First & Add_Last & Add_Large & Add_Moved;
  FirstOf <= unsigned(InFront(Width_c - 1 downto PageBits_g + 2));
  LastOf  <= unsigned(InFront(PageBits_g + 1 downto 2));

  i_pages : entity work.fifo
    generic map (
      Width_g => Width_c,
      Depth_g => Ranges_g
    )
    port map (
      Clk       => Clk,
      Rst       => Rst,
      In_Valid  => Add,
      In_Ready  => HasRoom,
      In_Data   => Added,
      Out_Valid => HasSome,
      Out_Ready => Drop,
      Out_Data  => InFront,
      Level     => open,
      In_Place  => AddPlace,
      Out_Place => Front
    );

  NowAt  <= NextAt when HasBegun = '1' else FirstOf;
  AtLast <= '1' when regionOf(NowAt) = regionOf(LastOf) else '0';
  LastIn <= LastOf when AtLast = '1' else (others => '1');

  p_front : process (Clk) is
  begin
    if rising_edge(Clk) then
      At     <= std_logic_vector(NowAt);
      IsOver <= HasBegun and NextOver;
      Left   <= std_logic_vector(pagesTo(NowAt, LastIn));
      Count  <= std_logic_vector(pagesTo(FirstOf, LastOf));
    end if;
  end process;

  p_next : process (Clk) is
  begin
    if rising_edge(Clk) then
      if Advance = '1' then
        HasBegun <= '1';
        NextAt   <= regionOf(NowAt) & (withinOf(NowAt) + unsigned(By(LeafBits_g - 1 downto 0)));
        NextOver <= '0';
        if To_Next = '1' then
          NextAt   <= (regionOf(NowAt) + 1) & to_unsigned(0, LeafBits_g);
          NextOver <= AtLast;
        end if;
      end if;
      if Drop = '1' or Rst = '1' then
        HasBegun <= '0';
      end if;
    end if;
  end process;

  ------------------------------------------------------------------------------------------------
  -- The gate
  ------------------------------------------------------------------------------------------------
  p_ranges : process (Clk) is
  begin
    if rising_edge(Clk) then
      for i in Ranges'range loop
        if Drained = '1' and Ranges(i).Stage = StageDraining then
          Ranges(i).Stage <= StageSweeping;
        end if;
        if Finish = '1' and Front = i then
          Ranges(i).Stage <= StageEnding;
        end if;
        if Drop = '1' and Front = i then
          Ranges(i).Stage <= StageNone;
        end if;
        -- There is room; nobody is added and dropped in one cycle.
        if Add = '1' and AddPlace = i then
          Ranges(i) <= (StageDraining, unsigned(Add_First), unsigned(Add_Last));
          if Add_Large = '1' then
            Ranges(i).Last(LeafBits_g - 1 downto 0) <= (others => '1');
          end if;
        end if;
        if Rst = '1' then
          Ranges(i).Stage <= StageNone;
        end if;
      end loop;
    end if;
  end process;

end architecture;
