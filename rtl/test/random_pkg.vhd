-- Random choices of a bench, which a seed repeats.

library ieee;
  use ieee.math_real.all;

package random_pkg is

  type Random_t is protected

    procedure seed (first, second : positive);

    -- True in so many of a hundred cases.
    impure function chance (percent : natural) return boolean;

    -- A number below a bound.
    impure function pick (below : positive) return natural;

  end protected Random_t;

end package;

package body random_pkg is

  type Random_t is protected body

    variable seed1_v : positive := 1;
    variable seed2_v : positive := 1;

    procedure seed (first, second : positive) is
    begin
      seed1_v := first;
      seed2_v := second;
    end procedure;

    impure function chance (percent : natural) return boolean is
      variable x_v : real;
    begin
      uniform(seed1_v, seed2_v, x_v);
      return x_v * 100.0 < real(percent);
    end function;

    impure function pick (below : positive) return natural is
      variable x_v : real;
    begin
      uniform(seed1_v, seed2_v, x_v);
      return natural(floor(x_v * real(below))) mod below;
    end function;

  end protected body Random_t;

end package body;
