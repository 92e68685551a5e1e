-- A translator, an L2 TLB (or none) and a walker of its own: what one reader or writer of the card's window needs.
--
-- Ports are those of the three; see translator.vhd, l2_tlb.vhd and walker.vhd. An invalidation goes from
-- behind to the front: the L2 TLB takes it, and in that cycle the walker's lines are dropped; then the
-- translator does, and with that it is taken. So what the translator asks for from then on finds nothing of
-- before in the L2 TLB, and what that asks for finds no line of before. The words of its pages are
-- written before it is shown.

library ieee;
  use ieee.std_logic_1164.all;

library work;
  use work.window_pkg.all;

entity window_mmu is
  generic (
    AddrBits_g  : positive := 64;
    PhysBits_g  : positive := 40;
    PageBits_g  : positive := 12;
    RootBits_g  : positive := 13;
    LeafBits_g  : positive := 13;
    TagBits_g   : positive := 8;
    Entries_g   : positive := 8;
    Depth_g     : positive := 32;
    SetBits_g   : positive := 8;
    -- Of the L2 TLB; without any there is none.
    Ways_g      : natural  := 4;
    EpochBits_g : positive := 16;
    DataBits_g  : positive := 512;
    Walks_g     : positive := 32;
    Lines_g     : positive := 32;
    AheadFrom_g : natural  := 4
  );
  port (
    Clk          : in    std_logic;
    Rst          : in    std_logic;
    Window_Base  : in    std_logic_vector(AddrBits_g - 1 downto PageBits_g + RootBits_g + LeafBits_g);
    -- Words of the root
    Root_Valid   : in    std_logic;
    Root_Ready   : out   std_logic;
    Root_Index   : in    std_logic_vector(RootBits_g - 1 downto 0);
    Root_Word    : in    std_logic_vector(WordBits_c - 1 downto 0);
    -- Requests
    In_Valid     : in    std_logic;
    In_Ready     : out   std_logic;
    In_Addr      : in    std_logic_vector(AddrBits_g - 1 downto 0);
    In_Write     : in    std_logic;
    In_Tag       : in    std_logic_vector(TagBits_g - 1 downto 0);
    -- Answers
    Out_Valid    : out   std_logic;
    Out_Ready    : in    std_logic;
    Out_Addr     : out   std_logic_vector(AddrBits_g - 1 downto 0);
    Out_Write    : out   std_logic;
    Out_Tag      : out   std_logic_vector(TagBits_g - 1 downto 0);
    Out_InWindow : out   std_logic;
    Out_Memory   : out   std_logic_vector(MemoryBits_c - 1 downto 0);
    Out_Status   : out   Status_t;
    -- Invalidation
    Inval_Valid  : in    std_logic;
    Inval_Ready  : out   std_logic;
    Inval_First  : in    std_logic_vector(RootBits_g + LeafBits_g - 1 downto 0);
    Inval_Last   : in    std_logic_vector(RootBits_g + LeafBits_g - 1 downto 0);
    Inval_Done   : out   std_logic;
    -- AXI4, reads of tables
    Axi_ArValid  : out   std_logic;
    Axi_ArReady  : in    std_logic;
    Axi_ArAddr   : out   std_logic_vector(PhysBits_g - 1 downto 0);
    Axi_ArLen    : out   std_logic_vector(7 downto 0);
    Axi_ArSize   : out   std_logic_vector(2 downto 0);
    Axi_ArBurst  : out   std_logic_vector(1 downto 0);
    Axi_RValid   : in    std_logic;
    Axi_RReady   : out   std_logic;
    Axi_RData    : in    std_logic_vector(DataBits_g - 1 downto 0);
    Axi_RResp    : in    std_logic_vector(1 downto 0);
    -- For counters: of the L2 TLB, which has also taken an invalidation; of the walker; a result was taken
    -- by the translator
    Event_Accept : out   std_logic;
    Event_Look   : out   std_logic;
    Event_Held   : out   std_logic;
    Event_Drop   : out   std_logic;
    Event_Walk   : out   std_logic;
    Event_Found  : out   std_logic;
    Event_Ahead  : out   std_logic;
    Event_Resp   : out   std_logic;
    Event_Walked : out   std_logic
  );
end entity;

architecture rtl of window_mmu is

  signal ReqValid     : std_logic;
  signal ReqReady     : std_logic;
  signal ReqPage      : std_logic_vector(RootBits_g + LeafBits_g - 1 downto 0);
  signal RespValid    : std_logic;
  signal RespReady    : std_logic;
  signal RespStatus   : Status_t;
  signal RespWritable : std_logic;
  signal RespMemory   : std_logic_vector(MemoryBits_c - 1 downto 0);
  signal RespSize     : std_logic_vector(SizeBits_c - 1 downto 0);
  signal RespFrame    : std_logic_vector(PhysBits_g - PageBits_g - 1 downto 0);
  signal WalkValid    : std_logic;
  signal WalkReady    : std_logic;
  signal WalkPage     : std_logic_vector(RootBits_g + LeafBits_g - 1 downto 0);
  signal CameValid    : std_logic;
  signal CameReady    : std_logic;
  signal CameStatus   : Status_t;
  signal CameWritable : std_logic;
  signal CameMemory   : std_logic_vector(MemoryBits_c - 1 downto 0);
  signal CameSize     : std_logic_vector(SizeBits_c - 1 downto 0);
  signal CameFrame    : std_logic_vector(PhysBits_g - PageBits_g - 1 downto 0);
  -- The L2 TLB has taken the invalidation that is shown, the translator has not.
  signal IsDropped    : std_logic;
  signal L2Valid      : std_logic;
  signal L2Ready      : std_logic;
  signal FrontValid   : std_logic;
  signal FrontReady   : std_logic;
  signal Drop         : std_logic;

begin

  i_translator : entity work.translator
    generic map (
      AddrBits_g   => AddrBits_g,
      PhysBits_g   => PhysBits_g,
      PageBits_g   => PageBits_g,
      WindowBits_g => RootBits_g + LeafBits_g,
      RunBits_g    => LeafBits_g,
      TagBits_g    => TagBits_g,
      Entries_g    => Entries_g,
      Slots_g      => Walks_g,
      Depth_g      => Depth_g
    )
    port map (
      Clk           => Clk,
      Rst           => Rst,
      Window_Base   => Window_Base,
      In_Valid      => In_Valid,
      In_Ready      => In_Ready,
      In_Addr       => In_Addr,
      In_Write      => In_Write,
      In_Tag        => In_Tag,
      Out_Valid     => Out_Valid,
      Out_Ready     => Out_Ready,
      Out_Addr      => Out_Addr,
      Out_Write     => Out_Write,
      Out_Tag       => Out_Tag,
      Out_InWindow  => Out_InWindow,
      Out_Memory    => Out_Memory,
      Out_Status    => Out_Status,
      Walk_Valid    => ReqValid,
      Walk_Ready    => ReqReady,
      Walk_Page     => ReqPage,
      Resp_Valid    => RespValid,
      Resp_Ready    => RespReady,
      Resp_Status   => RespStatus,
      Resp_Writable => RespWritable,
      Resp_Memory   => RespMemory,
      Resp_Size     => RespSize,
      Resp_Frame    => RespFrame,
      Inval_Valid   => FrontValid,
      Inval_Ready   => FrontReady,
      Inval_First   => Inval_First,
      Inval_Last    => Inval_Last,
      Inval_Done    => Inval_Done,
      Twice         => open
    );

  L2Valid     <= Inval_Valid and not IsDropped;
  FrontValid  <= Inval_Valid and IsDropped;
  Inval_Ready <= FrontReady;
  Drop        <= L2Valid and L2Ready;
  Event_Drop  <= Drop;

  p_dropped : process (Clk) is
  begin
    if rising_edge(Clk) then
      if FrontValid = '1' and FrontReady = '1' then
        IsDropped <= '0';
      end if;
      if Drop = '1' then
        IsDropped <= '1';
      end if;
      if Rst = '1' then
        IsDropped <= '0';
      end if;
    end if;
  end process;

  g_l2 : if Ways_g > 0 generate

    i_l2 : entity work.l2_tlb
      generic map (
        PhysBits_g   => PhysBits_g,
        PageBits_g   => PageBits_g,
        WindowBits_g => RootBits_g + LeafBits_g,
        SetBits_g    => SetBits_g,
        Ways_g       => Ways_g,
        Depth_g      => Walks_g,
        EpochBits_g  => EpochBits_g
      )
      port map (
        Clk           => Clk,
        Rst           => Rst,
        Req_Valid     => ReqValid,
        Req_Ready     => ReqReady,
        Req_Page      => ReqPage,
        Req_Write     => '0',
        Look_Skip     => '0',
        Resp_Valid    => RespValid,
        Resp_Ready    => RespReady,
        Resp_Status   => RespStatus,
        Resp_Writable => RespWritable,
        Resp_Memory   => RespMemory,
        Resp_Size     => RespSize,
        Resp_Frame    => RespFrame,
        Walk_Valid    => WalkValid,
        Walk_Ready    => WalkReady,
        Walk_Page     => WalkPage,
        Walk_Write    => open,
        Came_Valid    => CameValid,
        Came_Ready    => CameReady,
        Came_Status   => CameStatus,
        Came_Writable => CameWritable,
        Came_Memory   => CameMemory,
        Came_Size     => CameSize,
        Came_Frame    => CameFrame,
        Inval_Valid   => L2Valid,
        Inval_Ready   => L2Ready,
        Inval_First   => Inval_First,
        Inval_Last    => Inval_Last,
        Event_Accept  => Event_Accept,
        Event_Look    => Event_Look,
        Event_Held    => Event_Held
      );

  else generate
    WalkValid    <= ReqValid;
    ReqReady     <= WalkReady;
    WalkPage     <= ReqPage;
    RespValid    <= CameValid;
    CameReady    <= RespReady;
    RespStatus   <= CameStatus;
    RespWritable <= CameWritable;
    RespMemory   <= CameMemory;
    RespSize     <= CameSize;
    RespFrame    <= CameFrame;
    L2Ready      <= '1';
    Event_Accept <= ReqValid and ReqReady;
    Event_Look   <= '0';
    Event_Held   <= '0';
  end generate;

  -- The translator has taken the result of a walk.
  Event_Walked <= RespValid and RespReady;

  i_walker : entity work.walker
    generic map (
      PhysBits_g  => PhysBits_g,
      PageBits_g  => PageBits_g,
      RootBits_g  => RootBits_g,
      LeafBits_g  => LeafBits_g,
      DataBits_g  => DataBits_g,
      Walks_g     => Walks_g,
      Lines_g     => Lines_g,
      AheadFrom_g => AheadFrom_g
    )
    port map (
      Clk           => Clk,
      Rst           => Rst,
      Root_Valid    => Root_Valid,
      Root_Ready    => Root_Ready,
      Root_Index    => Root_Index,
      Root_Word     => Root_Word,
      Space_Root    => (others => '0'),
      Space_First   => (others => '0'),
      Req_Valid     => WalkValid,
      Req_Ready     => WalkReady,
      Req_Page      => WalkPage,
      Req_IsSpace   => '0',
      Resp_Valid    => CameValid,
      Resp_Ready    => CameReady,
      Resp_Status   => CameStatus,
      Resp_Writable => CameWritable,
      Resp_Memory   => CameMemory,
      Resp_Size     => CameSize,
      Resp_Frame    => CameFrame,
      Resp_Seen     => open,
      Resp_Word     => open,
      Resp_Ticket   => open,
      Ticket        => "0",
      Drop          => Drop,
      Axi_ArValid   => Axi_ArValid,
      Axi_ArReady   => Axi_ArReady,
      Axi_ArAddr    => Axi_ArAddr,
      Axi_ArLen     => Axi_ArLen,
      Axi_ArSize    => Axi_ArSize,
      Axi_ArBurst   => Axi_ArBurst,
      Axi_RValid    => Axi_RValid,
      Axi_RReady    => Axi_RReady,
      Axi_RData     => Axi_RData,
      Axi_RResp     => Axi_RResp,
      Event_Walk    => Event_Walk,
      Event_Found   => Event_Found,
      Event_Ahead   => Event_Ahead,
      Event_Resp    => Event_Resp
    );

end architecture;
