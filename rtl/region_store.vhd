-- What is kept of each region of the window, in block RAM. After a reset it clears itself, a region a cycle.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.alloc_pkg.all;
  use work.region_pkg.all;
  use work.window_pkg.all;

entity region_store is
  generic (
    IndexBits_g  : positive;
    -- Of a record.
    LeafBits_g   : positive;
    ChunkBits_g  : positive;
    NumberBits_g : positive;
    RoomBits_g   : positive;
    -- Memories, and the number of the only one.
    Memories_g   : positive;
    Memory_g     : natural
  );
  port (
    Clk      : in    std_logic;
    Rst      : in    std_logic;
    -- All records are cleared; nothing is written before.
    Ready    : out   std_logic;
    Write    : in    std_logic;
    Write_At : in    std_logic_vector(IndexBits_g - 1 downto 0);
    Written  : in    Region_Record_t(
      Chunk(ChunkBits_g - 1 downto 0), Number(NumberBits_g - 1 downto 0), Used(LeafBits_g downto 0),
      Room(RoomBits_g - 1 downto 0)
    );
    -- The record that is there in the next cycle.
    Read_At  : in    std_logic_vector(IndexBits_g - 1 downto 0);
    Kept     : out   Region_Record_t(
      Chunk(ChunkBits_g - 1 downto 0), Number(NumberBits_g - 1 downto 0), Used(LeafBits_g downto 0),
      Room(RoomBits_g - 1 downto 0)
    )
  );
end entity;

architecture rtl of region_store is

  subtype Record_t is Region_Record_t(
    Chunk(ChunkBits_g - 1 downto 0), Number(NumberBits_g - 1 downto 0), Used(LeafBits_g downto 0),
    Room(RoomBits_g - 1 downto 0)
  );

  constant Empty_c      : Record_t :=
  (
    State    => RegionEmpty,
    Chunk    => (others => '0'),
    Number   => (others => '0'),
    Used     => (others => '0'),
    Room     => (others => '0'),
    Part     => PartNothing_c,
    Memory   => std_logic_vector(to_unsigned(Memory_g, MemoryBits_c)),
    IsFirst  => '0',
    IsLast   => '0',
    Writable => '0'
  );
  constant RecordBits_c : positive := bitsOfRecord(Empty_c);

  type Records_t is array (0 to 2 ** IndexBits_g - 1) of std_logic_vector(RecordBits_c - 1 downto 0);

  type Memories_t is array (0 to 2 ** IndexBits_g - 1) of std_logic_vector(MemoryBits_c - 1 downto 0);

  signal Records : Records_t;
  -- The memories of large allocations.
  signal Memories : Memories_t;
  signal Memory   : std_logic_vector(MemoryBits_c - 1 downto 0);
  -- The record that is cleared next; the highest bit: all are.
  signal Clear   : unsigned(IndexBits_g downto 0);
  signal IsClear : std_logic;
  signal Enable  : std_logic;
  signal At      : unsigned(IndexBits_g - 1 downto 0);
  signal Word    : std_logic_vector(RecordBits_c - 1 downto 0);
  signal Read    : std_logic_vector(RecordBits_c - 1 downto 0);

begin

  IsClear <= Clear(IndexBits_g);
  Ready   <= IsClear;
  Enable  <= Write or not IsClear;
  At      <= unsigned(Write_At) when IsClear = '1' else Clear(IndexBits_g - 1 downto 0);
  Word    <= toKept(Written) when IsClear = '1' else (others => '0');

  p_kept : process (all) is
    variable rec_v : Record_t;
  begin
    rec_v        := toRecord(Read, Empty_c);
    rec_v.Memory := Memory;
    Kept         <= rec_v;
  end process;

  g_memories : if Memories_g > 1 generate

    p_memories : process (Clk) is
    begin
      if rising_edge(Clk) then
        if Write = '1' then
          Memories(to_integer(At)) <= Written.Memory;
        end if;
        Memory <= Memories(to_integer(unsigned(Read_At)));
      end if;
    end process;

  else generate
    Memory <= Empty_c.Memory;
  end generate;

  p_records : process (Clk) is
  begin
    if rising_edge(Clk) then
      if Enable = '1' then
        Records(to_integer(At)) <= Word;
      end if;
      Read <= Records(to_integer(unsigned(Read_At)));
    end if;
  end process;

  p_clear : process (Clk) is
  begin
    if rising_edge(Clk) then
      if IsClear = '0' then
        Clear <= Clear + 1;
      end if;
      if Rst = '1' then
        Clear <= (others => '0');
      end if;
    end if;
  end process;

end architecture;
