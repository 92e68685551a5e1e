-- Walks the two levels of the window's page tables, up to Walks_g pages at a time.
--
-- A walk reads the word of its page's table from the root, then the word of the page from that
-- table; where the root maps a whole run it ends there. Responses come in the order of requests.
-- A walk has a credit from its request to its response, so that whatever the memory answers is
-- taken at once: Axi_RReady is always 1. Nothing is kept from one walk to the next.
-- Timing, ports and generics: docs/rtl/walker.md.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.window_pkg.all;

entity walker is
  generic (
    -- Of a place in a memory of the card.
    PhysBits_g : positive := 40;
    -- Bytes of a page, as a power of two.
    PageBits_g : positive := 12;
    -- Words of the root and of a table of the leaf level, as powers of two.
    RootBits_g : positive := 13;
    LeafBits_g : positive := 13;
    -- Walks under way.
    Walks_g    : positive := 32
  );
  port (
    Clk           : in    std_logic;
    Rst           : in    std_logic;
    -- Where the root lies; it is aligned to its size.
    Root_Addr     : in    std_logic_vector(PhysBits_g - 1 downto RootBits_g + WordShift_c);
    -- Pages to walk for
    Req_Valid     : in    std_logic;
    Req_Ready     : out   std_logic;
    Req_Page      : in    std_logic_vector(RootBits_g + LeafBits_g - 1 downto 0);
    -- Responses
    Resp_Valid    : out   std_logic;
    Resp_Ready    : in    std_logic;
    Resp_Status   : out   Status_t;
    Resp_Writable : out   std_logic;
    Resp_Memory   : out   std_logic_vector(MemoryBits_c - 1 downto 0);
    -- Pages of the aligned run that the page is part of, as a power of two.
    Resp_Size     : out   std_logic_vector(SizeBits_c - 1 downto 0);
    Resp_Frame    : out   std_logic_vector(PhysBits_g - PageBits_g - 1 downto 0);
    -- AXI4: reads of one word. Id 0: of the root; id 1: of tables of the leaf level.
    Axi_ArValid   : out   std_logic;
    Axi_ArReady   : in    std_logic;
    Axi_ArId      : out   std_logic_vector(0 downto 0);
    Axi_ArAddr    : out   std_logic_vector(PhysBits_g - 1 downto 0);
    Axi_ArLen     : out   std_logic_vector(7 downto 0);
    Axi_ArSize    : out   std_logic_vector(2 downto 0);
    Axi_ArBurst   : out   std_logic_vector(1 downto 0);
    Axi_RValid    : in    std_logic;
    Axi_RReady    : out   std_logic;
    Axi_RId       : in    std_logic_vector(0 downto 0);
    Axi_RData     : in    std_logic_vector(WordBits_c - 1 downto 0);
    Axi_RResp     : in    std_logic_vector(1 downto 0)
  );
end entity;

architecture rtl of walker is

  constant FrameBits_c : positive := PhysBits_g - PageBits_g;
  constant TableBits_c : positive := PhysBits_g - LeafBits_g - WordShift_c;

  subtype Page_t is std_logic_vector(RootBits_g + LeafBits_g - 1 downto 0);

  signal InFlight    : natural range 0 to Walks_g;
  signal ArValid     : std_logic;
  signal ArIsLeaf    : std_logic;
  signal ArAddr      : std_logic_vector(PhysBits_g - 1 downto 0);
  signal ArFree      : std_logic;

  signal ReqReady    : std_logic;
  signal ReqAccept   : std_logic;
  signal PageOut     : Page_t;

  signal ReadFailed  : boolean;
  signal RootIn      : EntryVector_t;
  signal RootInValid : std_logic;
  signal RootOut     : EntryVector_t;
  signal RootValid   : std_logic;
  signal Root        : Entry_t;
  signal RootTake    : std_logic;
  signal NeedsLeaf   : std_logic;

  signal MiddleIn    : EntryVector_t;
  signal MiddleOut   : EntryVector_t;
  signal MiddleValid : std_logic;
  signal Middle      : Entry_t;

  signal LeafIn      : EntryVector_t;
  signal LeafInValid : std_logic;
  signal LeafOut     : EntryVector_t;
  signal LeafValid   : std_logic;
  signal LeafReady   : std_logic;

  signal Result      : Entry_t;
  signal RespValid   : std_logic;
  signal RespAccept  : std_logic;

begin

  assert FrameBits_c <= NumberBits_c and TableBits_c <= NumberBits_c
    report "walker: numbers of frames and tables have at most 32 bits" severity failure;
  assert LeafBits_g < 2 ** SizeBits_c and FrameBits_c > LeafBits_g
    report "walker: a run of the root has at most 2**31 pages, and fewer than a memory has frames" severity failure;
  assert PhysBits_g > RootBits_g + WordShift_c
    report "walker: the root leaves no bit of the address" severity failure;

  ------------------------------------------------------------------------------------------------
  -- Reads: of tables first, so that what began first ends first
  ------------------------------------------------------------------------------------------------
  ArFree <= not ArValid or Axi_ArReady;

  NeedsLeaf <= '1' when RootValid = '1' and Root.Status = StatusOk_c and Root.IsTable = '1' else '0';
  RootTake  <= ArFree when NeedsLeaf = '1' else RootValid;

  ReqReady  <= '1' when ArFree = '1' and NeedsLeaf = '0' and InFlight /= Walks_g else '0';
  Req_Ready <= ReqReady;
  ReqAccept <= Req_Valid and ReqReady;

  p_reads : process (Clk) is
  begin
    if rising_edge(Clk) then
      if Axi_ArReady = '1' then
        ArValid <= '0';
      end if;
      if NeedsLeaf = '1' and ArFree = '1' then
        ArValid  <= '1';
        ArIsLeaf <= '1';
        ArAddr   <= Root.Number(TableBits_c - 1 downto 0) & PageOut(LeafBits_g - 1 downto 0) & "000";
      elsif ReqAccept = '1' then
        ArValid  <= '1';
        ArIsLeaf <= '0';
        ArAddr   <= Root_Addr & Req_Page(RootBits_g + LeafBits_g - 1 downto LeafBits_g) & "000";
      end if;
      if Rst = '1' then
        ArValid <= '0';
      end if;
    end if;
  end process;

  Axi_ArValid <= ArValid;
  Axi_ArId(0) <= ArIsLeaf;
  Axi_ArAddr  <= ArAddr;
  Axi_ArLen   <= (others => '0');
  Axi_ArSize  <= "011";
  Axi_ArBurst <= "01";
  Axi_RReady  <= '1';

  p_credits : process (Clk) is
  begin
    if rising_edge(Clk) then
      if ReqAccept = '1' and RespAccept = '0' then
        InFlight <= InFlight + 1;
      elsif ReqAccept = '0' and RespAccept = '1' then
        InFlight <= InFlight - 1;
      end if;
      if Rst = '1' then
        InFlight <= 0;
      end if;
    end if;
  end process;

  ------------------------------------------------------------------------------------------------
  -- What the root says. A queue is never full: each walk has one place in it.
  ------------------------------------------------------------------------------------------------
  i_pages : entity work.fifo
    generic map (
      Width_g => Page_t'length,
      Depth_g => Walks_g
    )
    port map (
      Clk       => Clk,
      Rst       => Rst,
      In_Valid  => ReqAccept,
      In_Ready  => open,
      In_Data   => Req_Page,
      Out_Valid => open,
      Out_Ready => RootTake,
      Out_Data  => PageOut,
      Level     => open
    );

  ReadFailed  <= Axi_RResp /= "00";
  RootIn      <= toVector(rootEntry(Axi_RData, ReadFailed, FrameBits_c, TableBits_c, LeafBits_g));
  RootInValid <= Axi_RValid and not Axi_RId(0);
  Root        <= toEntry(RootOut);

  i_root : entity work.fifo
    generic map (
      Width_g => EntryBits_c,
      Depth_g => Walks_g
    )
    port map (
      Clk       => Clk,
      Rst       => Rst,
      In_Valid  => RootInValid,
      In_Ready  => open,
      In_Data   => RootIn,
      Out_Valid => RootValid,
      Out_Ready => RootTake,
      Out_Data  => RootOut,
      Level     => open
    );

  -- The root's word; of a run, with the frame of the page.
  p_middle : process (all) is
    variable e_v : Entry_t;
  begin
    e_v := Root;
    if Root.IsTable = '0' then
      e_v.Number(LeafBits_g - 1 downto 0) := PageOut(LeafBits_g - 1 downto 0);
    end if;
    MiddleIn <= toVector(e_v);
  end process;

  i_middle : entity work.fifo
    generic map (
      Width_g => EntryBits_c,
      Depth_g => Walks_g
    )
    port map (
      Clk       => Clk,
      Rst       => Rst,
      In_Valid  => RootTake,
      In_Ready  => open,
      In_Data   => MiddleIn,
      Out_Valid => MiddleValid,
      Out_Ready => RespAccept,
      Out_Data  => MiddleOut,
      Level     => open
    );

  Middle <= toEntry(MiddleOut);

  ------------------------------------------------------------------------------------------------
  -- What tables of the leaf level say
  ------------------------------------------------------------------------------------------------
  LeafIn      <= toVector(leafEntry(Axi_RData, ReadFailed, FrameBits_c, LeafBits_g));
  LeafInValid <= Axi_RValid and Axi_RId(0);
  LeafReady   <= RespAccept when Middle.Status = StatusOk_c and Middle.IsTable = '1' else '0';

  i_leaf : entity work.fifo
    generic map (
      Width_g => EntryBits_c,
      Depth_g => Walks_g
    )
    port map (
      Clk       => Clk,
      Rst       => Rst,
      In_Valid  => LeafInValid,
      In_Ready  => open,
      In_Data   => LeafIn,
      Out_Valid => LeafValid,
      Out_Ready => LeafReady,
      Out_Data  => LeafOut,
      Level     => open
    );

  p_result : process (all) is
  begin
    Result    <= Middle;
    RespValid <= MiddleValid;
    if Middle.Status = StatusOk_c and Middle.IsTable = '1' then
      Result    <= toEntry(LeafOut);
      RespValid <= MiddleValid and LeafValid;
    end if;
  end process;

  RespAccept    <= RespValid and Resp_Ready;
  Resp_Valid    <= RespValid;
  Resp_Status   <= Result.Status;
  Resp_Writable <= Result.Writable;
  Resp_Memory   <= Result.Memory;
  Resp_Size     <= Result.Size;
  Resp_Frame    <= Result.Number(FrameBits_c - 1 downto 0);

end architecture;
