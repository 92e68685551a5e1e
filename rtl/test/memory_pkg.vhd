-- The memory that the benches' tables lie in: words of 64 bits, one memory for each simulation.

library ieee;
  use ieee.std_logic_1164.all;

package memory_pkg is

  -- A power of two.
  constant MemoryWords_c : positive := 4096;

  subtype Word_t is std_logic_vector(63 downto 0);

  type Memory_t is protected

    procedure write (index : natural; word : Word_t);

    impure function read (index : natural) return Word_t;

    -- Whether reads of the word are errors; those of words beyond the memory always are.
    procedure spoil (index : natural; spoilt : boolean);

    impure function isSpoilt (index : natural) return boolean;

  end protected;

  shared variable Memory : Memory_t;

end package;

package body memory_pkg is

  type Memory_t is protected body

    type Words_t is array (0 to MemoryWords_c - 1) of Word_t;

    type Flags_t is array (0 to MemoryWords_c - 1) of boolean;

    variable words : Words_t := (others => (others => '0'));
    variable flags : Flags_t := (others => false);

    procedure write (index : natural; word : Word_t) is
    begin
      words(index) := word;
    end procedure;

    impure function read (index : natural) return Word_t is
    begin
      return words(index);
    end function;

    procedure spoil (index : natural; spoilt : boolean) is
    begin
      flags(index) := spoilt;
    end procedure;

    impure function isSpoilt (index : natural) return boolean is
    begin
      if index >= MemoryWords_c then
        return true;
      end if;
      return flags(index);
    end function;

  end protected body;

end package body;
