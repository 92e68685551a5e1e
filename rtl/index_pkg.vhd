-- Which of several signals are set, aligned runs, and places of a ring.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

package index_pkg is

  -- The number of the bit that is set, of which there is at most one; 0 if there is none.
  function indexOf (oneHot : std_logic_vector; bits : positive) return std_logic_vector;

  -- The number of the lowest bit that is set; that of the last place, or more, if there is none.
  function lowestOf (bits_set : std_logic_vector; bits : positive) return std_logic_vector;

  -- Whether any bit is set. Tools build it from the groups of so many bits, then from groups of six of
  -- these; that which fits one look-up table must be in a group, as they do not find out themselves.
  function isAny (bits : std_logic_vector; group_size : positive) return std_logic;

  -- Of each group of so many bits whether any is set.
  function anyOf (bits : std_logic_vector; group_size : positive) return std_logic_vector;

  -- The bits that do not matter in the smallest aligned run with both pages: those below and at the highest
  -- one that differs.
  function maskOf (first : std_logic_vector; last : std_logic_vector) return std_logic_vector;

  -- Whether a number is less than another of as many bits. Of long ones both halves are compared at once: a carry
  -- goes through one of them.
  function isBelow (a, b : unsigned) return std_logic;

  -- Whether two bits are set, or more.
  function isSeveral (bits : std_logic_vector) return std_logic;

  -- The bits from number `from` on, the others 0; that one too where `past` is 1.
  function behind (bits : std_logic_vector; from : natural; past : std_logic := '0') return std_logic_vector;

  -- The bits but for the one with this number, which is 0.
  function without (bits : std_logic_vector; place : natural) return std_logic_vector;

  -- The number of the first bit that is set, from number `from` on and then from the lowest; 0 if there is none.
  function firstFrom (bits_set : std_logic_vector; from : natural; bits : positive) return std_logic_vector;

  -- The place that follows in a ring of so many.
  function following (place : natural; places : positive) return natural;

  -- A number of few bits and 1, or less 1, without a carry: each bit is of those up to it, in one look-up table.
  function oneMore (number : unsigned) return unsigned;

  function oneLess (number : unsigned) return unsigned;

end package;

package body index_pkg is

  function indexOf (oneHot : std_logic_vector; bits : positive) return std_logic_vector is
    variable index_v : std_logic_vector(bits - 1 downto 0) := (others => '0');
  begin
    for place in oneHot'low to oneHot'high loop
      for b in index_v'range loop
        if (place / 2 ** b) mod 2 = 1 then
          index_v(b) := index_v(b) or oneHot(place);
        end if;
      end loop;
    end loop;
    return index_v;
  end function;

  function lowestOf (bits_set : std_logic_vector; bits : positive) return std_logic_vector is
    type Places_t is array (0 to 2 ** bits - 1) of std_logic_vector(bits - 1 downto 0);
    variable some_v   : std_logic_vector(2 ** bits - 1 downto 0) := (others => '0');
    variable places_v : Places_t := (others => (others => '0'));
  begin
    some_v(bits_set'length - 1 downto 0) := bits_set;
    -- Of each pair of halves the lower one, if it has any.
    for level in 0 to bits - 1 loop
      for i in 0 to 2 ** (bits - level - 1) - 1 loop
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

  function isAny (bits : std_logic_vector; group_size : positive) return std_logic is
    constant Groups_c : std_logic_vector := anyOf(bits, group_size);
  begin
    if Groups_c'length = 1 then
      return Groups_c(0);
    end if;
    return isAny(Groups_c, 6);
  end function;

  function anyOf (bits : std_logic_vector; group_size : positive) return std_logic_vector is
    constant Groups_c : positive := (bits'length + group_size - 1) / group_size;
    variable bits_v   : std_logic_vector(bits'length - 1 downto 0) := bits;
    variable groups_v : std_logic_vector(Groups_c - 1 downto 0) := (others => '0');
  begin
    for i in bits_v'reverse_range loop
      groups_v(i / group_size) := groups_v(i / group_size) or bits_v(i);
    end loop;
    return groups_v;
  end function;

  function maskOf (first : std_logic_vector; last : std_logic_vector) return std_logic_vector is
    variable mask_v : std_logic_vector(first'length - 1 downto 0) := first xor last;
  begin
    -- In steps of growing length, so that few follow one another.
    for step in 0 to 4 loop
      for i in 0 to mask_v'high loop
        if i + 2 ** step <= mask_v'high then
          mask_v(i) := mask_v(i) or mask_v(i + 2 ** step);
        end if;
      end loop;
    end loop;
    return mask_v;
  end function;

  function isSeveral (bits : std_logic_vector) return std_logic is
    constant Half_c : natural := bits'length / 2;
    variable bits_v : std_logic_vector(bits'length - 1 downto 0) := bits;
  begin
    if bits'length < 2 then
      return '0';
    end if;
    -- In one of the halves, or one in each.
    return isSeveral(bits_v(bits_v'high downto Half_c)) or isSeveral(bits_v(Half_c - 1 downto 0))
      or (or (bits_v(bits_v'high downto Half_c)) and or (bits_v(Half_c - 1 downto 0)));
  end function;

  function isBelow (a, b : unsigned) return std_logic is
    constant Half_c : natural := (a'length + 1) / 2;
    constant A_c    : unsigned(a'length - 1 downto 0) := a;
    constant B_c    : unsigned(a'length - 1 downto 0) := b;

    function less (x, y : unsigned) return std_logic is
    begin
      if x < y then
        return '1';
      end if;
      return '0';
    end function;

  begin
    if a'length <= 32 then
      return less(A_c, B_c);
    end if;
    return less(A_c(a'length - 1 downto Half_c), B_c(a'length - 1 downto Half_c))
      or (less(A_c(Half_c - 1 downto 0), B_c(Half_c - 1 downto 0))
        and not less(B_c(a'length - 1 downto Half_c), A_c(a'length - 1 downto Half_c)));
  end function;

  function behind (bits : std_logic_vector; from : natural; past : std_logic := '0') return std_logic_vector is
    -- By groups, so that tools do not compare the whole number for each bit: those before that of `from`, which is
    -- that, and which bits of it are before it.
    constant Group_c  : positive := 8;
    constant Groups_c : positive := (bits'length + Group_c - 1) / Group_c;
    variable before_v : std_logic_vector(Groups_c - 1 downto 0) := (others => '0');
    variable is_v     : std_logic_vector(Groups_c - 1 downto 0) := (others => '0');
    variable below_v  : std_logic_vector(Group_c - 1 downto 0) := (others => '0');
    variable bits_v   : std_logic_vector(bits'length - 1 downto 0) := bits;
  begin
    for g in is_v'range loop
      before_v(g) := '1' when g < from / Group_c else '0';
      is_v(g)     := '1' when g = from / Group_c else '0';
    end loop;
    for i in below_v'range loop
      below_v(i) := '1' when i < from mod Group_c or (past = '1' and i = from mod Group_c) else '0';
    end loop;
    for i in bits_v'range loop
      bits_v(i) := bits_v(i) and not (before_v(i / Group_c) or (is_v(i / Group_c) and below_v(i mod Group_c)));
    end loop;
    return bits_v;
  end function;

  function without (bits : std_logic_vector; place : natural) return std_logic_vector is
    -- By groups, as above.
    constant Group_c  : positive := 8;
    variable is_v     : std_logic_vector((bits'length + Group_c - 1) / Group_c - 1 downto 0);
    variable within_v : std_logic_vector(Group_c - 1 downto 0);
    variable bits_v   : std_logic_vector(bits'length - 1 downto 0) := bits;
  begin
    for g in is_v'range loop
      is_v(g) := '1' when g = place / Group_c else '0';
    end loop;
    for i in within_v'range loop
      within_v(i) := '1' when i = place mod Group_c else '0';
    end loop;
    for i in bits_v'range loop
      bits_v(i) := bits_v(i) and not (is_v(i / Group_c) and within_v(i mod Group_c));
    end loop;
    return bits_v;
  end function;

  function firstFrom (bits_set : std_logic_vector; from : natural; bits : positive) return std_logic_vector is
    variable rest_v : std_logic_vector(bits_set'length - 1 downto 0) := behind(bits_set, from);
    constant None_c : std_logic_vector(bits - 1 downto 0) := (others => '0');
  begin
    if or (rest_v) = '1' then
      return lowestOf(rest_v, bits);
    elsif or (bits_set) = '1' then
      return lowestOf(bits_set, bits);
    end if;
    return None_c;
  end function;

  function following (place : natural; places : positive) return natural is
  begin
    if place = places - 1 then
      return 0;
    end if;
    return place + 1;
  end function;

  function oneMore (number : unsigned) return unsigned is
    variable number_v : unsigned(number'length - 1 downto 0) := number;
    variable more_v   : unsigned(number'length - 1 downto 0);
    -- All bits below are set.
    variable all_v    : std_logic := '1';
  begin
    for i in number_v'reverse_range loop
      more_v(i) := number_v(i) xor all_v;
      all_v     := all_v and number_v(i);
    end loop;
    return more_v;
  end function;

  function oneLess (number : unsigned) return unsigned is
  begin
    return not oneMore(not number);
  end function;

end package body;
