-- What is known of the window's regions: a record of each, the places of the one that is open, how much room each has,
-- and which are empty.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.alloc_pkg.all;
  use work.bit_pkg.all;
  use work.region_pkg.all;
  use work.window_pkg.all;

entity alloc_regions is
  generic (
    RootBits_g   : positive;
    LeafBits_g   : positive;
    PhysBits_g   : positive;
    -- Where the bitmaps of places begin in memory.
    Maps_g       : natural;
    -- Of a record.
    ChunkBits_g  : positive;
    NumberBits_g : positive;
    RoomBits_g   : positive;
    -- Memories, and the number of the only one.
    Memories_g   : positive;
    Memory_g     : natural
  );
  port (
    Clk          : in    std_logic;
    Rst          : in    std_logic;
    -- All records are cleared.
    Ready        : out   std_logic;
    -- What is done with the region where the allocator is; its record, which is written as it is in the next cycle, and
    -- can be read from the one behind that on; where it is in the next cycle, and the record that is there then.
    Uses         : in    Uses_t;
    Region       : in    std_logic_vector(RootBits_g - 1 downto 0);
    Rec          : in    Region_Record_t(
      Chunk(ChunkBits_g - 1 downto 0), Number(NumberBits_g - 1 downto 0), Used(LeafBits_g downto 0),
      Room(RoomBits_g - 1 downto 0)
    );
    Next_Region  : in    std_logic_vector(RootBits_g - 1 downto 0);
    Kept         : out   Region_Record_t(
      Chunk(ChunkBits_g - 1 downto 0), Number(NumberBits_g - 1 downto 0), Used(LeafBits_g downto 0),
      Room(RoomBits_g - 1 downto 0)
    );
    -- Places of the open region: pages from the first one on, those of a region of which no page is in use; its longest
    -- free row is counted (`place_row`).
    First        : in    std_logic_vector(LeafBits_g - 1 downto 0);
    Count        : in    std_logic_vector(LeafBits_g downto 0);
    Is_New       : in    std_logic;
    Longest_It   : in    std_logic;
    Place_Ready  : out   std_logic;
    Place_Ok     : out   std_logic;
    Place        : out   std_logic_vector(LeafBits_g - 1 downto 0);
    Longest      : out   std_logic_vector(LeafBits_g downto 0);
    -- Which region is open; this one is opened, in memory (`open_region`).
    IsOpen       : out   std_logic;
    Opened       : out   std_logic_vector(RootBits_g - 1 downto 0);
    IsChanged    : out   std_logic;
    Open_It      : in    std_logic;
    Done         : out   std_logic;
    Failed       : out   std_logic;
    Map_Read     : out   std_logic;
    Map_Write    : out   std_logic;
    Map_Addr     : out   std_logic_vector(PhysBits_g - 1 downto 0);
    Map_Word     : out   RowWord_t;
    Read_Ready   : in    std_logic;
    Write_Ready  : in    std_logic;
    Quiet        : in    std_logic;
    Write_Failed : in    std_logic;
    Data_Valid   : in    std_logic;
    Data         : in    TableWord_t;
    Data_Failed  : in    std_logic;
    -- The first region with so much room, or how much this one has (`room_tree`).
    Room         : in    std_logic_vector(LeafBits_g downto 0);
    Tree_Ready   : out   std_logic;
    Tree_Ok      : out   std_logic;
    Tree_Found   : out   std_logic_vector(RootBits_g - 1 downto 0);
    -- Empty regions, so many more behind each other (`bit_row`)
    More         : in    std_logic_vector(RootBits_g - 1 downto 0);
    Empty_Ready  : out   std_logic;
    Empty_Ok     : out   std_logic;
    Empty_Found  : out   std_logic_vector(RootBits_g - 1 downto 0)
  );
end entity;

architecture rtl of alloc_regions is

  signal IsNew    : std_logic;
  -- A record is written, as was known a cycle earlier, and where.
  signal Writes   : std_logic;
  signal Written  : std_logic_vector(RootBits_g - 1 downto 0);

begin

  i_records : entity work.region_store
    generic map (
      IndexBits_g  => RootBits_g,
      LeafBits_g   => LeafBits_g,
      ChunkBits_g  => ChunkBits_g,
      NumberBits_g => NumberBits_g,
      RoomBits_g   => RoomBits_g,
      Memories_g   => Memories_g,
      Memory_g     => Memory_g
    )
    port map (
      Clk      => Clk,
      Rst      => Rst,
      Ready    => Ready,
      Write    => Writes,
      Write_At => Written,
      Written  => Rec,
      Read_At  => Next_Region,
      Kept     => Kept
    );

  p_written : process (Clk) is
  begin
    if rising_edge(Clk) then
      Writes  <= Uses.RecordWrite;
      Written <= Region;
      if Rst = '1' then
        Writes <= '0';
      end if;
    end if;
  end process;

  IsNew <= Uses.PlaceTake and Is_New;

  i_open : entity work.open_region
    generic map (
      RootBits_g => RootBits_g,
      LeafBits_g => LeafBits_g,
      PhysBits_g => PhysBits_g,
      Maps_g     => Maps_g
    )
    port map (
      Clk          => Clk,
      Rst          => Rst,
      IsOpen       => IsOpen,
      Opened       => Opened,
      IsChanged    => IsChanged,
      Region       => Region,
      Open_It      => Open_It,
      Begin_It     => Uses.MapBegin,
      Close_It     => Uses.MapClose,
      Flush_It     => Uses.MapFlush,
      Done         => Done,
      Failed       => Failed,
      Op_Valid     => Uses.PlaceValid,
      Op_Ready     => Place_Ready,
      Op_Find      => Uses.PlaceFind,
      Op_Here      => Uses.PlaceHere,
      Op_Longest   => Longest_It,
      Op_Take      => Uses.PlaceTake,
      Op_New       => IsNew,
      Op_First     => First,
      Op_Count     => Count,
      Ok           => Place_Ok,
      Place        => Place,
      Longest      => Longest,
      Read_Valid   => Map_Read,
      Read_Ready   => Read_Ready,
      Write_Valid  => Map_Write,
      Write_Ready  => Write_Ready,
      Addr         => Map_Addr,
      Write_Word   => Map_Word,
      Quiet        => Quiet,
      Write_Failed => Write_Failed,
      Data_Valid   => Data_Valid,
      Data         => Data,
      Data_Failed  => Data_Failed
    );

  i_tree : entity work.room_tree
    generic map (
      IndexBits_g => RootBits_g,
      RoomBits_g  => LeafBits_g + 1
    )
    port map (
      Clk      => Clk,
      Rst      => Rst,
      Op_Valid => Uses.TreeValid,
      Op_Ready => Tree_Ready,
      Op_Find  => Uses.TreeFind,
      Op_Index => Region,
      Op_Room  => Room,
      Ok       => Tree_Ok,
      Found    => Tree_Found
    );

  i_empty : entity work.bit_row
    generic map (
      IndexBits_g => RootBits_g,
      Count_g     => 2 ** RootBits_g,
      Initial_g   => '1',
      Rows_g      => true
    )
    port map (
      Clk      => Clk,
      Rst      => Rst,
      Op_Valid => Uses.EmptyValid,
      Op_Ready => Empty_Ready,
      Op_Find  => Uses.EmptyFind,
      Op_Here  => Uses.EmptyHere,
      Op_More  => More,
      Op_Index => Region,
      Op_Value => Uses.EmptyValue,
      Ok       => Empty_Ok,
      Found    => Empty_Found
    );

end architecture;
