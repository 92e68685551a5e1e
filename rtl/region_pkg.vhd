-- What is kept of a region of the window, and what that says of its pages.
--
-- A region is the pages of one leaf table. docs/rtl/allocator.md has its states; the model is
-- crates/card/src/window/alloc/regions.rs.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.alloc_pkg.all;
  use work.window_pkg.all;

package region_pkg is

  -- Who has a region: with so many pages in it, and the longest row of free ones; its table.
  type Region_Record_t is record
    State    : RegionUse_t;
    Chunk    : std_logic_vector;
    Number   : std_logic_vector;
    Used     : unsigned;
    Room     : unsigned;
    -- Of a large allocation: what the region has; if it is a run, Number is that of its first frame, in regions.
    -- It is the first of the allocation, which has Room more, or the last one. The pages may be written; their frames
    -- are of that memory, which is kept beside the record.
    Part     : RegionPart_t;
    Memory   : std_logic_vector(MemoryBits_c - 1 downto 0);
    IsFirst  : std_logic;
    IsLast   : std_logic;
    Writable : std_logic;
  end record;

  -- Of a record: its bits, as it is kept, and as it was.
  function bitsOfRecord (rec : Region_Record_t) return positive;

  function toKept (rec : Region_Record_t) return std_logic_vector;

  -- `like` has the sizes.
  function toRecord (kept : std_logic_vector; like : Region_Record_t) return Region_Record_t;

  -- The first frame of a region's run.
  function firstOfRun (rec : Region_Record_t; frame_bits : positive) return unsigned;

  -- The word of a page of a large allocation's region that nobody has touched, as if it were written.
  function untouched (rec : Region_Record_t; within : unsigned) return TableWord_t;

  -- That of a page of its run; the root's word is that of the first one, with the marks of the region.
  function runWord (rec : Region_Record_t; within : unsigned; frame_bits : positive) return TableWord_t;

end package;

package body region_pkg is

  function bitsOfRecord (rec : Region_Record_t) return positive is
  begin
    return 7 + rec.Chunk'length + rec.Number'length + rec.Used'length + rec.Room'length;
  end function;

  function toKept (rec : Region_Record_t) return std_logic_vector is
  begin
    return std_logic_vector(to_unsigned(RegionUse_t'pos(rec.State), 2)) & rec.Part & rec.IsFirst & rec.IsLast
      & rec.Writable & rec.Chunk & rec.Number & std_logic_vector(rec.Used) & std_logic_vector(rec.Room);
  end function;

  function toRecord (kept : std_logic_vector; like : Region_Record_t) return Region_Record_t is
    constant UsedLow_c  : natural := like.Room'length;
    constant TableLow_c : natural := UsedLow_c + like.Used'length;
    constant ChunkLow_c : natural := TableLow_c + like.Number'length;
    constant MarksLow_c : natural := ChunkLow_c + like.Chunk'length;
    constant Kept_c     : std_logic_vector(MarksLow_c + 6 downto 0) := kept;
    variable rec        : Region_Record_t(
      Chunk(like.Chunk'range), Number(like.Number'range), Used(like.Used'range), Room(like.Room'range)
    );
  begin
    rec.Memory   := like.Memory;
    rec.Room     := unsigned(Kept_c(UsedLow_c - 1 downto 0));
    rec.Used     := unsigned(Kept_c(TableLow_c - 1 downto UsedLow_c));
    rec.Number   := Kept_c(ChunkLow_c - 1 downto TableLow_c);
    rec.Chunk    := Kept_c(MarksLow_c - 1 downto ChunkLow_c);
    rec.Writable := Kept_c(MarksLow_c);
    rec.IsLast   := Kept_c(MarksLow_c + 1);
    rec.IsFirst  := Kept_c(MarksLow_c + 2);
    rec.Part     := Kept_c(MarksLow_c + 4 downto MarksLow_c + 3);
    case Kept_c(MarksLow_c + 6 downto MarksLow_c + 5) is
      when "00" =>
        rec.State := RegionEmpty;
      when "01" =>
        rec.State := RegionShared;
      when "10" =>
        rec.State := RegionRetiring;
      when others =>
        rec.State := RegionLarge;
    end case;
    return rec;
  end function;

  function firstOfRun (rec : Region_Record_t; frame_bits : positive) return unsigned is
    constant LeafBits_c : positive := rec.Used'length - 1;
  begin
    return resize(shift_left(resize(unsigned(rec.Number), frame_bits + LeafBits_c), LeafBits_c), frame_bits);
  end function;

  function untouched (rec : Region_Record_t; within : unsigned) return TableWord_t is
  begin
    return marked(pageWord(unsigned'("0"), '1', rec.Writable, rec.Memory, 0),
      rec.IsFirst = '1' and within = 0, rec.IsLast = '1' and resize(within, rec.Used'length) + 1 = rec.Used,
      to_unsigned(1, 2));
  end function;

  function runWord (rec : Region_Record_t; within : unsigned; frame_bits : positive) return TableWord_t is
    constant LeafBits_c : positive := rec.Used'length - 1;
    constant Frame_c    : unsigned(frame_bits - 1 downto 0) :=
      firstOfRun(rec, frame_bits) or resize(within, frame_bits);
  begin
    return marked(pageWord(Frame_c, '0', rec.Writable, rec.Memory, LeafBits_c), rec.IsFirst = '1', rec.IsLast = '1',
      to_unsigned(1, 2));
  end function;

end package body;
