-- Translations of pages in block RAM, between a translator and its walker: Ways_g for each set of pages with
-- the same lowest bits.
--
-- Responses come in the order of requests, of what is held and of walks alike. What a walk finds is
-- kept, if it may be written to (a fault is never answered from here) and no invalidation was taken since
-- the walk was asked for. An invalidation goes through the sets that its pages have, one a cycle, while
-- requests wait; what is accepted afterwards is answered by a walk that was asked for after it. With a page is
-- kept of which run it is part. That is told until there is an invalidation, of whichever pages, as it may be
-- of others of the run; from then on it is a single page. Invalidations are counted for that, and when the
-- count begins again, everything is dropped.
-- Timing, ports and generics: docs/rtl/l2_tlb.md.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.index_pkg.all;
  use work.window_pkg.all;

entity l2_tlb is
  generic (
    -- Of a place in a memory of the card.
    PhysBits_g   : positive := 40;
    -- Bytes of a page, as a power of two.
    PageBits_g   : positive := 12;
    -- Pages of the window, as a power of two.
    WindowBits_g : positive := 26;
    -- Sets, as a power of two.
    SetBits_g    : positive := 8;
    -- Translations of a set.
    Ways_g       : positive := 4;
    -- Requests that wait for their response.
    Depth_g      : positive := 32;
    -- Invalidations up to the one that drops everything, as a power of two.
    EpochBits_g  : positive := 16
  );
  port (
    Clk           : in    std_logic;
    Rst           : in    std_logic;
    -- Pages, and their responses
    Req_Valid     : in    std_logic;
    Req_Ready     : out   std_logic;
    Req_Page      : in    std_logic_vector(WindowBits_g - 1 downto 0);
    -- For the walk, if there is one: the page is written to.
    Req_Write     : in    std_logic;
    -- Of the page that is looked up, from the cycle after its request on: it is found elsewhere. It has no response
    -- then, and no walk.
    Look_Skip     : in    std_logic;
    Resp_Valid    : out   std_logic;
    Resp_Ready    : in    std_logic;
    Resp_Status   : out   Status_t;
    Resp_Writable : out   std_logic;
    Resp_Memory   : out   std_logic_vector(MemoryBits_c - 1 downto 0);
    Resp_Size     : out   std_logic_vector(SizeBits_c - 1 downto 0);
    Resp_Frame    : out   std_logic_vector(PhysBits_g - PageBits_g - 1 downto 0);
    -- Those that are not held, and what the walker says, in their order
    Walk_Valid    : out   std_logic;
    Walk_Ready    : in    std_logic;
    Walk_Page     : out   std_logic_vector(WindowBits_g - 1 downto 0);
    Walk_Write    : out   std_logic;
    Came_Valid    : in    std_logic;
    Came_Ready    : out   std_logic;
    Came_Status   : in    Status_t;
    Came_Writable : in    std_logic;
    Came_Memory   : in    std_logic_vector(MemoryBits_c - 1 downto 0);
    Came_Size     : in    std_logic_vector(SizeBits_c - 1 downto 0);
    Came_Frame    : in    std_logic_vector(PhysBits_g - PageBits_g - 1 downto 0);
    -- Invalidation of the pages from First to Last; First is not beyond Last
    Inval_Valid   : in    std_logic;
    Inval_Ready   : out   std_logic;
    Inval_First   : in    std_logic_vector(WindowBits_g - 1 downto 0);
    Inval_Last    : in    std_logic_vector(WindowBits_g - 1 downto 0);
    -- For counters, for one cycle each: a request is accepted; one is looked up; its page is held.
    Event_Accept  : out   std_logic;
    Event_Look    : out   std_logic;
    Event_Held    : out   std_logic
  );
end entity;

architecture rtl of l2_tlb is

  constant TagBits_c   : positive := WindowBits_g - SetBits_g;
  -- The run's size, memory and frame.
  constant WhereBits_c : positive := SizeBits_c + MemoryBits_c + PhysBits_g - PageBits_g;
  constant WayBits_c   : positive := 1 + TagBits_c + EpochBits_g + WhereBits_c;
  -- Of a request that waits: where its page is, or the page.
  constant KnownBits_c : positive := maximum(WhereBits_c, WindowBits_g);

  subtype Page_t is std_logic_vector(WindowBits_g - 1 downto 0);
  subtype Set_t is unsigned(SetBits_g - 1 downto 0);
  subtype Tag_t is std_logic_vector(TagBits_c - 1 downto 0);
  subtype Epoch_t is unsigned(EpochBits_g - 1 downto 0);
  subtype Where_t is std_logic_vector(WhereBits_c - 1 downto 0);
  subtype Size_t is natural range WhereBits_c - 1 downto WhereBits_c - SizeBits_c;
  subtype Way_t is std_logic_vector(WayBits_c - 1 downto 0);
  subtype Ways_t is std_logic_vector(Ways_g - 1 downto 0);

  type WayMemory_t is array (0 to 2 ** SetBits_g - 1) of Way_t;

  subtype Turn_t is std_logic_vector(bitsOf(Ways_g) - 1 downto 0);

  type TurnMemory_t is array (0 to 2 ** SetBits_g - 1) of Turn_t;

  type WaysOut_t is array (0 to Ways_g - 1) of Way_t;

  type Registers_t is record
    -- The request whose set has been read.
    LookValid : std_logic;
    LookPage  : Page_t;
    LookWrite : std_logic;
    -- Sets that are gone through: the next one to be read, the last one, and whether one was read in the
    -- cycle before.
    Sweeping  : std_logic;
    SweepSet  : Set_t;
    SweepEnd  : Set_t;
    Swept     : std_logic;
    SweptSet  : Set_t;
    -- What is dropped: all, after a reset; else the smallest aligned run with the pages of the invalidation.
    DropAll   : std_logic;
    DropTag   : Tag_t;
    DropMask  : Tag_t;
    -- Invalidations, and the count that begins again.
    Epoch     : Epoch_t;
    -- Of the requests that wait, those that were accepted before the last invalidation.
    Elder     : natural range 0 to Depth_g;
  end record;

  signal r : Registers_t;

  -- Of each set, the way that is filled next.
  signal Turns      : TurnMemory_t;

  signal Accept     : std_logic;
  signal ReqReady   : std_logic;
  signal ReadEnable : std_logic;
  signal ReadSet    : Set_t;
  signal WaysOut    : WaysOut_t;
  signal IsHits     : Ways_t;
  signal IsDropped  : Ways_t;
  -- Nothing was invalidated since the way was filled.
  signal AreRuns    : Ways_t;
  signal IsHit      : std_logic;
  signal HitWhere   : Where_t;
  signal LookDone   : std_logic;
  signal Looked     : std_logic;
  signal WriteSet   : Set_t;
  signal WriteWay   : Way_t;
  signal WriteNow   : Ways_t;
  signal Fill       : std_logic;
  signal Turn       : Turn_t;
  signal NextTurn   : Turn_t;

  signal QueueIn    : std_logic_vector(KnownBits_c downto 0);
  signal QueueOut   : std_logic_vector(KnownBits_c downto 0);
  signal QueueReady : std_logic;
  signal QueueLevel : natural range 0 to Depth_g;
  signal HeadValid  : std_logic;
  signal HeadIsHit  : std_logic;
  signal HeadPage   : Page_t;
  signal RespValid  : std_logic;
  signal Responded  : std_logic;
  signal InvalReady : std_logic;
  signal InvalMask  : Page_t;

begin

  assert WindowBits_g > SetBits_g
    report "l2_tlb: there are fewer sets than pages" severity failure;
  assert PhysBits_g > PageBits_g
    report "l2_tlb: a frame's number has a bit" severity failure;

  ------------------------------------------------------------------------------------------------
  -- Requests: the set is read, then its ways are compared
  ------------------------------------------------------------------------------------------------
  -- Whether the page is held is known late in the cycle, too late for who asks: one that is looked up while
  -- the walker takes nothing goes on by itself, and nobody follows in its cycle.
  ReqReady  <= not r.Sweeping and not r.Swept and not Inval_Valid
               and (not r.LookValid or (QueueReady and Walk_Ready));
  Req_Ready <= ReqReady;
  Accept    <= Req_Valid and ReqReady;

  ReadEnable <= Accept or r.Sweeping;
  ReadSet    <= r.SweepSet when r.Sweeping = '1' else unsigned(Req_Page(SetBits_g - 1 downto 0));

  g_ways : for i in 0 to Ways_g - 1 generate
    signal Memory : WayMemory_t;
    signal Tag    : Tag_t;
  begin

    p_memory : process (Clk) is
    begin
      if rising_edge(Clk) then
        if ReadEnable = '1' then
          WaysOut(i) <= Memory(to_integer(ReadSet));
        end if;
        if WriteNow(i) = '1' then
          Memory(to_integer(WriteSet)) <= WriteWay;
        end if;
      end if;
    end process;

    Tag          <= WaysOut(i)(WayBits_c - 2 downto EpochBits_g + WhereBits_c);
    AreRuns(i)   <=
      not isAny(WaysOut(i)(EpochBits_g + WhereBits_c - 1 downto WhereBits_c) xor std_logic_vector(r.Epoch), 3);
    IsHits(i)    <= WaysOut(i)(WayBits_c - 1) and not isAny(Tag xor r.LookPage(WindowBits_g - 1 downto SetBits_g), 3);
    IsDropped(i) <= r.Swept and (r.DropAll or not isAny((Tag xor r.DropTag) and not r.DropMask, 2));
    WriteNow(i)  <= IsDropped(i) or Fill when unsigned(Turn) = i else IsDropped(i);

  end generate;

  IsHit <= or (IsHits);

  -- A page that was filled twice is in two ways: the first counts.
  p_hit : process (all) is
  begin
    HitWhere <= (others => '0');
    for i in Ways_g - 1 downto 0 loop
      if IsHits(i) = '1' then
        HitWhere <= WaysOut(i)(WhereBits_c - 1 downto 0);
        if AreRuns(i) = '0' then
          HitWhere(Size_t) <= (others => '0');
        end if;
      end if;
    end loop;
  end process;

  LookDone <= Look_Skip or (QueueReady and (IsHit or Walk_Ready));
  Looked   <= r.LookValid and QueueReady and (IsHit or Walk_Ready) and not Look_Skip;

  p_item : process (all) is
  begin
    QueueIn <= (others => '0');
    QueueIn(KnownBits_c) <= IsHit;
    if IsHit = '1' then
      QueueIn(WhereBits_c - 1 downto 0) <= HitWhere;
    else
      QueueIn(WindowBits_g - 1 downto 0) <= r.LookPage;
    end if;
  end process;

  i_queue : entity work.fifo
    generic map (
      Width_g => KnownBits_c + 1,
      Depth_g => Depth_g
    )
    port map (
      Clk       => Clk,
      Rst       => Rst,
      In_Valid  => Looked,
      In_Ready  => QueueReady,
      In_Data   => QueueIn,
      Out_Valid => HeadValid,
      Out_Ready => Responded,
      Out_Data  => QueueOut,
      Level     => QueueLevel,
      In_Place  => open,
      Out_Place => open
    );

  -- Its set is not read again before it has gone on, so what is shown stays.
  Walk_Valid <= r.LookValid and QueueReady and not IsHit and not Look_Skip;
  Walk_Page  <= r.LookPage;
  Walk_Write <= r.LookWrite;

  Event_Accept <= Accept;
  Event_Look   <= Looked;
  Event_Held   <= Looked and IsHit;

  ------------------------------------------------------------------------------------------------
  -- Responses, and what is kept of them
  ------------------------------------------------------------------------------------------------
  HeadIsHit  <= QueueOut(KnownBits_c);
  HeadPage   <= QueueOut(WindowBits_g - 1 downto 0);
  RespValid  <= HeadValid and (HeadIsHit or Came_Valid);
  Resp_Valid <= RespValid;
  Responded  <= RespValid and Resp_Ready;
  Came_Ready <= HeadValid and not HeadIsHit and Resp_Ready;

  p_response : process (all) is
  begin
    Resp_Status   <= Came_Status;
    Resp_Writable <= Came_Writable;
    Resp_Memory   <= Came_Memory;
    Resp_Size     <= Came_Size;
    Resp_Frame    <= Came_Frame;
    if HeadIsHit = '1' then
      Resp_Status   <= StatusOk_c;
      Resp_Writable <= '1';
      Resp_Memory   <= QueueOut(PhysBits_g - PageBits_g + MemoryBits_c - 1 downto PhysBits_g - PageBits_g);
      Resp_Size     <= QueueOut(Size_t);
      Resp_Frame    <= QueueOut(PhysBits_g - PageBits_g - 1 downto 0);
    end if;
  end process;

  Fill <= Responded and not HeadIsHit and Came_Writable when Came_Status = StatusOk_c and r.Elder = 0 else '0';

  WriteSet <= r.SweptSet when r.Swept = '1' else unsigned(HeadPage(SetBits_g - 1 downto 0));
  WriteWay <= (not r.Swept) & HeadPage(WindowBits_g - 1 downto SetBits_g) & std_logic_vector(r.Epoch)
              & Came_Size & Came_Memory & Came_Frame;

  -- The ways of a set take turns; the first is the first after a reset.
  Turn     <= Turns(to_integer(WriteSet));
  NextTurn <= (others => '0') when Fill = '0' or unsigned(Turn) = Ways_g - 1 else std_logic_vector(unsigned(Turn) + 1);

  p_turns : process (Clk) is
  begin
    if rising_edge(Clk) then
      if Fill = '1' or (r.Swept = '1' and r.DropAll = '1') then
        Turns(to_integer(WriteSet)) <= NextTurn;
      end if;
    end if;
  end process;

  ------------------------------------------------------------------------------------------------
  -- Invalidation: after the request whose set was read, and before any other
  ------------------------------------------------------------------------------------------------
  InvalReady  <= not r.Sweeping and not r.Swept and not r.LookValid;
  Inval_Ready <= InvalReady;
  InvalMask   <= maskOf(Inval_First, Inval_Last);

  p_registers : process (Clk) is
  begin
    if rising_edge(Clk) then
      if LookDone = '1' then
        r.LookValid <= '0';
      end if;
      if Accept = '1' then
        r.LookValid <= '1';
        r.LookPage  <= Req_Page;
        r.LookWrite <= Req_Write;
      end if;

      r.Swept    <= r.Sweeping;
      r.SweptSet <= r.SweepSet;
      r.SweepSet <= r.SweepSet + 1;
      if r.Sweeping = '1' and r.SweepSet = r.SweepEnd then
        r.Sweeping <= '0';
      end if;
      if Responded = '1' and r.Elder /= 0 then
        r.Elder <= r.Elder - 1;
      end if;
      if Inval_Valid = '1' and InvalReady = '1' then
        r.Sweeping <= '1';
        r.SweepSet <= unsigned(Inval_First(SetBits_g - 1 downto 0) and not InvalMask(SetBits_g - 1 downto 0));
        r.SweepEnd <= unsigned(Inval_First(SetBits_g - 1 downto 0) or InvalMask(SetBits_g - 1 downto 0));
        r.DropAll  <= '0';
        r.DropTag  <= Inval_First(WindowBits_g - 1 downto SetBits_g);
        r.DropMask <= InvalMask(WindowBits_g - 1 downto SetBits_g);
        r.Epoch    <= r.Epoch + 1;
        if and (r.Epoch) = '1' then
          r.DropAll  <= '1';
          r.SweepSet <= (others => '0');
          r.SweepEnd <= (others => '1');
        end if;
        if Responded = '1' then
          r.Elder <= QueueLevel - 1;
        else
          r.Elder <= QueueLevel;
        end if;
      end if;

      if Rst = '1' then
        r.LookValid <= '0';
        r.Sweeping  <= '1';
        r.SweepSet  <= (others => '0');
        r.SweepEnd  <= (others => '1');
        r.Swept     <= '0';
        r.DropAll   <= '1';
        r.Epoch     <= (others => '0');
        r.Elder     <= 0;
      end if;
    end if;
  end process;

end architecture;
