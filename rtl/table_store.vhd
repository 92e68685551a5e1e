-- Leaf tables, packed into chunks of frames; and those that are zeroed and ready.
--
-- A chunk is an aligned run of frames as large as a frame or a table, whichever is larger. A table that is
-- needed comes from the ready ones, else from the first chunk that has room, else from a new chunk. The
-- last table of a chunk gives its frames back. An operation is taken in a cycle in which Op_Valid and
-- Op_Ready are 1; what came of it stands from the next cycle with Op_Ready on. The rules are those of the
-- model's `tables.rs`.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.window_pkg.all;

entity table_store is
  generic (
    -- Bytes of a page, and of a table, as powers of two.
    PageBits_g  : positive;
    TableBits_g : positive;
    FrameBits_g : positive;
    -- Chunks that there can be; of a chunk's number, and of the number by which the directory leads to a table.
    Chunks_g     : positive;
    ChunkBits_g  : positive;
    NumberBits_g : positive;
    -- Zeroed tables that are kept ready.
    Ready_g      : positive
  );
  port (
    Clk         : in    std_logic;
    Rst         : in    std_logic;
    Op_Valid    : in    std_logic;
    Op_Ready    : out   std_logic;
    -- A table comes back, zeroed or not; or one is taken: a ready one, if there is and NotReady is 0.
    Op_Give     : in    std_logic;
    Op_Zero     : in    std_logic;
    Op_NotReady : in    std_logic;
    Op_Chunk    : in    std_logic_vector(ChunkBits_g - 1 downto 0);
    Op_Number   : in    std_logic_vector(NumberBits_g - 1 downto 0);
    -- Whether there is one; whether all of its words are 0; and which.
    Ok          : out   std_logic;
    Zero        : out   std_logic;
    Chunk       : out   std_logic_vector(ChunkBits_g - 1 downto 0);
    Number      : out   std_logic_vector(NumberBits_g - 1 downto 0);
    -- A zeroed table more should be made.
    Wants       : out   std_logic;
    -- To the frame store: an aligned run is taken, or comes back. One request at a time; an answer is taken at
    -- once.
    Frame_Valid : out   std_logic;
    Frame_Ready : in    std_logic;
    Frame_Give  : out   std_logic;
    Frame_Size  : out   std_logic_vector(SizeBits_c - 1 downto 0);
    Frame_First : out   std_logic_vector(FrameBits_g - 1 downto 0);
    Given_Valid : in    std_logic;
    Given_Ok    : in    std_logic;
    Given_First : in    std_logic_vector(FrameBits_g - 1 downto 0)
  );
end entity;

architecture rtl of table_store is

  -- Frames of a chunk, as a power of two, and tables of one.
  constant Size_c     : natural  := maximum(TableBits_g, PageBits_g) - PageBits_g;
  constant PerChunk_c : positive := 2 ** (maximum(TableBits_g, PageBits_g) - TableBits_g);

  subtype Taken_t is std_logic_vector(PerChunk_c - 1 downto 0);

  subtype Slot_t is natural range 0 to PerChunk_c - 1;

  type Chunk_t is record
    Frame : std_logic_vector(FrameBits_g - 1 downto 0);
    Taken : Taken_t;
  end record;

  type Chunks_t is array (0 to maximum(Chunks_g, 2) - 1) of Chunk_t;

  type Table_t is record
    Chunk  : std_logic_vector(ChunkBits_g - 1 downto 0);
    Number : std_logic_vector(NumberBits_g - 1 downto 0);
  end record;

  type Tables_t is array (0 to Ready_g - 1) of Table_t;

  type State_t is (
    StateIdle,
    -- A chunk with room is looked for, else frames for a new one, and an unused number for it.
    StateRoom,
    StateRoomFound,
    StateFrames,
    StateGiven,
    StateUnused,
    StateUnusedFound,
    -- The chunk is read, and written with a table more or less.
    StateRead,
    StateChange,
    StateMark,
    StateMarked,
    -- An empty chunk goes.
    StateGone,
    StateBack,
    StateBackDone
  );

  type Registers_t is record
    State  : State_t;
    Give   : std_logic;
    Table  : Table_t;
    Ok     : std_logic;
    Zero   : std_logic;
    -- The chunk is a new one.
    IsNew  : std_logic;
    Shown  : Chunk_t;
    Tables : Tables_t;
    Held   : natural range 0 to Ready_g;
  end record;

  function lowestClear (taken : Taken_t) return Slot_t is
    variable slot_v : Slot_t := 0;
  begin
    for i in taken'high downto 0 loop
      if taken(i) = '0' then
        slot_v := i;
      end if;
    end loop;
    return slot_v;
  end function;

  -- A table's place in its chunk.
  function slotOf (table : Table_t) return Slot_t is
  begin
    return to_integer(unsigned(table.Number)) mod PerChunk_c;
  end function;

  -- The number of a table: its place in memory, in tables.
  function numberOf (frame : std_logic_vector(FrameBits_g - 1 downto 0); slot : Slot_t) return std_logic_vector is
    variable number_v : unsigned(FrameBits_g + NumberBits_g - 1 downto 0);
  begin
    number_v := resize(unsigned(frame), number_v'length);
    number_v := shift_right(shift_left(number_v, maximum(PageBits_g, TableBits_g) - TableBits_g), Size_c);
    return std_logic_vector(resize(number_v, NumberBits_g) or to_unsigned(slot, NumberBits_g));
  end function;

  signal r           : Registers_t;
  signal n           : Registers_t;
  signal Chunks      : Chunks_t;
  signal ReadChunk   : Chunk_t;
  signal WriteChunk  : std_logic;
  signal RoomValid   : std_logic;
  signal RoomReady   : std_logic;
  signal RoomValue   : std_logic;
  signal RoomOk      : std_logic;
  signal RoomFound   : std_logic_vector(ChunkBits_g - 1 downto 0);
  signal UnusedValid : std_logic;
  signal UnusedReady : std_logic;
  signal UnusedValue : std_logic;
  signal UnusedOk    : std_logic;
  signal UnusedFound : std_logic_vector(ChunkBits_g - 1 downto 0);
  signal Find        : std_logic;

begin

  assert Chunks_g <= 2 ** ChunkBits_g
    report "table_store: more chunks than numbers" severity failure;

  Op_Ready <= '1' when r.State = StateIdle and RoomReady = '1' and UnusedReady = '1' else '0';
  Ok       <= r.Ok;
  Zero     <= r.Zero;
  Chunk    <= r.Table.Chunk;
  Number   <= r.Table.Number;
  Wants    <= '1' when r.Held /= Ready_g else '0';

  Frame_Valid <= '1' when r.State = StateFrames or r.State = StateBack else '0';
  Frame_Give  <= '1' when r.State = StateBack else '0';
  Frame_Size  <= std_logic_vector(to_unsigned(Size_c, SizeBits_c));
  Frame_First <= r.Shown.Frame;

  p_chunks : process (Clk) is
  begin
    if rising_edge(Clk) then
      if WriteChunk = '1' then
        Chunks(to_integer(unsigned(r.Table.Chunk))) <= r.Shown;
      end if;
      ReadChunk <= Chunks(to_integer(unsigned(n.Table.Chunk)));
    end if;
  end process;

  i_room : entity work.bit_row
    generic map (
      IndexBits_g => ChunkBits_g,
      Count_g     => Chunks_g,
      Initial_g   => '0'
    )
    port map (
      Clk      => Clk,
      Rst      => Rst,
      Op_Valid => RoomValid,
      Op_Ready => RoomReady,
      Op_Find  => Find,
      Op_Here  => '0',
      Op_More  => (others => '0'),
      Op_Index => r.Table.Chunk,
      Op_Value => RoomValue,
      Ok       => RoomOk,
      Found    => RoomFound
    );

  i_unused : entity work.bit_row
    generic map (
      IndexBits_g => ChunkBits_g,
      Count_g     => Chunks_g,
      Initial_g   => '1'
    )
    port map (
      Clk      => Clk,
      Rst      => Rst,
      Op_Valid => UnusedValid,
      Op_Ready => UnusedReady,
      Op_Find  => Find,
      Op_Here  => '0',
      Op_More  => (others => '0'),
      Op_Index => r.Table.Chunk,
      Op_Value => UnusedValue,
      Ok       => UnusedOk,
      Found    => UnusedFound
    );

  p_next : process (all) is
    variable v : Registers_t;
  begin
    v := r;
    WriteChunk  <= '0';
    RoomValid   <= '0';
    RoomValue   <= '0';
    UnusedValid <= '0';
    UnusedValue <= '0';
    Find        <= '0';

    case r.State is

      when StateIdle =>
        v.Give := Op_Give;
        if Op_Valid = '1' and Op_Ready = '1' then
          v.IsNew := '0';
          v.Zero  := '0';
          if Op_Give = '1' then
            v.Table := (Op_Chunk, Op_Number);
            v.State := StateRead;
            if Op_Zero = '1' and r.Held /= Ready_g then
              v.Tables(r.Held) := v.Table;
              v.Held  := r.Held + 1;
              v.State := StateIdle;
            end if;
          elsif Op_NotReady = '0' and r.Held /= 0 then
            v.Table := r.Tables(r.Held - 1);
            v.Held  := r.Held - 1;
            v.Ok    := '1';
            v.Zero  := '1';
          else
            v.State := StateRoom;
          end if;
        end if;

      when StateRoom =>
        RoomValid <= '1';
        Find      <= '1';
        v.State   := StateRoomFound;

      when StateRoomFound =>
        if RoomReady = '1' then
          v.Table.Chunk := RoomFound;
          v.State := StateFrames;
          if RoomOk = '1' then
            v.State := StateRead;
          end if;
        end if;

      when StateFrames =>
        if Frame_Ready = '1' then
          v.State := StateGiven;
        end if;

      when StateGiven =>
        v.Shown := (Given_First, (others => '0'));
        v.IsNew   := '1';
        if Given_Valid = '1' then
          v.Ok    := Given_Ok;
          v.State := StateIdle;
          if Given_Ok = '1' then
            v.State := StateUnused;
          end if;
        end if;

      when StateUnused =>
        UnusedValid <= '1';
        Find        <= '1';
        v.State     := StateUnusedFound;

      when StateUnusedFound =>
        -- There are as many numbers as there can be chunks.
        if UnusedReady = '1' then
          v.Table.Chunk := UnusedFound;
          v.Ok    := UnusedOk;
          v.State := StateChange;
          if UnusedOk = '0' then
            v.State := StateBack;
          end if;
        end if;

      when StateRead =>
        v.Shown := ReadChunk;
        v.State   := StateChange;

      when StateChange =>
        v.Ok    := '1';
        v.State := StateMark;
        if r.Give = '1' then
          v.Shown.Taken(slotOf(r.Table)) := '0';
        else
          v.Shown.Taken(lowestClear(r.Shown.Taken)) := '1';
          v.Table.Number := numberOf(r.Shown.Frame, lowestClear(r.Shown.Taken));
        end if;

      when StateMark =>
        -- Whether it has room now; a new one is used.
        WriteChunk  <= '1';
        RoomValid   <= '1';
        RoomValue   <= '0' when (and r.Shown.Taken) = '1' or (or r.Shown.Taken) = '0' else '1';
        UnusedValid <= r.IsNew;
        v.State     := StateMarked;

      when StateMarked =>
        v.State := StateIdle;
        if (or r.Shown.Taken) = '0' then
          v.State := StateGone;
        end if;

      when StateGone =>
        UnusedValid <= '1';
        UnusedValue <= '1';
        v.State     := StateBack;

      when StateBack =>
        if Frame_Ready = '1' then
          v.State := StateBackDone;
        end if;

      when StateBackDone =>
        if Given_Valid = '1' then
          v.State := StateIdle;
        end if;

    end case;

    if Rst = '1' then
      v.State := StateIdle;
      v.Held  := 0;
    end if;
    n <= v;
  end process;

  p_registers : process (Clk) is
  begin
    if rising_edge(Clk) then
      r <= n;
    end if;
  end process;

end architecture;
