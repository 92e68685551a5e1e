-- Rows of bits, by words of 64.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

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
    variable word_v : RowWord_t := (others => '0');
  begin
    for i in word_v'range loop
      if i >= from then
        word_v(i) := '1';
      end if;
    end loop;
    return word_v;
  end function;

  function bitsBelow (bound : unsigned(RowShift_c - 1 downto 0)) return RowWord_t is
  begin
    return not bitsFrom(bound);
  end function;

end package body;
