-- Who of the allocator gets frames: words of pages, tables, regions of large allocations; and what the sweep gives
-- back.
--
-- One of the four asks at a time, and gets the answer that comes. Each names the memory: tables have one, the run of a
-- region goes back to its own, pages get frames of that which their allocation names.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.alloc_pkg.all;
  use work.memories_pkg.all;
  use work.region_pkg.all;
  use work.window_pkg.all;

entity alloc_frames is
  generic (
    -- Of a page's number in the window, and in its region; bytes of a page and of a table, as powers of two.
    WindowBits_g : positive;
    LeafBits_g   : positive;
    PageBits_g   : positive;
    TableBits_g  : positive;
    FrameBits_g  : positive;
    -- Frames that are always there (`frame_stores`), and those of the memories.
    Fixed_g      : natural;
    Frames_g     : positive;
    Memory_g     : natural;
    Others_g     : string;
    -- As of a region's record, and of `table_store`.
    Chunks_g     : positive;
    ChunkBits_g  : positive;
    NumberBits_g : positive;
    RoomBits_g   : positive;
    Ready_g      : positive
  );
  port (
    Clk          : in    std_logic;
    Rst          : in    std_logic;
    -- The record of the region where the allocator is.
    Rec          : in    Region_Record_t(
      Chunk(ChunkBits_g - 1 downto 0), Number(NumberBits_g - 1 downto 0), Used(LeafBits_g downto 0),
      Room(RoomBits_g - 1 downto 0)
    );
    -- What is done with tables, and words of pages.
    Uses         : in    Uses_t;
    -- Words of pages (`page_words`), and where they are written.
    Words_First  : in    std_logic_vector(WindowBits_g - 1 downto 0);
    Words_Count  : in    std_logic_vector(LeafBits_g downto 0);
    Words_Ends   : in    std_logic;
    Counted      : in    std_logic;
    Base         : in    TableWord_t;
    Lazy         : in    std_logic;
    Words_Done   : out   std_logic;
    Words_Failed : out   std_logic;
    Write_Valid  : out   std_logic;
    Write_Ready  : in    std_logic;
    Write_Many   : out   std_logic;
    Write_Run    : out   std_logic;
    Within       : out   std_logic_vector(LeafBits_g - 1 downto 0);
    Word         : out   TableWord_t;
    -- Tables (`table_store`); what comes back is that of the region.
    Table_Ready  : out   std_logic;
    Table_Ok     : out   std_logic;
    Table_Zero   : out   std_logic;
    Table_Chunk  : out   std_logic_vector(ChunkBits_g - 1 downto 0);
    Table_Number : out   std_logic_vector(NumberBits_g - 1 downto 0);
    Table_Wants  : out   std_logic;
    -- A run of a region is taken, or that of this one goes back.
    Large_Valid  : in    std_logic;
    Large_Give   : in    std_logic;
    -- A frame, or a run, comes back from the sweep.
    Sweep_Valid  : in    std_logic;
    Sweep_Memory : in    std_logic_vector(MemoryBits_c - 1 downto 0);
    Sweep_Size   : in    std_logic_vector(SizeBits_c - 1 downto 0);
    Sweep_First  : in    std_logic_vector(FrameBits_g - 1 downto 0);
    -- For each of the four: it is taken; an answer.
    Ready        : out   std_logic;
    Given_Valid  : out   std_logic;
    Given_Ok     : out   std_logic;
    Given_First  : out   std_logic_vector(FrameBits_g - 1 downto 0);
    -- What is free, as `frame_stores` says it.
    Promised     : in    std_logic_vector(FrameBits_g downto 0);
    Promised_Of  : in    std_logic_vector(MemoryBits_c - 1 downto 0);
    Free_Of      : in    std_logic_vector(MemoryBits_c - 1 downto 0);
    Free         : out   std_logic_vector(FrameBits_g downto 0);
    Has_Frame    : out   std_logic;
    Few_Of       : in    std_logic_vector(MemoryBits_c - 1 downto 0);
    Few          : out   std_logic
  );
end entity;

architecture rtl of alloc_frames is

  constant Memories_c : positive := memoriesOf(Others_g);
  constant OfTables_c : std_logic_vector(MemoryBits_c - 1 downto 0) :=
    std_logic_vector(to_unsigned(Memory_g, MemoryBits_c));

  signal WordsValid   : std_logic;
  signal WordsHinted  : std_logic;
  signal WordsNext    : std_logic;
  signal WordsSize    : std_logic_vector(SizeBits_c - 1 downto 0);
  signal WordsHint    : std_logic_vector(FrameBits_g - 1 downto 0);
  signal TablesValid  : std_logic;
  signal TablesGive   : std_logic;
  signal TablesSize   : std_logic_vector(SizeBits_c - 1 downto 0);
  signal TablesFirst  : std_logic_vector(FrameBits_g - 1 downto 0);
  signal StoreValid   : std_logic;
  signal StoreGive    : std_logic;
  signal StoreHinted  : std_logic;
  signal StoreMemory  : std_logic_vector(MemoryBits_c - 1 downto 0);
  signal StoreSize    : std_logic_vector(SizeBits_c - 1 downto 0);
  signal StoreFirst   : std_logic_vector(FrameBits_g - 1 downto 0);
  signal StoreReady   : std_logic;
  signal AnswerValid  : std_logic;
  signal AnswerOk     : std_logic;
  signal AnswerFirst  : std_logic_vector(FrameBits_g - 1 downto 0);

begin

  Ready       <= StoreReady;
  Given_Valid <= AnswerValid;
  Given_Ok    <= AnswerOk;
  Given_First <= AnswerFirst;

  StoreValid  <= WordsValid or TablesValid or Sweep_Valid or Large_Valid;
  StoreGive   <= TablesGive when TablesValid = '1' else Large_Give or Sweep_Valid;
  StoreHinted <= WordsHinted and WordsValid;
  StoreSize   <= TablesSize when TablesValid = '1' else Sweep_Size when Sweep_Valid = '1' else
                 std_logic_vector(to_unsigned(LeafBits_g, SizeBits_c)) when Large_Valid = '1' else WordsSize;
  StoreFirst  <= TablesFirst when TablesValid = '1' else Sweep_First when Sweep_Valid = '1' else
                 std_logic_vector(firstOfRun(Rec, FrameBits_g)) when Large_Valid = '1' else WordsHint;
  StoreMemory <= OfTables_c when TablesValid = '1' else Sweep_Memory when Sweep_Valid = '1' else
                 Rec.Memory when Large_Give = '1' else memoryOf(Base, Memories_c, Memory_g);

  i_words : entity work.page_words
    generic map (
      PageBits_g  => WindowBits_g,
      LeafBits_g  => LeafBits_g,
      FrameBits_g => FrameBits_g,
      Memories_g  => Memories_c
    )
    port map (
      Clk          => Clk,
      Rst          => Rst,
      Start        => Uses.WordsStart,
      First        => Words_First,
      Count        => Words_Count,
      Begins       => not Uses.WordsGoOn,
      Ends         => Words_Ends,
      Keep         => Uses.WordsKeep,
      Counted      => Counted,
      Base         => Base,
      Lazy         => Lazy,
      Done         => Words_Done,
      Failed       => Words_Failed,
      Frame_Valid  => WordsValid,
      Frame_Ready  => StoreReady,
      Frame_Size   => WordsSize,
      Frame_Hinted => WordsHinted,
      Frame_Next   => WordsNext,
      Frame_First  => WordsHint,
      Given_Valid  => AnswerValid,
      Given_Ok     => AnswerOk,
      Given_First  => AnswerFirst,
      Write_Valid  => Write_Valid,
      Write_Ready  => Write_Ready,
      Write_Many   => Write_Many,
      Write_Run    => Write_Run,
      Within       => Within,
      Word         => Word
    );

  i_tables : entity work.table_store
    generic map (
      PageBits_g   => PageBits_g,
      TableBits_g  => TableBits_g,
      FrameBits_g  => FrameBits_g,
      Chunks_g     => Chunks_g,
      ChunkBits_g  => ChunkBits_g,
      NumberBits_g => NumberBits_g,
      Ready_g      => Ready_g
    )
    port map (
      Clk         => Clk,
      Rst         => Rst,
      Op_Valid    => Uses.TableValid,
      Op_Ready    => Table_Ready,
      Op_Give     => Uses.TableGive,
      Op_Zero     => not Uses.TableUsed,
      Op_NotReady => Uses.TableAny,
      Op_Chunk    => Rec.Chunk,
      Op_Number   => Rec.Number,
      Ok          => Table_Ok,
      Zero        => Table_Zero,
      Chunk       => Table_Chunk,
      Number      => Table_Number,
      Wants       => Table_Wants,
      Frame_Valid => TablesValid,
      Frame_Ready => StoreReady,
      Frame_Give  => TablesGive,
      Frame_Size  => TablesSize,
      Frame_First => TablesFirst,
      Given_Valid => AnswerValid,
      Given_Ok    => AnswerOk,
      Given_First => AnswerFirst
    );

  i_stores : entity work.frame_stores
    generic map (
      FrameBits_g => FrameBits_g,
      Frames_g    => Frames_g,
      Memory_g    => Memory_g,
      Others_g    => Others_g
    )
    port map (
      Clk         => Clk,
      Rst         => Rst,
      Fixed       => std_logic_vector(to_unsigned(Fixed_g, FrameBits_g)),
      Promised    => Promised,
      Promised_Of => Promised_Of,
      Free_Of     => Free_Of,
      Free        => Free,
      Has_Frame   => Has_Frame,
      Few_Of      => Few_Of,
      Few         => Few,
      Op_Valid    => StoreValid,
      Op_Ready    => StoreReady,
      Op_Memory   => StoreMemory,
      Op_Give     => StoreGive,
      Op_Size     => StoreSize,
      Op_HasHint  => StoreHinted,
      Op_Next     => WordsNext,
      Op_First    => StoreFirst,
      Resp_Valid  => AnswerValid,
      Resp_Ok     => AnswerOk,
      Resp_First  => AnswerFirst
    );

end architecture;
