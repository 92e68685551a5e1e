-- How often commands of the allocator have ended with each status, and how often the memory of the tables has
-- answered with an error, since the reset. Counts come round after 2^32.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.alloc_pkg.all;

entity alloc_counts is
  port (
    Clk          : in    std_logic;
    Rst          : in    std_logic;
    -- For one cycle: a command has ended with this status, and none did in the cycle before; a read, or a write, was
    -- answered with an error. Three cycles later it is counted.
    Answered     : in    std_logic;
    Status       : in    AllocStatus_t;
    Read_Failed  : in    std_logic;
    Write_Failed : in    std_logic;
    -- Which count: a status, or one of those of alloc_pkg for errors.
    Which        : in    AllocStatus_t;
    Count        : out   std_logic_vector(31 downto 0)
  );
end entity;

architecture rtl of alloc_counts is

  subtype Count_t is unsigned(31 downto 0);

  type Counts_t is array (0 to 2 ** AllocStatus_t'length - 1) of Count_t;

  signal Counts : Counts_t;
  -- Statuses that there were, as the memory is not cleared.
  signal Was    : std_logic_vector(Counts_t'range);
  signal Ended  : std_logic;
  signal EndedAs : natural range Counts_t'range;
  -- What is to be one more.
  signal Adds   : std_logic;
  signal AddsTo : natural range Counts_t'range;
  signal Old    : Count_t;
  signal Reads  : Count_t;
  signal Writes : Count_t;

begin

  Count <= std_logic_vector(Reads) when Which = AllocReadsFailed_c else
           std_logic_vector(Writes) when Which = AllocWritesFailed_c else
           std_logic_vector(Counts(to_integer(unsigned(Which)))) when Was(to_integer(unsigned(Which))) = '1' else
           (others => '0');

  p_answers : process (Clk) is
  begin
    if rising_edge(Clk) then
      Ended   <= Answered;
      EndedAs <= to_integer(unsigned(Status));
      Adds    <= Ended;
      AddsTo  <= EndedAs;
      Old     <= Counts(EndedAs);
      if Was(EndedAs) = '0' then
        Old <= (others => '0');
      end if;
      if Adds = '1' then
        Counts(AddsTo) <= Old + 1;
        Was(AddsTo)    <= '1';
      end if;
      if Rst = '1' then
        Ended <= '0';
        Adds  <= '0';
        Was   <= (others => '0');
      end if;
    end if;
  end process;

  p_errors : process (Clk) is
  begin
    if rising_edge(Clk) then
      if Read_Failed = '1' then
        Reads <= Reads + 1;
      end if;
      if Write_Failed = '1' then
        Writes <= Writes + 1;
      end if;
      if Rst = '1' then
        Reads  <= (others => '0');
        Writes <= (others => '0');
      end if;
    end if;
  end process;

end architecture;
