-- The root of the window's tables, in block RAM: what its words say, one a read.
--
-- Words are checked when they are written, and kept as what they say. After a reset the root says
-- that nothing is mapped: it clears itself, one word a cycle, and takes no writes meanwhile. A read
-- sees what was written in cycles before it; one in the same cycle sees the word of before.
-- Timing, ports and generics: docs/rtl/walker.md.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.window_pkg.all;

entity root_table is
  generic (
    -- Words, as a power of two.
    RootBits_g  : positive;
    -- Pages of a run, as a power of two.
    LeafBits_g  : positive;
    -- Of the numbers of frames and of tables.
    FrameBits_g : positive;
    TableBits_g : positive
  );
  port (
    Clk         : in    std_logic;
    Rst         : in    std_logic;
    -- It is being cleared.
    Clearing    : out   std_logic;
    Write_Valid : in    std_logic;
    Write_Ready : out   std_logic;
    Write_Index : in    std_logic_vector(RootBits_g - 1 downto 0);
    Write_Word  : in    std_logic_vector(WordBits_c - 1 downto 0);
    -- What the word says is there one cycle later.
    Read_Index  : in    std_logic_vector(RootBits_g - 1 downto 0);
    Read_Entry  : out   Entry_t
  );
end entity;

architecture rtl of root_table is

  function larger (a, b : positive) return positive is
  begin
    if a > b then
      return a;
    end if;
    return b;
  end function;

  constant Number_c : positive := larger(FrameBits_g, TableBits_g);

  subtype Kept_t is std_logic_vector(AspectBits_c + Number_c - 1 downto 0);

  type Words_t is array (0 to 2 ** RootBits_g - 1) of Kept_t;

  signal Words : Words_t;

  -- The word that is cleared next; its highest bit says that all are.
  signal Clear : unsigned(RootBits_g downto 0);
  signal Write : std_logic;
  signal Index : std_logic_vector(RootBits_g - 1 downto 0);
  signal Word  : std_logic_vector(WordBits_c - 1 downto 0);
  signal Found : Kept_t;

begin

  Clearing    <= not Clear(RootBits_g);
  Write_Ready <= Clear(RootBits_g);

  Write <= Write_Valid or not Clear(RootBits_g);
  Index <= Write_Index when Clear(RootBits_g) = '1' else std_logic_vector(Clear(RootBits_g - 1 downto 0));
  Word  <= Write_Word when Clear(RootBits_g) = '1' else (others => '0');

  p_words : process (Clk) is
  begin
    if rising_edge(Clk) then
      if Write = '1' then
        Words(to_integer(unsigned(Index))) <= toVector(
          rootEntry(Word, FrameBits_g, TableBits_g, LeafBits_g), Number_c);
      end if;
      Found <= Words(to_integer(unsigned(Read_Index)));
    end if;
  end process;

  Read_Entry <= toEntry(Found, Number_c);

  p_clear : process (Clk) is
  begin
    if rising_edge(Clk) then
      if Clear(RootBits_g) = '0' then
        Clear <= Clear + 1;
      end if;
      if Rst = '1' then
        Clear <= (others => '0');
      end if;
    end if;
  end process;

end architecture;
