-- The memory that the benches' tables lie in: words of 64 bits, one memory for each simulation.

library ieee;
  use ieee.std_logic_1164.all;

package memory_pkg is

  -- Reads beyond are errors.
  constant MemoryWords_c : positive := 256;

  subtype Word_t is std_logic_vector(63 downto 0);

  type Memory_t is protected

    procedure write (index : natural; word : Word_t);

    impure function read (index : natural) return Word_t;

  end protected;

  shared variable Memory : Memory_t;

end package;

package body memory_pkg is

  type Memory_t is protected body

    type Words_t is array (0 to MemoryWords_c - 1) of Word_t;

    variable words : Words_t := (others => (others => '0'));

    procedure write (index : natural; word : Word_t) is
    begin
      words(index) := word;
    end procedure;

    impure function read (index : natural) return Word_t is
    begin
      return words(index);
    end function;

  end protected body;

end package body;
