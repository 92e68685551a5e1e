-- What is kept of each region of the window, in block RAM. After a reset it clears itself, a region a cycle.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

entity region_store is
  generic (
    IndexBits_g  : positive;
    RecordBits_g : positive
  );
  port (
    Clk      : in    std_logic;
    Rst      : in    std_logic;
    -- All records are cleared; nothing is written before.
    Ready    : out   std_logic;
    Write    : in    std_logic;
    Write_At : in    std_logic_vector(IndexBits_g - 1 downto 0);
    Written  : in    std_logic_vector(RecordBits_g - 1 downto 0);
    -- The record that is there in the next cycle.
    Read_At  : in    std_logic_vector(IndexBits_g - 1 downto 0);
    Kept     : out   std_logic_vector(RecordBits_g - 1 downto 0)
  );
end entity;

architecture rtl of region_store is

  type Records_t is array (0 to 2 ** IndexBits_g - 1) of std_logic_vector(RecordBits_g - 1 downto 0);

  signal Records : Records_t;
  -- The record that is cleared next; the highest bit: all are.
  signal Clear   : unsigned(IndexBits_g downto 0);
  signal IsClear : std_logic;
  signal Enable  : std_logic;
  signal At      : unsigned(IndexBits_g - 1 downto 0);
  signal Word    : std_logic_vector(RecordBits_g - 1 downto 0);

begin

  IsClear <= Clear(IndexBits_g);
  Ready   <= IsClear;
  Enable  <= Write or not IsClear;
  At      <= unsigned(Write_At) when IsClear = '1' else Clear(IndexBits_g - 1 downto 0);
  Word    <= Written when IsClear = '1' else (others => '0');

  p_records : process (Clk) is
  begin
    if rising_edge(Clk) then
      if Enable = '1' then
        Records(to_integer(At)) <= Word;
      end if;
      Kept <= Records(to_integer(unsigned(Read_At)));
    end if;
  end process;

  p_clear : process (Clk) is
  begin
    if rising_edge(Clk) then
      if IsClear = '0' then
        Clear <= Clear + 1;
      end if;
      if Rst = '1' then
        Clear <= (others => '0');
      end if;
    end if;
  end process;

end architecture;
