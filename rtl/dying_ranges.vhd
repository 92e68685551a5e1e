-- The pages that no allocation has any more: as many ranges as may wait for their sweep, the oldest one in front.
--
-- A range is draining until its invalidation is done, then it is swept, then it ends: its words are 0, and
-- walks of before may be under way. Until it is dropped its pages are dying: the gate answers walks of them with *not
-- mapped*. A range lies in one region.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

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
    -- One more, of so many pages; there is no room for it where IsFull is 1.
    Add         : in    std_logic;
    Add_First   : in    std_logic_vector(PageBits_g - 1 downto 0);
    Add_Last    : in    std_logic_vector(PageBits_g - 1 downto 0);
    Add_Count   : in    std_logic_vector(LeafBits_g downto 0);
    -- Its frames are elsewhere now, and stay in use.
    Add_Moved   : in    std_logic;
    IsFull      : out   std_logic;
    -- The last one is drained.
    Drained     : in    std_logic;
    -- The one in front: whether it can be swept; its pages; where the sweep is, and pages that are left.
    IsSweeping  : out   std_logic;
    First       : out   std_logic_vector(PageBits_g - 1 downto 0);
    Last        : out   std_logic_vector(PageBits_g - 1 downto 0);
    Moved       : out   std_logic;
    Count       : out   std_logic_vector(LeafBits_g downto 0);
    At          : out   std_logic_vector(PageBits_g - 1 downto 0);
    Left        : out   std_logic_vector(LeafBits_g downto 0);
    -- So many of its pages are swept; it is swept, and ends; it goes.
    Advance     : in    std_logic;
    By          : in    std_logic_vector(LeafBits_g downto 0);
    Finish      : in    std_logic;
    Drop        : in    std_logic;
    -- Whether two pages are dying.
    Gate_Page   : in    std_logic_vector(PageBits_g - 1 downto 0);
    Gate_Closed : out   std_logic;
    Page        : in    std_logic_vector(PageBits_g - 1 downto 0);
    IsDying     : out   std_logic
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
    Count : Count_t;
    Moved : std_logic;
    -- The next page to sweep, and pages that are left.
    At    : Page_t;
    Left  : Count_t;
  end record;

  type Ranges_t is array (0 to Ranges_g - 1) of Range_t;

  signal Ranges : Ranges_t;

  -- The page so many behind another one of its region.
  function behind (of_page : Page_t; pages : unsigned) return Page_t is
    variable page_v : Page_t := of_page;
  begin
    page_v(LeafBits_g - 1 downto 0) := page_v(LeafBits_g - 1 downto 0) + pages(LeafBits_g - 1 downto 0);
    return page_v;
  end function;

  function regionOf (which : Page_t) return unsigned is
  begin
    return which(PageBits_g - 1 downto LeafBits_g);
  end function;

  function withinOf (which : Page_t) return unsigned is
  begin
    return which(LeafBits_g - 1 downto 0);
  end function;

  function covers (all_ranges : Ranges_t; which : Page_t) return std_logic is
    variable covers_v : std_logic := '0';
  begin
    for i in all_ranges'range loop
      if all_ranges(i).Stage /= StageNone and regionOf(which) = regionOf(all_ranges(i).First)
        and withinOf(which) >= withinOf(all_ranges(i).First) and withinOf(which) <= withinOf(all_ranges(i).Last) then
        covers_v := '1';
      end if;
    end loop;
    return covers_v;
  end function;

begin

  IsFull      <= '0' when Ranges(Ranges_g - 1).Stage = StageNone else '1';
  IsSweeping  <= '1' when Ranges(0).Stage = StageSweeping else '0';
  First       <= std_logic_vector(Ranges(0).First);
  Last        <= std_logic_vector(Ranges(0).Last);
  Moved       <= Ranges(0).Moved;
  Count       <= std_logic_vector(Ranges(0).Count);
  At          <= std_logic_vector(Ranges(0).At);
  Left        <= std_logic_vector(Ranges(0).Left);
  Gate_Closed <= covers(Ranges, unsigned(Gate_Page));
  IsDying     <= covers(Ranges, unsigned(Page));

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
        ranges_v(0).At   := behind(Ranges(0).At, unsigned(By));
        ranges_v(0).Left := Ranges(0).Left - unsigned(By);
      end if;
      if Finish = '1' then
        ranges_v(0).Stage := StageEnding;
      end if;
      -- Behind the last one; nobody is added and dropped in one cycle.
      for i in ranges_v'range loop
        if Add = '1' and Ranges(i).Stage = StageNone and (i = 0 or Ranges(maximum(i, 1) - 1).Stage /= StageNone) then
          ranges_v(i) := (StageDraining, unsigned(Add_First), unsigned(Add_Last), unsigned(Add_Count), Add_Moved,
            unsigned(Add_First), unsigned(Add_Count));
        end if;
      end loop;
      if Drop = '1' then
        for i in 0 to Ranges_g - 2 loop
          ranges_v(i) := ranges_v(i + 1);
        end loop;
        ranges_v(Ranges_g - 1).Stage := StageNone;
      end if;
      Ranges <= ranges_v;
      if Rst = '1' then
        for i in Ranges'range loop
          Ranges(i).Stage <= StageNone;
        end loop;
      end if;
    end if;
  end process;

end architecture;
