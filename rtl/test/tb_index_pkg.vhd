-- Bench of the arithmetic of index_pkg beside that of the language: comparisons of numbers of all lengths up to 41
-- bits, and counting by one, of all numbers up to 8 bits.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library vunit_lib;
  context vunit_lib.vunit_context;

library work;
  use work.index_pkg.all;
  use work.random_pkg.all;

entity tb_index_pkg is
  generic (
    runner_cfg : string
  );
end entity;

architecture sim of tb_index_pkg is

begin

  p_test : process is
    variable random_v : Random_t;

    impure function number (bits : positive) return unsigned is
      variable number_v : unsigned(bits - 1 downto 0);
    begin
      for i in number_v'range loop
        number_v(i) := '1' when random_v.chance(50) else '0';
      end loop;
      return number_v;
    end function;

    procedure compare (bits : positive) is
      variable a_v      : unsigned(bits - 1 downto 0);
      variable b_v      : unsigned(bits - 1 downto 0);
      variable place_v  : natural;
      variable is_less_v : std_logic;
    begin
      a_v := number(bits);
      b_v := a_v;
      -- The same, or another one in a few bits, or in all.
      if random_v.chance(30) then
        b_v := number(bits);
      elsif random_v.chance(80) then
        place_v := random_v.pick(bits);
        b_v(place_v) := not b_v(place_v);
        place_v := random_v.pick(bits);
        b_v(place_v) := not b_v(place_v);
      end if;
      is_less_v := '1' when a_v < b_v else '0';
      check_equal(isBelow(a_v, b_v), is_less_v, to_hstring(a_v) & " and " & to_hstring(b_v));
    end procedure;

  begin
    random_v.seed(1, 3);
    test_runner_setup(runner, runner_cfg);

    while test_suite loop

      if run("a number is less than another as it should be") then
        for bits in 1 to 41 loop
          for i in 1 to 200 loop
            compare(bits);
          end loop;
        end loop;
      elsif run("one more and one less are what they should be") then
        for bits in 1 to 8 loop
          for i in 0 to 2 ** bits - 1 loop
            check(oneMore(to_unsigned(i, bits)) = to_unsigned((i + 1) mod 2 ** bits, bits), to_string(i) & " and 1");
            check(oneLess(to_unsigned(i, bits)) = to_unsigned((i - 1) mod 2 ** bits, bits), to_string(i) & " less 1");
          end loop;
        end loop;
      end if;

    end loop;

    test_runner_cleanup(runner);
  end process;

end architecture;
