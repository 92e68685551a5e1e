-- The last pages that were touched for the first time, and what a walk's ticket is worth.
--
-- Each walk carries a ticket: the number of changes when it began to read. If no command has written words
-- since, and all touches since are remembered, then the page is one of these, or its word is still what the walk
-- has read. Else the word has to be read again. The rules are those of the model's `touch.rs`.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.window_pkg.all;

entity recent_touches is
  generic (
    -- Of a page's number in the window, and of what is kept about it.
    PageBits_g   : positive;
    InfoBits_g   : positive;
    -- Of a ticket: a walk is answered before there were so many changes, as a power of two.
    TicketBits_g : positive := 24;
    -- Touches that are remembered.
    Count_g      : positive := 16
  );
  port (
    Clk        : in    std_logic;
    Rst        : in    std_logic;
    -- For a walk that begins to read in this cycle, or later.
    Ticket     : out   std_logic_vector(TicketBits_g - 1 downto 0);
    -- A command has written words, which are visible: tickets of before are worth nothing.
    Changed    : in    std_logic;
    -- A page has been touched, and its word is visible.
    Touched    : in    std_logic;
    Page       : in    std_logic_vector(PageBits_g - 1 downto 0);
    Info       : in    std_logic_vector(InfoBits_g - 1 downto 0);
    -- The ticket of a walk, and in the next cycle the page for which it asks; nothing changes in either. Then
    -- Ready is 0, until it is known whether the ticket is too old, and, if it is not, whether the page was
    -- touched since, and what was kept.
    Of_Ticket  : in    std_logic_vector(TicketBits_g - 1 downto 0);
    Find       : in    std_logic;
    Ready      : out   std_logic;
    Is_Old     : out   std_logic;
    Is_Touched : out   std_logic;
    Found      : out   std_logic_vector(InfoBits_g - 1 downto 0)
  );
end entity;

architecture rtl of recent_touches is

  constant IndexBits_c : positive := bitsOf(Count_g);

  subtype Count_t is natural range 0 to Count_g;

  subtype Index_t is unsigned(IndexBits_c - 1 downto 0);

  type Pages_t is array (0 to 2 ** IndexBits_c - 1) of std_logic_vector(PageBits_g - 1 downto 0);

  type Infos_t is array (0 to 2 ** IndexBits_c - 1) of std_logic_vector(InfoBits_g - 1 downto 0);

  -- The place of the next touch; those before it are the last ones.
  signal Pages      : Pages_t;
  signal Infos      : Infos_t;
  signal Place      : Index_t;
  signal Changes    : unsigned(TicketBits_g - 1 downto 0);
  -- Touches since a command has written words, as many as are remembered.
  signal Since      : Count_t;
  -- Changes since the ticket of the cycle before.
  signal Age        : unsigned(TicketBits_g - 1 downto 0);
  -- The search: the place that is looked at, and how many are to be looked at with it.
  signal Searching  : std_logic;
  signal At         : Index_t;
  signal Left       : Count_t;
  signal IsOld      : std_logic;
  signal IsTouched  : std_logic;

begin

  assert IndexBits_c < TicketBits_g
    report "recent_touches: more touches than tickets" severity failure;

  Ticket     <= std_logic_vector(Changes);
  Ready      <= not Searching;
  Is_Old     <= IsOld;
  Is_Touched <= IsTouched;
  Found      <= Infos(to_integer(At));

  p_changes : process (Clk) is
  begin
    if rising_edge(Clk) then
      if Touched = '1' then
        Pages(to_integer(Place)) <= Page;
        Infos(to_integer(Place)) <= Info;
        Place <= Place + 1;
        if Since /= Count_g then
          Since <= Since + 1;
        end if;
      end if;
      if Changed = '1' then
        Since <= 0;
      end if;
      if Changed = '1' or Touched = '1' then
        Changes <= Changes + 1;
      end if;
      if Rst = '1' then
        Place   <= (others => '0');
        Since   <= 0;
        Changes <= (others => '0');
      end if;
    end if;
  end process;

  p_search : process (Clk) is
  begin
    if rising_edge(Clk) then
      Age <= Changes - unsigned(Of_Ticket);
      if Searching = '1' then
        if Pages(to_integer(At)) = Page then
          IsTouched <= '1';
          Searching <= '0';
        elsif Left = 1 then
          Searching <= '0';
        else
          At   <= At - 1;
          Left <= Left - 1;
        end if;
      end if;
      if Find = '1' then
        At        <= Place - 1;
        IsTouched <= '0';
        IsOld     <= '1';
        Searching <= '0';
        if Age <= to_unsigned(Since, TicketBits_g) then
          IsOld <= '0';
          Left  <= to_integer(Age(IndexBits_c downto 0));
          if Age /= 0 then
            Searching <= '1';
          end if;
        end if;
      end if;
      if Rst = '1' then
        Searching <= '0';
      end if;
    end if;
  end process;

end architecture;
