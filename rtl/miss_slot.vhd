-- One walk that a translator has asked for, and those who wait for it.
--
-- It is taken when the walk is asked for, and free again when the last request that waits for its
-- result has been answered. Requests for its page find it until the result is kept elsewhere, or is
-- known to be a fault, and as long as nothing says that the page is not what it was.

library ieee;
  use ieee.std_logic_1164.all;

library work;
  use work.index_pkg.all;

entity miss_slot is
  generic (
    -- Pages of the window, as a power of two.
    WindowBits_g : positive
  );
  port (
    Clk         : in    std_logic;
    Rst         : in    std_logic;
    -- A request for this page may wait for the walk.
    Look_Page   : in    std_logic_vector(WindowBits_g - 1 downto 0);
    Look_Found  : out   std_logic;
    -- One does that found it.
    Join        : in    std_logic;
    -- The slot is taken for the walk of Look_Page; it is free. Nobody who comes later may wait for it.
    Take        : in    std_logic;
    Take_Dropped : in    std_logic;
    -- The pages of this aligned run are not what they were.
    Inval_Valid : in    std_logic;
    Inval_Page  : in    std_logic_vector(WindowBits_g - 1 downto 0);
    Inval_Mask  : in    std_logic_vector(WindowBits_g - 1 downto 0);
    -- The result has come; in the cycle after that it is found no more.
    Walked      : in    std_logic;
    Close       : in    std_logic;
    -- Nobody waits any more, but who joins in this cycle.
    Leave       : in    std_logic;
    IsFree      : out   std_logic;
    IsWalking   : out   std_logic;
    -- The result is still true of the page.
    IsOpen      : out   std_logic
  );
end entity;

architecture rtl of miss_slot is

  signal Page    : std_logic_vector(WindowBits_g - 1 downto 0);
  -- Somebody waits.
  signal Used    : std_logic;
  signal Walking : std_logic;
  signal Sharing : std_logic;
  signal Dropped : std_logic;

begin

  Dropped    <= Inval_Valid and not isAny((Page xor Inval_Page) and not Inval_Mask, 2);
  Look_Found <= not isAny((Page xor Look_Page) & not Sharing, 3);
  IsFree     <= not Used and not Sharing;
  IsWalking  <= Walking;
  IsOpen     <= Sharing;

  p_slot : process (Clk) is
  begin
    if rising_edge(Clk) then
      if Dropped = '1' or Close = '1' then
        Sharing <= '0';
      end if;
      if Walked = '1' then
        Walking <= '0';
      end if;
      if Leave = '1' then
        Used <= '0';
      end if;
      if Join = '1' then
        Used <= '1';
      end if;
      if Take = '1' then
        Used    <= '1';
        Walking <= '1';
        Sharing <= not Take_Dropped;
      end if;
      -- Nobody asks for the page while it is not shared: the last one there was is that of the walk.
      if Sharing = '0' then
        Page <= Look_Page;
      end if;
      if Rst = '1' then
        Used    <= '0';
        Walking <= '0';
        Sharing <= '0';
      end if;
    end if;
  end process;

end architecture;
