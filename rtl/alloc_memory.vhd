-- Who of the allocator reads or writes words of memory: one at a time, each of its own kind, through one barrier.
--
-- Words are of the table of the region where the allocator is, at a page's place; those that move are read from another
-- table, and bitmaps of places have addresses of their own. Nothing is arbitrated: the allocator is at one thing.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.alloc_pkg.all;
  use work.bit_pkg.all;
  use work.window_pkg.all;

entity alloc_memory is
  generic (
    PhysBits_g   : positive;
    LeafBits_g   : positive;
    FrameBits_g  : positive;
    NumberBits_g : positive
  );
  port (
    Clk          : in    std_logic;
    Rst          : in    std_logic;
    -- The table of the region.
    Number       : in    std_logic_vector(NumberBits_g - 1 downto 0);
    -- A word of it is read, or written; a beat of zeroes is written.
    Ask_Valid    : in    std_logic;
    Put_Valid    : in    std_logic;
    Put_Word     : in    TableWord_t;
    At           : in    std_logic_vector(LeafBits_g - 1 downto 0);
    Zero_Valid   : in    std_logic;
    Zero_Within  : in    std_logic_vector(LeafBits_g - 1 downto 0);
    -- Words of bitmaps (`open_region`)
    Map_Read     : in    std_logic;
    Map_Write    : in    std_logic;
    Map_Addr     : in    std_logic_vector(PhysBits_g - 1 downto 0);
    Map_Word     : in    RowWord_t;
    -- What the sweep reads, and zeroes (`sweep_batch`)
    Sweep_Read   : in    std_logic;
    Sweep_Write  : in    std_logic;
    Sweep_Within : in    std_logic_vector(LeafBits_g - 1 downto 0);
    Sweep_Mask   : in    WordMask_t;
    -- Words of pages (`page_words`)
    Words_Write  : in    std_logic;
    Words_Many   : in    std_logic;
    Words_Run    : in    std_logic;
    Words_Within : in    std_logic_vector(LeafBits_g - 1 downto 0);
    Words_Word   : in    TableWord_t;
    -- What moves, from that table, or is cut (`alloc_realloc`)
    Move_Read    : in    std_logic;
    Move_Number  : in    std_logic_vector(NumberBits_g - 1 downto 0);
    Move_From    : in    std_logic_vector(LeafBits_g - 1 downto 0);
    Move_Write   : in    std_logic;
    Move_To      : in    std_logic_vector(LeafBits_g - 1 downto 0);
    Move_Word    : in    TableWord_t;
    Move_Many    : in    std_logic;
    Move_Run     : in    std_logic;
    Move_Mask    : in    WordMask_t;
    Move_Lanes   : in    std_logic_vector(BeatWords_c * (LaneMarks_c + FrameBits_g) - 1 downto 0);
    -- For whoever writes, and reads; the word that has come. Nothing is under way; a write has failed.
    Write_Ready  : out   std_logic;
    Read_Ready   : out   std_logic;
    Read_Word    : out   TableWord_t;
    Quiet        : out   std_logic;
    Failed       : out   std_logic;
    -- As the barrier's.
    Axi_AwValid  : out   std_logic;
    Axi_AwReady  : in    std_logic;
    Axi_AwAddr   : out   std_logic_vector(PhysBits_g - 1 downto 0);
    Axi_WValid   : out   std_logic;
    Axi_WReady   : in    std_logic;
    Axi_WData    : out   Beat_t;
    Axi_WStrb    : out   std_logic_vector(Beat_t'length / 8 - 1 downto 0);
    Axi_BValid   : in    std_logic;
    Axi_BReady   : out   std_logic;
    Axi_BResp    : in    std_logic_vector(1 downto 0);
    Axi_ArValid  : out   std_logic;
    Axi_ArReady  : in    std_logic;
    Axi_ArAddr   : out   std_logic_vector(PhysBits_g - 1 downto 0);
    Axi_RValid   : in    std_logic;
    Axi_RData    : in    Beat_t
  );
end entity;

architecture rtl of alloc_memory is

  subtype Addr_t is std_logic_vector(PhysBits_g - 1 downto 0);

  -- Where the word of a page lies in a table.
  function wordAddr (table : std_logic_vector; within : std_logic_vector) return Addr_t is
  begin
    return std_logic_vector(resize(unsigned(table) & unsigned(within) & to_unsigned(0, WordShift_c), PhysBits_g));
  end function;

  signal PageAddr   : Addr_t;
  signal WriteValid : std_logic;
  signal WriteAddr  : Addr_t;
  signal WriteWord  : TableWord_t;
  signal WriteMany  : std_logic;
  signal WriteRun   : std_logic;
  signal WriteEach  : std_logic;
  signal WriteMask  : WordMask_t;
  signal ReadValid  : std_logic;
  signal ReadAddr   : Addr_t;

begin

  PageAddr   <= wordAddr(Number, Words_Within) when Words_Write = '1' else
                wordAddr(Number, Sweep_Within) when Sweep_Read = '1' or Sweep_Write = '1' else
                wordAddr(Number, At);
  ReadValid  <= Ask_Valid or Map_Read or Sweep_Read or Move_Read;
  ReadAddr   <= Map_Addr when Map_Read = '1' else
                wordAddr(Move_Number, Move_From) when Move_Read = '1' else PageAddr;
  WriteValid <= Put_Valid or Zero_Valid or Map_Write or Sweep_Write or Words_Write or Move_Write;
  WriteAddr  <= Map_Addr when Map_Write = '1' else
                wordAddr(Number, Move_To) when Move_Write = '1' else
                wordAddr(Number, Zero_Within) when Zero_Valid = '1' else PageAddr;
  WriteWord  <= Map_Word when Map_Write = '1' else (others => '0') when Sweep_Write = '1' or Zero_Valid = '1' else
                Words_Word when Words_Write = '1' else Move_Word when Move_Write = '1' else Put_Word;

  -- Zeroes are written by the beat, words of runs, and those that move.
  WriteMany  <= Sweep_Write or Zero_Valid or (Words_Write and Words_Many) or (Move_Write and Move_Many);
  WriteRun   <= Move_Run or (Words_Write and Words_Run);
  WriteEach  <= Move_Write and not Move_Run;
  WriteMask  <= Sweep_Mask when Sweep_Write = '1' else Move_Mask when Move_Write = '1' else (others => '1');

  i_barrier : entity work.barrier
    generic map (
      PhysBits_g  => PhysBits_g,
      FrameBits_g => FrameBits_g
    )
    port map (
      Clk         => Clk,
      Rst         => Rst,
      Write_Valid => WriteValid,
      Write_Ready => Write_Ready,
      Write_Addr  => WriteAddr,
      Write_Word  => WriteWord,
      Write_Many  => WriteMany,
      Write_Run   => WriteRun,
      Write_Each  => WriteEach,
      Write_Lanes => Move_Lanes,
      Write_Mask  => WriteMask,
      Read_Valid  => ReadValid,
      Read_Ready  => Read_Ready,
      Read_Addr   => ReadAddr,
      Read_Word   => Read_Word,
      Quiet       => Quiet,
      Failed      => Failed,
      Axi_AwValid => Axi_AwValid,
      Axi_AwReady => Axi_AwReady,
      Axi_AwAddr  => Axi_AwAddr,
      Axi_WValid  => Axi_WValid,
      Axi_WReady  => Axi_WReady,
      Axi_WData   => Axi_WData,
      Axi_WStrb   => Axi_WStrb,
      Axi_BValid  => Axi_BValid,
      Axi_BReady  => Axi_BReady,
      Axi_BResp   => Axi_BResp,
      Axi_ArValid => Axi_ArValid,
      Axi_ArReady => Axi_ArReady,
      Axi_ArAddr  => Axi_ArAddr,
      Axi_RValid  => Axi_RValid,
      Axi_RData   => Axi_RData
    );

end architecture;
