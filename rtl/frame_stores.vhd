-- Which frames of a card's memories are in use: a frame_store for each of them, one of which is asked at a time.
--
-- Frames are numbered within their memory, so a request names it, as whoever looks how many are free does. Answers are
-- of the memory that was asked last: whoever asks another one has all answers of before. Nobody who asks needs more: an
-- allocation has frames of one memory, and what is swept comes back before other pages are.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.memories_pkg.all;
  use work.window_pkg.all;

entity frame_stores is
  generic (
    -- Of a frame's number.
    FrameBits_g : positive;
    -- Frames of the tables' memory, its number, and frames of the others (`memories_pkg`).
    Frames_g    : positive;
    Memory_g    : natural;
    Others_g    : string
  );
  port (
    Clk         : in    std_logic;
    Rst         : in    std_logic;
    -- So many frames, the first ones of the tables' memory, are for something that is always there.
    Fixed       : in    std_logic_vector(FrameBits_g - 1 downto 0);
    -- Of the free frames of a memory, so many are promised to somebody else.
    Promised    : in    std_logic_vector(FrameBits_g downto 0);
    Promised_Of : in    std_logic_vector(MemoryBits_c - 1 downto 0);
    -- Free frames of a memory; more than are promised; whether less than 1/16 of one, a cycle later.
    Free_Of     : in    std_logic_vector(MemoryBits_c - 1 downto 0);
    Free        : out   std_logic_vector(FrameBits_g downto 0);
    Has_Frame   : out   std_logic;
    Few_Of      : in    std_logic_vector(MemoryBits_c - 1 downto 0);
    Few         : out   std_logic;
    -- As the ports of a frame store, for one of the memories.
    Op_Valid    : in    std_logic;
    Op_Ready    : out   std_logic;
    Op_Memory   : in    std_logic_vector(MemoryBits_c - 1 downto 0);
    Op_Give     : in    std_logic;
    Op_Size     : in    std_logic_vector(SizeBits_c - 1 downto 0);
    Op_HasHint  : in    std_logic;
    Op_First    : in    std_logic_vector(FrameBits_g - 1 downto 0);
    Op_Next     : in    std_logic;
    Resp_Valid  : out   std_logic;
    Resp_Ok     : out   std_logic;
    Resp_First  : out   std_logic_vector(FrameBits_g - 1 downto 0)
  );
end entity;

architecture rtl of frame_stores is

  constant Memories_c : positive := memoriesOf(Others_g);

  subtype Memory_t is natural range 0 to Memories_c - 1;

  subtype Count_t is std_logic_vector(FrameBits_g downto 0);

  type Counts_t is array (Memory_t) of Count_t;

  type Frames_t is array (Memory_t) of std_logic_vector(FrameBits_g - 1 downto 0);

  signal Frees    : Counts_t;
  signal Promises : Counts_t;
  signal Fews     : std_logic_vector(Memory_t);
  signal Asks     : std_logic_vector(Memory_t);
  signal Readies  : std_logic_vector(Memory_t);
  signal Valids   : std_logic_vector(Memory_t);
  signal Oks      : std_logic_vector(Memory_t);
  signal Firsts   : Frames_t;
  -- The memory that is asked, and the one whose answers come.
  signal Asked    : Memory_t;
  signal Now      : Memory_t;

  -- The store of a memory's number. The only one has any number.
  function storeOf (memory : std_logic_vector(MemoryBits_c - 1 downto 0)) return Memory_t is
  begin
    for i in Memory_t loop
      if Memories_c > 1 and unsigned(memory) = i then
        return i;
      end if;
    end loop;
    return 0;
  end function;

  function isOfTables (store : Memory_t) return boolean is
  begin
    return Memories_c = 1 or store = Memory_g;
  end function;

begin

  assert Memories_c = 1 or Memory_g < Memories_c
    report "frame_stores: the tables are in a memory that there is not" severity failure;

  Free      <= Frees(storeOf(Free_Of));
  Has_Frame <= '1' when unsigned(Frees(storeOf(Free_Of))) > unsigned(Promises(storeOf(Free_Of))) else '0';
  Few       <= Fews(storeOf(Few_Of));

  Asked      <= storeOf(Op_Memory);
  Op_Ready   <= Readies(Asked);
  Resp_Valid <= Valids(Now);
  Resp_Ok    <= Oks(Now);
  Resp_First <= Firsts(Now);

  g_several : if Memories_c > 1 generate

    p_now : process (Clk) is
    begin
      if rising_edge(Clk) then
        if Op_Valid = '1' then
          Now <= Asked;
        end if;
        if Rst = '1' then
          Now <= 0;
        end if;
      end if;
    end process;

  else generate
    Now <= 0;
  end generate;

  g_stores : for i in Memory_t generate
    constant Frames_c : positive := framesOf(i, Frames_g, Memory_g, Others_g);
    signal   Always   : std_logic_vector(FrameBits_g - 1 downto 0);
  begin
    Always      <= Fixed when isOfTables(i) else (others => '0');
    Promises(i) <= Promised when storeOf(Promised_Of) = i else (others => '0');
    Asks(i)     <= Op_Valid when Asked = i else '0';

    p_few : process (Clk) is
    begin
      if rising_edge(Clk) then
        Fews(i) <= '1' when unsigned(Frees(i)) < Frames_c / 16 else '0';
      end if;
    end process;

    i_store : entity work.frame_store
      generic map (
        FrameBits_g => FrameBits_g,
        Frames_g    => Frames_c
      )
      port map (
        Clk        => Clk,
        Rst        => Rst,
        Fixed      => Always,
        Promised   => Promises(i),
        Free       => Frees(i),
        Op_Valid   => Asks(i),
        Op_Ready   => Readies(i),
        Op_Give    => Op_Give,
        Op_Size    => Op_Size,
        Op_HasHint => Op_HasHint,
        Op_Next    => Op_Next,
        Op_First   => Op_First,
        Resp_Valid => Valids(i),
        Resp_Ready => '1',
        Resp_Ok    => Oks(i),
        Resp_First => Firsts(i)
      );

  end generate;

end architecture;
