-- Words of the card's window: its table entries, and how a walk or a translation ends.
--
-- The layout of a word is that of section 8 of docs/card-interface.md; the model of it is
-- crates/card/src/window. Numbers of statuses are those of `WindowStatus` there.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

package window_pkg is

  constant WordBits_c    : positive := 64;
  constant NumberBits_c  : positive := 32;
  constant MemoryBits_c  : positive := 4;
  constant SizeBits_c    : positive := 5;
  -- Bytes of a word, as a power of two.
  constant WordShift_c   : positive := 3;

  -- Where the fields of a word lie.
  constant ValidBit_c    : natural := 0;
  constant WritableBit_c : natural := 1;
  constant OwnBit_c      : natural := 2;
  constant AccessedBit_c : natural := 3;
  constant DirtyBit_c    : natural := 4;
  constant SizeLow_c     : natural := 5;
  constant MemoryLow_c   : natural := 12;
  constant TableBit_c    : natural := 16;
  constant NumberLow_c   : natural := 32;

  -- Of the driver's tables: words of one as a power of two, levels, where the root word has their number, and the
  -- memory that stands for the bus.
  constant SpaceStep_c      : positive := 9;
  constant LevelsMax_c      : positive := 6;
  constant RootLevelsLow_c  : natural := 1;
  constant RootLevelsHigh_c : natural := 3;
  constant BusMemory_c      : std_logic_vector(MemoryBits_c - 1 downto 0) := (others => '1');

  subtype Status_t is std_logic_vector(2 downto 0);

  constant StatusOk_c        : Status_t := "000";
  -- The word of the page, or of its table, is not valid.
  constant StatusNotMapped_c : Status_t := "001";
  -- A write to a page that may only be read.
  constant StatusReadOnly_c  : Status_t := "010";
  -- The memory has answered a read of the walk with an error.
  constant StatusBusError_c  : Status_t := "011";
  -- A valid word that no allocator writes: a frame beyond the memory, a run that is not aligned.
  constant StatusBadEntry_c  : Status_t := "100";
  -- Comes from the allocator alone: a page is touched for the first time, and no frame is left.
  constant StatusNoFrame_c   : Status_t := "101";

  -- What a word says about a page or a run.
  type Entry_t is record
    Status   : Status_t;
    -- The number is that of a table.
    IsTable  : std_logic;
    Writable : std_logic;
    Memory   : std_logic_vector(MemoryBits_c - 1 downto 0);
    Size     : std_logic_vector(SizeBits_c - 1 downto 0);
    Number   : std_logic_vector(NumberBits_c - 1 downto 0);
  end record;

  -- Of a word that is not valid, what an allocator has written into it beside what an entry has: bits 3, 4, 10, 11 and
  -- 17 to 31.
  constant HiddenBits_c : positive := 19;

  -- Of an entry as it is kept, beside those of its number.
  constant AspectBits_c : positive := 3 + 1 + 1 + MemoryBits_c + SizeBits_c;

  -- Of the largest power of two that is no more than `n`, the exponent.
  function exponent (n : positive) return natural;

  -- Bits of the number of one of so many places; one at least, as tools stumble over vectors of none.
  function bitsOf (places : positive) return positive;

  -- A word of the leaf level. `frameBits`: of a frame's number; `sizeMax`: the largest run, as a
  -- power of two of pages.
  function leafEntry (
    word      : std_logic_vector(WordBits_c - 1 downto 0);
    readFailed : boolean;
    frameBits : positive;
    sizeMax   : natural
  ) return Entry_t;

  -- The entry of a word with these bits for its number, if the word is not valid; and the word as it was, without its
  -- number.
  function hiddenIn (e : Entry_t; word : std_logic_vector(WordBits_c - 1 downto 0)) return Entry_t;

  function hiddenWord (e : Entry_t) return std_logic_vector;

  -- A word of the root: a table's, or the entry of a whole run of 2**`leafBits` pages.
  function rootEntry (
    word      : std_logic_vector(WordBits_c - 1 downto 0);
    frameBits : positive;
    tableBits : positive;
    leafBits  : positive
  ) return Entry_t;

  -- The driver's root word: the table on top.
  function spaceRoot (word : std_logic_vector(WordBits_c - 1 downto 0); tableBits : positive) return Entry_t;

  -- A word of the driver's leaf level. Who writes the tables sets its bits: one that is not accessed says nothing, one
  -- that is not dirty lets nobody write. `step`: the largest run, as a power of two of pages.
  function spaceEntry (
    word       : std_logic_vector(WordBits_c - 1 downto 0);
    readFailed : boolean;
    frameBits  : positive;
    step       : positive
  ) return Entry_t;

  -- A word of the driver's tables above: a table's, or where the next level is the leaves' (`isLowest`) the entry of a
  -- run of 2**`step` pages.
  function spaceDirectory (
    word       : std_logic_vector(WordBits_c - 1 downto 0);
    readFailed : boolean;
    frameBits  : positive;
    tableBits  : positive;
    step       : positive;
    isLowest   : boolean
  ) return Entry_t;

  -- An entry as it is kept, with the lowest `numberBits` of its number, and back.
  function toVector (e : Entry_t; numberBits : positive) return std_logic_vector;

  function toEntry (v : std_logic_vector; numberBits : positive) return Entry_t;

end package;

package body window_pkg is

  function exponent (n : positive) return natural is
    variable exponent_v : natural := 0;
  begin
    for i in 0 to 30 loop
      if n / 2 ** i > 0 then
        exponent_v := i;
      end if;
    end loop;
    return exponent_v;
  end function;

  function bitsOf (places : positive) return positive is
  begin
    if places <= 2 then
      return 1;
    end if;
    return exponent(places - 1) + 1;
  end function;

  -- Whether a number needs more bits than there are.
  function isBeyond (number : std_logic_vector(NumberBits_c - 1 downto 0); bits : positive) return boolean is
    variable beyond_v : std_logic := '0';
  begin
    for i in number'range loop
      if i >= bits then
        beyond_v := beyond_v or number(i);
      end if;
    end loop;
    return beyond_v = '1';
  end function;

  -- Whether the lowest `bits` are not all 0.
  function isUnaligned (number : std_logic_vector(NumberBits_c - 1 downto 0); bits : natural) return boolean is
    variable within_v : std_logic := '0';
  begin
    for i in number'range loop
      if i < bits then
        within_v := within_v or number(i);
      end if;
    end loop;
    return within_v = '1';
  end function;

  function fields (word : std_logic_vector(WordBits_c - 1 downto 0); readFailed : boolean) return Entry_t is
    variable e : Entry_t;
  begin
    e.IsTable  := word(TableBit_c);
    e.Writable := word(WritableBit_c);
    e.Memory   := word(MemoryLow_c + MemoryBits_c - 1 downto MemoryLow_c);
    e.Size     := word(SizeLow_c + SizeBits_c - 1 downto SizeLow_c);
    e.Number   := word(NumberLow_c + NumberBits_c - 1 downto NumberLow_c);
    if readFailed then
      e.Status := StatusBusError_c;
    elsif word(ValidBit_c) = '0' then
      e.Status := StatusNotMapped_c;
    else
      e.Status := StatusOk_c;
    end if;
    return e;
  end function;

  function leafEntry (
    word      : std_logic_vector(WordBits_c - 1 downto 0);
    readFailed : boolean;
    frameBits : positive;
    sizeMax   : natural
  ) return Entry_t is
    variable e : Entry_t;
  begin
    e := fields(word, readFailed);
    if e.Status = StatusOk_c then
      if e.IsTable = '1' or word(OwnBit_c) = '0' or isBeyond(e.Number, frameBits)
        or unsigned(e.Size) > sizeMax then
        e.Status := StatusBadEntry_c;
      end if;
    end if;
    -- It leads nowhere: nothing is to be kept of that.
    e.IsTable := '0';
    return e;
  end function;

  function hiddenIn (e : Entry_t; word : std_logic_vector(WordBits_c - 1 downto 0)) return Entry_t is
    variable e_v : Entry_t := e;
  begin
    if word(ValidBit_c) = '0' then
      e_v.Number := (others => '0');
      e_v.Number(HiddenBits_c - 1 downto 0) := word(31 downto 17) & word(11 downto 10) & word(4 downto 3);
    end if;
    return e_v;
  end function;

  function hiddenWord (e : Entry_t) return std_logic_vector is
    variable word_v : std_logic_vector(WordBits_c - 1 downto 0) := (others => '0');
  begin
    word_v(WritableBit_c) := e.Writable;
    word_v(OwnBit_c)      := '1';
    word_v(SizeLow_c + SizeBits_c - 1 downto SizeLow_c)       := e.Size;
    word_v(MemoryLow_c + MemoryBits_c - 1 downto MemoryLow_c) := e.Memory;
    word_v(4 downto 3)   := e.Number(1 downto 0);
    word_v(11 downto 10) := e.Number(3 downto 2);
    word_v(31 downto 17) := e.Number(18 downto 4);
    return word_v;
  end function;

  function rootEntry (
    word      : std_logic_vector(WordBits_c - 1 downto 0);
    frameBits : positive;
    tableBits : positive;
    leafBits  : positive
  ) return Entry_t is
    variable e : Entry_t;
  begin
    e := fields(word, false);
    if e.Status = StatusOk_c then
      if e.IsTable = '1' then
        if isBeyond(e.Number, tableBits) then
          e.Status := StatusBadEntry_c;
        end if;
      elsif word(OwnBit_c) = '0' or isBeyond(e.Number, frameBits) or isUnaligned(e.Number, leafBits)
        or unsigned(e.Size) /= leafBits then
        e.Status := StatusBadEntry_c;
      end if;
    end if;
    return e;
  end function;

  function spaceRoot (word : std_logic_vector(WordBits_c - 1 downto 0); tableBits : positive) return Entry_t is
    constant Levels_c : unsigned(RootLevelsHigh_c - RootLevelsLow_c downto 0) :=
      unsigned(word(RootLevelsHigh_c downto RootLevelsLow_c));
    variable e : Entry_t;
  begin
    e := fields(word, false);
    e.IsTable := '1';
    if e.Status = StatusOk_c then
      if Levels_c = 0 then
        e.Status := StatusNotMapped_c;
      elsif Levels_c > LevelsMax_c or isBeyond(e.Number, tableBits) then
        e.Status := StatusBadEntry_c;
      end if;
    end if;
    return e;
  end function;

  function spaceEntry (
    word       : std_logic_vector(WordBits_c - 1 downto 0);
    readFailed : boolean;
    frameBits  : positive;
    step       : positive
  ) return Entry_t is
    variable e : Entry_t;
  begin
    e := fields(word, readFailed);
    e.Writable := word(WritableBit_c) and word(DirtyBit_c);
    e.Memory   := BusMemory_c when word(OwnBit_c) = '0' else (others => '0');
    if e.Status = StatusOk_c then
      if e.IsTable = '1' or isBeyond(e.Number, frameBits) or unsigned(e.Size) > step then
        e.Status := StatusBadEntry_c;
      elsif word(AccessedBit_c) = '0' then
        e.Status := StatusNotMapped_c;
      end if;
    end if;
    e.IsTable := '0';
    return e;
  end function;

  function spaceDirectory (
    word       : std_logic_vector(WordBits_c - 1 downto 0);
    readFailed : boolean;
    frameBits  : positive;
    tableBits  : positive;
    step       : positive;
    isLowest   : boolean
  ) return Entry_t is
    variable e : Entry_t;
  begin
    if word(TableBit_c) = '1' then
      e := fields(word, readFailed);
      if e.Status = StatusOk_c and isBeyond(e.Number, tableBits) then
        e.Status := StatusBadEntry_c;
      end if;
      return e;
    end if;
    e := spaceEntry(word, readFailed, frameBits, step);
    if word(ValidBit_c) = '1' and not readFailed
      and (not isLowest or isUnaligned(e.Number, step) or unsigned(e.Size) /= step) then
      e.Status := StatusBadEntry_c;
    end if;
    return e;
  end function;

  function toVector (e : Entry_t; numberBits : positive) return std_logic_vector is
    variable v : std_logic_vector(AspectBits_c + numberBits - 1 downto 0);
  begin
    v := e.Status & e.IsTable & e.Writable & e.Memory & e.Size & e.Number(numberBits - 1 downto 0);
    return v;
  end function;

  function toEntry (v : std_logic_vector; numberBits : positive) return Entry_t is
    constant Bits_c : std_logic_vector(AspectBits_c + numberBits - 1 downto 0) := v;
    variable e      : Entry_t;
  begin
    e.Number   := (others => '0');
    e.Number(numberBits - 1 downto 0) := Bits_c(numberBits - 1 downto 0);
    e.Size     := Bits_c(numberBits + SizeBits_c - 1 downto numberBits);
    e.Memory   := Bits_c(numberBits + SizeBits_c + MemoryBits_c - 1 downto numberBits + SizeBits_c);
    e.Writable := Bits_c(numberBits + AspectBits_c - 5);
    e.IsTable  := Bits_c(numberBits + AspectBits_c - 4);
    e.Status   := Bits_c(numberBits + AspectBits_c - 1 downto numberBits + AspectBits_c - 3);
    return e;
  end function;

end package body;
