-- Rows of bits, by words of 64.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

package bit_pkg is

  constant RowShift_c : positive := 6;
  constant RowBits_c  : positive := 2 ** RowShift_c;

  subtype RowWord_t is std_logic_vector(RowBits_c - 1 downto 0);

  -- The lowest bit that is set: of each pair of halves the lower one, if it has any.
  function lowestOf (word : RowWord_t) return unsigned;

  -- All bits from `from` on.
  function bitsFrom (from : unsigned(RowShift_c - 1 downto 0)) return RowWord_t;

  -- The bits below `bound`.
  function bitsBelow (bound : unsigned(RowShift_c - 1 downto 0)) return RowWord_t;

end package;

package body bit_pkg is

  function lowestOf (word : RowWord_t) return unsigned is
    type Places_t is array (0 to RowBits_c - 1) of unsigned(RowShift_c - 1 downto 0);
    variable some_v   : RowWord_t := word;
    variable places_v : Places_t := (others => (others => '0'));
  begin
    for level in 0 to RowShift_c - 1 loop
      for i in 0 to RowBits_c / 2 ** (level + 1) - 1 loop
        if some_v(2 * i) = '1' then
          places_v(i) := places_v(2 * i);
        else
          places_v(i)        := places_v(2 * i + 1);
          places_v(i)(level) := '1';
        end if;
        some_v(i) := some_v(2 * i) or some_v(2 * i + 1);
      end loop;
    end loop;
    return places_v(0);
  end function;

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
