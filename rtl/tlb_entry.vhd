-- One translation that a translator holds: which pages it is of. Where they are is in the translator.
--
-- It is of an aligned run of pages: Mask has a 1 for each bit of a page's number that does not matter.

library ieee;
  use ieee.std_logic_1164.all;

library work;
  use work.index_pkg.all;

entity tlb_entry is
  generic (
    -- Pages of the window, and of the largest run, as powers of two.
    WindowBits_g : positive;
    RunBits_g    : positive
  );
  port (
    Clk         : in    std_logic;
    Rst         : in    std_logic;
    -- It is of this page.
    Look_Page   : in    std_logic_vector(WindowBits_g - 1 downto 0);
    Look_Hit    : out   std_logic;
    -- It is dropped if it is of a page of this aligned run: because that is not what it was, or because
    -- another entry is filled with it.
    Inval_Valid : in    std_logic;
    Fill_Valid  : in    std_logic;
    Drop_Page   : in    std_logic_vector(WindowBits_g - 1 downto 0);
    Drop_Mask   : in    std_logic_vector(WindowBits_g - 1 downto 0);
    -- This entry is the one that is filled with the run.
    Fill_Here   : in    std_logic
  );
end entity;

architecture rtl of tlb_entry is

  signal IsHeld   : std_logic;
  signal Page     : std_logic_vector(WindowBits_g - 1 downto 0);
  signal Mask     : std_logic_vector(RunBits_g - 1 downto 0);
  signal Overlaps : std_logic;

  subtype Low_t is natural range RunBits_g - 1 downto 0;
  subtype High_t is natural range WindowBits_g - 1 downto RunBits_g;

begin

  Look_Hit <= not isAny(
    anyOf(((Page(Low_t) xor Look_Page(Low_t)) and not Mask) & not IsHeld, 2)
    & anyOf(Page(High_t) xor Look_Page(High_t), 3), 6);
  Overlaps <= not isAny(
    ((Page(Low_t) xor Drop_Page(Low_t)) and not (Mask or Drop_Mask(Low_t)))
    & anyOf((Page(High_t) xor Drop_Page(High_t)) and not Drop_Mask(High_t), 2), 6);

  p_entry : process (Clk) is
  begin
    if rising_edge(Clk) then
      if (Inval_Valid = '1' or Fill_Valid = '1') and Overlaps = '1' then
        IsHeld <= '0';
      end if;
      if Fill_Valid = '1' and Fill_Here = '1' then
        IsHeld <= '1';
        Page   <= Drop_Page;
        Mask   <= Drop_Mask(RunBits_g - 1 downto 0);
      end if;
      if Rst = '1' then
        IsHeld <= '0';
      end if;
    end if;
  end process;

end architecture;
