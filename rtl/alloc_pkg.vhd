-- Commands of the allocator, how they end, and the words of the leaf level as it writes them.
--
-- docs/rtl/allocator.md has the words and the statuses; the model is crates/card/src/window/alloc
-- (`word.rs`, `status.rs`).

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.window_pkg.all;

package alloc_pkg is

  subtype AllocCommand_t is std_logic_vector(1 downto 0);

  constant AllocMalloc_c  : AllocCommand_t := "00";
  constant AllocFree_c    : AllocCommand_t := "01";
  constant AllocRealloc_c : AllocCommand_t := "10";

  subtype AllocStatus_t is std_logic_vector(3 downto 0);

  constant AllocOk_c            : AllocStatus_t := x"0";
  constant AllocZeroSize_c      : AllocStatus_t := x"1";
  constant AllocTooLarge_c      : AllocStatus_t := x"2";
  constant AllocUnknownMemory_c : AllocStatus_t := x"3";
  constant AllocNoSpace_c       : AllocStatus_t := x"4";
  constant AllocNoFrames_c      : AllocStatus_t := x"5";
  constant AllocNotAllocated_c  : AllocStatus_t := x"6";
  constant AllocInside_c        : AllocStatus_t := x"7";
  constant AllocBusError_c      : AllocStatus_t := x"8";
  constant AllocInitialising_c  : AllocStatus_t := x"9";
  constant AllocBadEntry_c      : AllocStatus_t := x"a";

  -- Counts that are not of a status: errors with which the memory of the tables has answered.
  constant AllocReadsFailed_c  : AllocStatus_t := x"e";
  constant AllocWritesFailed_c : AllocStatus_t := x"f";

  -- Longest runs of frames in a table, as powers of two: a word of the frames' bits, a beat of words.
  constant RunLong_c  : natural := 6;
  constant RunShort_c : natural := 3;

  -- Bits of a leaf word, beside those of window_pkg. The first two mean something in words that are not valid.
  constant ReservedBit_c : natural := 3;
  constant FreedBit_c    : natural := 4;
  constant FirstBit_c    : natural := 10;
  constant LastBit_c     : natural := 11;
  constant PagesLow_c    : natural := 17;
  constant PagesBits_c   : positive := 15;

  subtype TableWord_t is std_logic_vector(WordBits_c - 1 downto 0);

  -- A beat of memory has eight words.
  constant BeatShift_c : positive := 3;
  constant BeatWords_c : positive := 2 ** BeatShift_c;

  subtype Beat_t is std_logic_vector(BeatWords_c * WordBits_c - 1 downto 0);

  -- Some words of a beat.
  subtype WordMask_t is std_logic_vector(BeatWords_c - 1 downto 0);

  -- What a word of a page has for itself among those of its allocation, beside marks: the size of its run, no more than
  -- RunLong_c, whether it is valid or reserved, and its frame, in this order from bit 0 on.
  constant LaneSizeBits_c : positive := 3;
  constant LaneMarks_c    : positive := LaneSizeBits_c + 2;

  -- Who has a region: nobody, small allocations together, nobody any more before an invalidation is done, a large one.
  type RegionUse_t is (RegionEmpty, RegionShared, RegionRetiring, RegionLarge);

  -- What the pages of a region of a large allocation have: nothing, an aligned run of frames that the root maps,
  -- a table, or one of which all words were 0 when it was taken.
  subtype RegionPart_t is std_logic_vector(1 downto 0);

  constant PartNothing_c : RegionPart_t := "00";
  constant PartTable_c   : RegionPart_t := "01";
  constant PartRun_c     : RegionPart_t := "10";
  constant PartReady_c   : RegionPart_t := "11";

  -- What is done with the regions of a large allocation: they are given out, more of them where they are or all of them
  -- elsewhere, to which the allocation goes later; a region gives its run back, they are left, and they are empty.
  type LargeWork_t is (LargeMake, LargeGrow, LargeFinish, LargeRun, LargeRetire, LargeEmpty);

  -- What is begun of a realloc: a small allocation that is known gets another size, or a large one; it is drained, and
  -- goes elsewhere; the page that was the last of one loses the mark.
  type ReallocWork_t is (ReallocResize, ReallocLarge, ReallocFinish, ReallocTrail);

  -- What parts of the allocator answer, whoever uses them: it can be taken, and what came of it
  -- (docs/rtl/allocator_vhdl.md).
  type Parts_t is record
    PlaceReady  : std_logic;
    PlaceOk     : std_logic;
    TreeReady   : std_logic;
    TreeOk      : std_logic;
    EmptyReady  : std_logic;
    EmptyOk     : std_logic;
    TableReady  : std_logic;
    TableOk     : std_logic;
    TableZero   : std_logic;
    WordsDone   : std_logic;
    WordsFailed : std_logic;
    FrameReady  : std_logic;
    GivenValid  : std_logic;
    GivenOk     : std_logic;
    ReadReady   : std_logic;
    WriteReady  : std_logic;
    Quiet       : std_logic;
    HasFailed   : std_logic;
    RootReady   : std_logic;
  end record;

  -- What is done with them in a cycle, for the region where the allocator is. Whoever is not at it does nothing: all
  -- is 0.
  type Uses_t is record
    -- Its record is read, or written.
    RecordLoad  : std_logic;
    RecordWrite : std_logic;
    -- Places of the open region (`place_row`); which one is open (`open_region`).
    PlaceValid  : std_logic;
    PlaceFind   : std_logic;
    PlaceHere   : std_logic;
    PlaceTake   : std_logic;
    MapBegin    : std_logic;
    MapClose    : std_logic;
    MapFlush    : std_logic;
    -- Which regions have room (`room_tree`), and which are empty (`bit_row`).
    TreeValid   : std_logic;
    TreeFind    : std_logic;
    EmptyValid  : std_logic;
    EmptyFind   : std_logic;
    EmptyHere   : std_logic;
    EmptyValue  : std_logic;
    -- Tables (`table_store`), of which one that comes back is not of zeroes; and words of pages (`page_words`), with
    -- which an allocation goes on.
    TableValid  : std_logic;
    TableGive   : std_logic;
    TableAny    : std_logic;
    TableUsed   : std_logic;
    WordsStart  : std_logic;
    WordsGoOn   : std_logic;
    WordsKeep   : std_logic;
    -- A word of its table is read, or written; that of the root is.
    AskValid    : std_logic;
    PutValid    : std_logic;
    RootValid   : std_logic;
    -- Words have changed.
    Changes     : std_logic;
  end record;

  constant NoUse_c : Uses_t := (others => '0');

  function "or" (left : Uses_t; right : Uses_t) return Uses_t;

  type PageState_t is (PageFree, PageMapped, PageReserved, PageFreed);

  -- Whether it is a table.
  function hasTable (part : RegionPart_t) return boolean;

  function stateOf (word : TableWord_t) return PageState_t;

  -- Whether the page has a frame, or had one before it was freed.
  function hasFrame (word : TableWord_t) return boolean;

  -- A page in a frame, or reserved: one that gets it when it is touched.
  function pageWord (
    frame    : unsigned;
    lazy     : std_logic;
    writable : std_logic;
    memory   : std_logic_vector(MemoryBits_c - 1 downto 0);
    size     : natural
  ) return TableWord_t;

  -- The memory of a word; where there is only one, that is known.
  function memoryOf (word : TableWord_t; memories : positive; the_only : natural) return std_logic_vector;

  -- A reserved page in a frame.
  function withFrame (word : TableWord_t; frame : unsigned) return TableWord_t;

  -- The same word, of the first page of so many, or of another; of the last one, or of another.
  function marked (word : TableWord_t; first : boolean; last : boolean; pages : unsigned) return TableWord_t;

  -- What a first word says: the allocation's pages, but for that one; its last page's place in the region.
  function morePages (word : TableWord_t; leaf_bits : positive) return unsigned;

  function lastOf (within : unsigned; word : TableWord_t) return unsigned;

  -- The first word of an allocation with more or fewer pages.
  function firstOf (word : TableWord_t; pages : unsigned) return TableWord_t;

  -- The longest run, as a power of two, at a place that ends before the one behind `last`, in one row of 64.
  function sizeBefore (
    place : unsigned(RunLong_c - 1 downto 0);
    last  : unsigned(RunLong_c - 1 downto 0)
  ) return unsigned;

  -- The word of the directory that leads to a table.
  function directoryWord (number : std_logic_vector) return TableWord_t;

  -- The lane of a word, with so many bits of its frame; the word with another lane.
  function laneOfWord (word : TableWord_t; frame_bits : positive) return std_logic_vector;

  function withLane (word : TableWord_t; lane : std_logic_vector) return TableWord_t;

end package;

package body alloc_pkg is

  function "or" (left : Uses_t; right : Uses_t) return Uses_t is
  begin
    return (
      RecordLoad  => left.RecordLoad or right.RecordLoad,
      RecordWrite => left.RecordWrite or right.RecordWrite,
      PlaceValid  => left.PlaceValid or right.PlaceValid,
      PlaceFind   => left.PlaceFind or right.PlaceFind,
      PlaceHere   => left.PlaceHere or right.PlaceHere,
      PlaceTake   => left.PlaceTake or right.PlaceTake,
      MapBegin    => left.MapBegin or right.MapBegin,
      MapClose    => left.MapClose or right.MapClose,
      MapFlush    => left.MapFlush or right.MapFlush,
      TreeValid   => left.TreeValid or right.TreeValid,
      TreeFind    => left.TreeFind or right.TreeFind,
      EmptyValid  => left.EmptyValid or right.EmptyValid,
      EmptyFind   => left.EmptyFind or right.EmptyFind,
      EmptyHere   => left.EmptyHere or right.EmptyHere,
      EmptyValue  => left.EmptyValue or right.EmptyValue,
      TableValid  => left.TableValid or right.TableValid,
      TableGive   => left.TableGive or right.TableGive,
      TableAny    => left.TableAny or right.TableAny,
      TableUsed   => left.TableUsed or right.TableUsed,
      WordsStart  => left.WordsStart or right.WordsStart,
      WordsGoOn   => left.WordsGoOn or right.WordsGoOn,
      WordsKeep   => left.WordsKeep or right.WordsKeep,
      AskValid    => left.AskValid or right.AskValid,
      PutValid    => left.PutValid or right.PutValid,
      RootValid   => left.RootValid or right.RootValid,
      Changes     => left.Changes or right.Changes
    );
  end function;

  function hasTable (part : RegionPart_t) return boolean is
  begin
    return part(0) = '1';
  end function;

  function stateOf (word : TableWord_t) return PageState_t is
  begin
    if word(ValidBit_c) = '1' then
      return PageMapped;
    elsif word(FreedBit_c) = '1' then
      return PageFreed;
    elsif word(ReservedBit_c) = '1' then
      return PageReserved;
    end if;
    return PageFree;
  end function;

  function hasFrame (word : TableWord_t) return boolean is
  begin
    return word(ValidBit_c) = '1' or (word(FreedBit_c) = '1' and word(ReservedBit_c) = '0');
  end function;

  function pageWord (
    frame    : unsigned;
    lazy     : std_logic;
    writable : std_logic;
    memory   : std_logic_vector(MemoryBits_c - 1 downto 0);
    size     : natural
  ) return TableWord_t is
    variable word_v : TableWord_t := (others => '0');
  begin
    word_v(ValidBit_c)    := not lazy;
    word_v(ReservedBit_c) := lazy;
    word_v(WritableBit_c) := writable;
    word_v(OwnBit_c)      := '1';
    word_v(SizeLow_c + SizeBits_c - 1 downto SizeLow_c) := std_logic_vector(to_unsigned(size, SizeBits_c));
    word_v(MemoryLow_c + MemoryBits_c - 1 downto MemoryLow_c) := memory;
    if lazy = '0' then
      word_v(NumberLow_c + NumberBits_c - 1 downto NumberLow_c) := std_logic_vector(resize(frame, NumberBits_c));
    end if;
    return word_v;
  end function;

  function memoryOf (word : TableWord_t; memories : positive; the_only : natural) return std_logic_vector is
  begin
    if memories = 1 then
      return std_logic_vector(to_unsigned(the_only, MemoryBits_c));
    end if;
    return word(MemoryLow_c + MemoryBits_c - 1 downto MemoryLow_c);
  end function;

  function withFrame (word : TableWord_t; frame : unsigned) return TableWord_t is
    variable word_v : TableWord_t := word;
  begin
    word_v(ValidBit_c)    := '1';
    word_v(ReservedBit_c) := '0';
    word_v(NumberLow_c + NumberBits_c - 1 downto NumberLow_c) := std_logic_vector(resize(frame, NumberBits_c));
    return word_v;
  end function;

  function marked (word : TableWord_t; first : boolean; last : boolean; pages : unsigned) return TableWord_t is
    variable word_v : TableWord_t := word;
  begin
    word_v(FirstBit_c) := '0';
    word_v(LastBit_c)  := '0';
    if first then
      word_v(FirstBit_c) := '1';
      word_v(PagesLow_c + PagesBits_c - 1 downto PagesLow_c) :=
        std_logic_vector(resize(pages - 1, PagesBits_c));
    end if;
    if last then
      word_v(LastBit_c) := '1';
    end if;
    return word_v;
  end function;

  function morePages (word : TableWord_t; leaf_bits : positive) return unsigned is
  begin
    return '0' & unsigned(word(PagesLow_c + leaf_bits - 1 downto PagesLow_c));
  end function;

  function lastOf (within : unsigned; word : TableWord_t) return unsigned is
  begin
    return within + unsigned(word(PagesLow_c + within'length - 1 downto PagesLow_c));
  end function;

  function firstOf (word : TableWord_t; pages : unsigned) return TableWord_t is
    variable word_v : TableWord_t := word;
  begin
    word_v(LastBit_c) := '0';
    word_v(PagesLow_c + PagesBits_c - 1 downto PagesLow_c) :=
      std_logic_vector(resize(pages - 1, PagesBits_c));
    return word_v;
  end function;

  function sizeBefore (
    place : unsigned(RunLong_c - 1 downto 0);
    last  : unsigned(RunLong_c - 1 downto 0)
  ) return unsigned is
    variable size_v : unsigned(LaneSizeBits_c - 1 downto 0) := (others => '0');
    constant End_c  : unsigned(RunLong_c downto 0) := ('0' & last) + 1;
  begin
    for size in 1 to RunLong_c loop
      if shift_right('0' & place, size) < shift_right(End_c, size) then
        size_v := to_unsigned(size, LaneSizeBits_c);
      end if;
    end loop;
    return size_v;
  end function;

  function directoryWord (number : std_logic_vector) return TableWord_t is
    variable word_v : TableWord_t := (others => '0');
  begin
    word_v(ValidBit_c) := '1';
    word_v(TableBit_c) := '1';
    word_v(NumberLow_c + NumberBits_c - 1 downto NumberLow_c) :=
      std_logic_vector(resize(unsigned(number), NumberBits_c));
    return word_v;
  end function;

  function laneOfWord (word : TableWord_t; frame_bits : positive) return std_logic_vector is
  begin
    return word(NumberLow_c + frame_bits - 1 downto NumberLow_c) & word(ReservedBit_c) & word(ValidBit_c)
      & word(SizeLow_c + LaneSizeBits_c - 1 downto SizeLow_c);
  end function;

  function withLane (word : TableWord_t; lane : std_logic_vector) return TableWord_t is
    constant Lane_c     : std_logic_vector(lane'length - 1 downto 0) := lane;
    constant FrameBits_c : positive := lane'length - LaneMarks_c;
    variable word_v     : TableWord_t := word;
  begin
    word_v(SizeLow_c + LaneSizeBits_c - 1 downto SizeLow_c) := Lane_c(LaneSizeBits_c - 1 downto 0);
    word_v(ValidBit_c)    := Lane_c(LaneSizeBits_c);
    word_v(ReservedBit_c) := Lane_c(LaneSizeBits_c + 1);
    word_v(NumberLow_c + FrameBits_c - 1 downto NumberLow_c) := Lane_c(lane'length - 1 downto LaneMarks_c);
    return word_v;
  end function;

end package body;
