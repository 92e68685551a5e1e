-- A queue of at most Depth_g words; the oldest is shown at the output.
--
-- What goes in is at the output one cycle later at the earliest. Depth_g need not be a power of two.
-- The memory is read asynchronously, so that tools put it into look-up tables.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.index_pkg.all;
  use work.window_pkg.all;

entity fifo is
  generic (
    Width_g : positive;
    Depth_g : positive
  );
  port (
    Clk       : in    std_logic;
    Rst       : in    std_logic;
    In_Valid  : in    std_logic;
    In_Ready  : out   std_logic;
    In_Data   : in    std_logic_vector(Width_g - 1 downto 0);
    Out_Valid : out   std_logic;
    Out_Ready : in    std_logic;
    Out_Data  : out   std_logic_vector(Width_g - 1 downto 0);
    -- How many words it holds.
    Level     : out   natural range 0 to Depth_g;
    -- Where the word that comes in next and the oldest have their places, until they leave.
    In_Place  : out   natural range 0 to Depth_g;
    Out_Place : out   natural range 0 to Depth_g
  );
end entity;

architecture rtl of fifo is

  -- Two at least: tools stumble over an index that has no bits.
  function places return positive is
  begin
    if Depth_g = 1 then
      return 2;
    end if;
    return Depth_g;
  end function;

  type Memory_t is array (0 to places - 1) of std_logic_vector(Width_g - 1 downto 0);

  signal Memory  : Memory_t;
  signal First   : natural range 0 to places - 1;
  signal Free    : natural range 0 to places - 1;
  signal Held    : unsigned(bitsOf(Depth_g + 1) - 1 downto 0);
  -- It holds fewer words than it may; it holds any.
  signal HasRoom : std_logic;
  signal HasSome : std_logic;
  signal Push    : std_logic;
  signal Pop     : std_logic;

begin

  In_Ready  <= HasRoom;
  Out_Valid <= HasSome;
  Out_Data  <= Memory(First);
  Level     <= to_integer(Held);
  In_Place  <= Free;
  Out_Place <= First;

  Push <= In_Valid and HasRoom;
  Pop  <= Out_Ready and HasSome;

  p_store : process (Clk) is
  begin
    if rising_edge(Clk) then
      if Push = '1' then
        Memory(Free) <= In_Data;
      end if;
    end if;
  end process;

  p_places : process (Clk) is
  begin
    if rising_edge(Clk) then
      if Push = '1' then
        Free <= following(Free, places);
      end if;
      if Pop = '1' then
        First <= following(First, places);
      end if;
      -- Who comes and who goes is known late in a cycle: all else hangs on registers alone.
      if Push = '1' and Pop = '0' then
        Held    <= oneMore(Held);
        HasRoom <= '0' when Held = Depth_g - 1 else '1';
        HasSome <= '1';
      elsif Push = '0' and Pop = '1' then
        Held    <= oneLess(Held);
        HasRoom <= '1';
        HasSome <= '0' when Held = 1 else '1';
      end if;
      if Rst = '1' then
        First   <= 0;
        Free    <= 0;
        Held    <= (others => '0');
        HasRoom <= '1';
        HasSome <= '0';
      end if;
    end if;
  end process;

end architecture;
