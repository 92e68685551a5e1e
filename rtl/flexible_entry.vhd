-- One run of pages that a TLB of flexible length has: from First up to, without, Bound.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.index_pkg.all;

entity flexible_entry is
  generic (
    -- Of a page's number.
    KeyBits_g : positive
  );
  port (
    Clk      : in    std_logic;
    Rst      : in    std_logic;
    -- It has this page.
    Look_Key : in    std_logic_vector(KeyBits_g - 1 downto 0);
    Look_Hit : out   std_logic;
    -- It is made free, or takes another run.
    Clear    : in    std_logic;
    Put      : in    std_logic;
    First_In : in    std_logic_vector(KeyBits_g - 1 downto 0);
    Bound_In : in    std_logic_vector(KeyBits_g downto 0);
    -- What it has
    Held     : out   std_logic;
    First    : out   std_logic_vector(KeyBits_g - 1 downto 0);
    Bound    : out   std_logic_vector(KeyBits_g downto 0)
  );
end entity;

architecture rtl of flexible_entry is

  signal IsHeld  : std_logic;
  signal FirstIs : std_logic_vector(KeyBits_g - 1 downto 0);
  signal BoundIs : std_logic_vector(KeyBits_g downto 0);

begin

  Held     <= IsHeld;
  First    <= FirstIs;
  Bound    <= BoundIs;
  Look_Hit <= IsHeld and not isBelow(unsigned(Look_Key), unsigned(FirstIs))
              and isBelow(unsigned('0' & Look_Key), unsigned(BoundIs));

  p_entry : process (Clk) is
  begin
    if rising_edge(Clk) then
      if Clear = '1' then
        IsHeld <= '0';
      end if;
      if Put = '1' then
        IsHeld  <= '1';
        FirstIs <= First_In;
        BoundIs <= Bound_In;
      end if;
      if Rst = '1' then
        IsHeld <= '0';
      end if;
    end if;
  end process;

end architecture;
