-- Rows of bits, by words of 64.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.index_pkg.all;

package bit_pkg is

  constant RowShift_c : positive := 6;
  constant RowBits_c  : positive := 2 ** RowShift_c;

  subtype RowWord_t is std_logic_vector(RowBits_c - 1 downto 0);

  -- All bits from `from` on.
  function bitsFrom (from : unsigned(RowShift_c - 1 downto 0)) return RowWord_t;

  -- The bits below `bound`.
  function bitsBelow (bound : unsigned(RowShift_c - 1 downto 0)) return RowWord_t;

end package;

package body bit_pkg is

  function bitsFrom (from : unsigned(RowShift_c - 1 downto 0)) return RowWord_t is
    constant All_c : RowWord_t := (others => '1');
  begin
    return behind(All_c, to_integer(from));
  end function;

  function bitsBelow (bound : unsigned(RowShift_c - 1 downto 0)) return RowWord_t is
  begin
    return not bitsFrom(bound);
  end function;

end package body;
