-- The MMU of a card that reads and writes: the AXI4 address channels of both through translators of their own, and
-- behind these, shared, a TLB of flexible length, an L2 TLB and a walker. Registers are AXI4-Lite (mmu_control.vhd).
--
-- A page that a translator does not hold is looked for in the TLB of flexible length, then in the L2 TLB, then in
-- the tables. An invalidation goes from behind to the front: L2 TLB and lines, then each translator; it is
-- taken when both have. The TLB of flexible length is changed by commands of its own; as with the words of
-- tables, an invalidation of the pages follows. Sizes are those of the multi-FPGA paper (section II-B).

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.window_pkg.all;

entity mmu_top is
  generic (
    AddrBits_g    : positive := 64;
    PhysBits_g    : positive := 40;
    PageBits_g    : positive := 12;
    RootBits_g    : positive := 13;
    LeafBits_g    : positive := 13;
    -- Of a burst.
    IdBits_g      : positive := 6;
    -- Translations of each translator, and walks and bursts that wait in it.
    Entries_g     : positive := 32;
    Slots_g       : positive := 16;
    -- The L2 TLB: sets as a power of two, translations of a set.
    SetBits_g     : positive := 8;
    Ways_g        : positive := 4;
    EpochBits_g   : positive := 16;
    -- Runs of any length, and pages of the longest as a power of two.
    Flexible_g    : positive := 32;
    RunBits_g     : positive := 15;
    -- The walker's.
    DataBits_g    : positive := 512;
    Lines_g       : positive := 32;
    AheadFrom_g   : natural  := 4
  );
  port (
    Clk            : in    std_logic;
    Rst            : in    std_logic;
    -- Bursts of reads as they come; as they go on, in which memory; and those that may not, whose address and other
    -- signals are those of M_Ar
    S_Ar_Valid     : in    std_logic;
    S_Ar_Ready     : out   std_logic;
    S_Ar_Addr      : in    std_logic_vector(AddrBits_g - 1 downto 0);
    S_Ar_Id        : in    std_logic_vector(IdBits_g - 1 downto 0);
    S_Ar_Len       : in    std_logic_vector(7 downto 0);
    S_Ar_Size      : in    std_logic_vector(2 downto 0);
    S_Ar_Burst     : in    std_logic_vector(1 downto 0);
    M_Ar_Valid     : out   std_logic;
    M_Ar_Ready     : in    std_logic;
    M_Ar_Addr      : out   std_logic_vector(AddrBits_g - 1 downto 0);
    M_Ar_Id        : out   std_logic_vector(IdBits_g - 1 downto 0);
    M_Ar_Len       : out   std_logic_vector(7 downto 0);
    M_Ar_Size      : out   std_logic_vector(2 downto 0);
    M_Ar_Burst     : out   std_logic_vector(1 downto 0);
    M_Ar_InWindow  : out   std_logic;
    M_Ar_Memory    : out   std_logic_vector(MemoryBits_c - 1 downto 0);
    Ar_FaultValid  : out   std_logic;
    Ar_FaultReady  : in    std_logic;
    Ar_FaultStatus : out   Status_t;
    -- Bursts of writes as they come; as they go on, in which memory; and those that may not, whose address and other
    -- signals are those of M_Aw
    S_Aw_Valid     : in    std_logic;
    S_Aw_Ready     : out   std_logic;
    S_Aw_Addr      : in    std_logic_vector(AddrBits_g - 1 downto 0);
    S_Aw_Id        : in    std_logic_vector(IdBits_g - 1 downto 0);
    S_Aw_Len       : in    std_logic_vector(7 downto 0);
    S_Aw_Size      : in    std_logic_vector(2 downto 0);
    S_Aw_Burst     : in    std_logic_vector(1 downto 0);
    M_Aw_Valid     : out   std_logic;
    M_Aw_Ready     : in    std_logic;
    M_Aw_Addr      : out   std_logic_vector(AddrBits_g - 1 downto 0);
    M_Aw_Id        : out   std_logic_vector(IdBits_g - 1 downto 0);
    M_Aw_Len       : out   std_logic_vector(7 downto 0);
    M_Aw_Size      : out   std_logic_vector(2 downto 0);
    M_Aw_Burst     : out   std_logic_vector(1 downto 0);
    M_Aw_InWindow  : out   std_logic;
    M_Aw_Memory    : out   std_logic_vector(MemoryBits_c - 1 downto 0);
    Aw_FaultValid  : out   std_logic;
    Aw_FaultReady  : in    std_logic;
    Aw_FaultStatus : out   Status_t;
    -- AXI4-Lite, registers
    Lite_AwValid   : in    std_logic;
    Lite_AwReady   : out   std_logic;
    Lite_AwAddr    : in    std_logic_vector(7 downto 0);
    Lite_WValid    : in    std_logic;
    Lite_WReady    : out   std_logic;
    Lite_WData     : in    std_logic_vector(31 downto 0);
    Lite_WStrb     : in    std_logic_vector(3 downto 0);
    Lite_BValid    : out   std_logic;
    Lite_BReady    : in    std_logic;
    Lite_BResp     : out   std_logic_vector(1 downto 0);
    Lite_ArValid   : in    std_logic;
    Lite_ArReady   : out   std_logic;
    Lite_ArAddr    : in    std_logic_vector(7 downto 0);
    Lite_RValid    : out   std_logic;
    Lite_RReady    : in    std_logic;
    Lite_RData     : out   std_logic_vector(31 downto 0);
    Lite_RResp     : out   std_logic_vector(1 downto 0);
    -- AXI4, reads of tables
    Axi_ArValid    : out   std_logic;
    Axi_ArReady    : in    std_logic;
    Axi_ArAddr     : out   std_logic_vector(PhysBits_g - 1 downto 0);
    Axi_ArLen      : out   std_logic_vector(7 downto 0);
    Axi_ArSize     : out   std_logic_vector(2 downto 0);
    Axi_ArBurst    : out   std_logic_vector(1 downto 0);
    Axi_RValid     : in    std_logic;
    Axi_RReady     : out   std_logic;
    Axi_RData      : in    std_logic_vector(DataBits_g - 1 downto 0);
    Axi_RResp      : in    std_logic_vector(1 downto 0)
  );
end entity;

architecture rtl of mmu_top is

  constant WindowBits_c : positive := RootBits_g + LeafBits_g;
  constant FrameBits_c  : positive := PhysBits_g - PageBits_g;
  constant Reader_c     : natural := 0;
  constant Writer_c     : natural := 1;
  constant KnownBits_c  : positive := Status_t'length + 1 + MemoryBits_c + SizeBits_c + FrameBits_c;

  subtype Page_t is std_logic_vector(WindowBits_c - 1 downto 0);
  subtype Both_t is std_logic_vector(1 downto 0);

  -- What is known of a page.
  type Known_t is record
    Status   : Status_t;
    Writable : std_logic;
    Memory   : std_logic_vector(MemoryBits_c - 1 downto 0);
    Size     : std_logic_vector(SizeBits_c - 1 downto 0);
    Frame    : std_logic_vector(FrameBits_c - 1 downto 0);
  end record;

  signal WindowBase  : std_logic_vector(AddrBits_g - 1 downto PageBits_g + WindowBits_c);
  signal RootValid   : std_logic;
  signal RootReady   : std_logic;
  signal RootIndex   : std_logic_vector(RootBits_g - 1 downto 0);
  signal RootWord    : std_logic_vector(WordBits_c - 1 downto 0);
  signal CmdValid    : std_logic;
  signal CmdReady    : std_logic;
  signal CmdKind     : std_logic_vector(1 downto 0);
  signal CmdWritable : std_logic;
  signal CmdMemory   : std_logic_vector(MemoryBits_c - 1 downto 0);
  signal CmdFrame    : std_logic_vector(FrameBits_c - 1 downto 0);
  signal First       : Page_t;
  signal Last        : Page_t;
  signal Bound       : std_logic_vector(WindowBits_c downto 0);
  signal Evictions   : std_logic_vector(31 downto 0);

  -- Between the translators and the arbiter, the TLB of flexible length, the L2 TLB, the walker
  signal WalkValid   : Both_t;
  signal WalkReady   : Both_t;
  signal ReadPage    : Page_t;
  signal WritePage   : Page_t;
  signal RespValid   : Both_t;
  signal RespReady   : Both_t;
  signal PageValid   : std_logic;
  signal PageReady   : std_logic;
  signal Page        : Page_t;
  signal KnownValid  : std_logic;
  signal KnownReady  : std_logic;
  signal Known       : Known_t;
  signal KnownIn     : std_logic_vector(KnownBits_c - 1 downto 0);
  signal KnownOut    : std_logic_vector(KnownBits_c - 1 downto 0);
  signal HandValid   : std_logic;
  signal HandReady   : std_logic;
  signal Hand        : Known_t;
  signal AskValid    : std_logic;
  signal AskReady    : std_logic;
  signal AskPage     : Page_t;
  signal ToldValid   : std_logic;
  signal ToldReady   : std_logic;
  signal Told        : Known_t;
  signal TableValid  : std_logic;
  signal TableReady  : std_logic;
  signal TablePage   : Page_t;
  signal CameValid   : std_logic;
  signal CameReady   : std_logic;
  signal Came        : Known_t;

  signal InvalValid  : std_logic;
  signal InvalReady  : std_logic;
  signal InvalDone   : std_logic;
  -- Of the invalidation that is shown: the L2 TLB has taken it, and which of the translators.
  signal IsDropped   : std_logic;
  signal IsTaken     : Both_t;
  -- Those that have taken one and not answered all of before.
  signal IsDraining  : Both_t;
  signal L2Valid     : std_logic;
  signal L2Ready     : std_logic;
  signal Drop        : std_logic;
  signal FrontValid  : Both_t;
  signal FrontReady  : Both_t;
  signal FrontDone   : Both_t;

begin

  i_control : entity work.mmu_control
    generic map (
      AddrBits_g  => AddrBits_g,
      PageBits_g  => PageBits_g,
      RootBits_g  => RootBits_g,
      LeafBits_g  => LeafBits_g,
      FrameBits_g => FrameBits_c
    )
    port map (
      Clk          => Clk,
      Rst          => Rst,
      Axi_AwValid  => Lite_AwValid,
      Axi_AwReady  => Lite_AwReady,
      Axi_AwAddr   => Lite_AwAddr,
      Axi_WValid   => Lite_WValid,
      Axi_WReady   => Lite_WReady,
      Axi_WData    => Lite_WData,
      Axi_WStrb    => Lite_WStrb,
      Axi_BValid   => Lite_BValid,
      Axi_BReady   => Lite_BReady,
      Axi_BResp    => Lite_BResp,
      Axi_ArValid  => Lite_ArValid,
      Axi_ArReady  => Lite_ArReady,
      Axi_ArAddr   => Lite_ArAddr,
      Axi_RValid   => Lite_RValid,
      Axi_RReady   => Lite_RReady,
      Axi_RData    => Lite_RData,
      Axi_RResp    => Lite_RResp,
      Window_Base  => WindowBase,
      Root_Valid   => RootValid,
      Root_Ready   => RootReady,
      Root_Index   => RootIndex,
      Root_Word    => RootWord,
      Inval_Valid  => InvalValid,
      Inval_Ready  => InvalReady,
      Inval_Done   => InvalDone,
      Cmd_Valid    => CmdValid,
      Cmd_Ready    => CmdReady,
      Cmd_Kind     => CmdKind,
      Cmd_Writable => CmdWritable,
      Cmd_Memory   => CmdMemory,
      Cmd_Frame    => CmdFrame,
      First        => First,
      Last         => Last,
      Evictions    => Evictions
    );

  i_reader : entity work.address_path
    generic map (
      AddrBits_g   => AddrBits_g,
      PhysBits_g   => PhysBits_g,
      PageBits_g   => PageBits_g,
      WindowBits_g => WindowBits_c,
      RunBits_g    => LeafBits_g,
      IdBits_g     => IdBits_g,
      Entries_g    => Entries_g,
      Slots_g      => Slots_g,
      IsWriter_g   => false
    )
    port map (
      Clk           => Clk,
      Rst           => Rst,
      Window_Base   => WindowBase,
      S_Valid       => S_Ar_Valid,
      S_Ready       => S_Ar_Ready,
      S_Addr        => S_Ar_Addr,
      S_Id          => S_Ar_Id,
      S_Len         => S_Ar_Len,
      S_Size        => S_Ar_Size,
      S_Burst       => S_Ar_Burst,
      M_Valid       => M_Ar_Valid,
      M_Ready       => M_Ar_Ready,
      Fault_Valid   => Ar_FaultValid,
      Fault_Ready   => Ar_FaultReady,
      Fault_Status  => Ar_FaultStatus,
      M_Addr        => M_Ar_Addr,
      M_InWindow    => M_Ar_InWindow,
      M_Memory      => M_Ar_Memory,
      M_Id          => M_Ar_Id,
      M_Len         => M_Ar_Len,
      M_Size        => M_Ar_Size,
      M_Burst       => M_Ar_Burst,
      Walk_Valid    => WalkValid(Reader_c),
      Walk_Ready    => WalkReady(Reader_c),
      Walk_Page     => ReadPage,
      Resp_Valid    => RespValid(Reader_c),
      Resp_Ready    => RespReady(Reader_c),
      Resp_Status   => Hand.Status,
      Resp_Writable => Hand.Writable,
      Resp_Memory   => Hand.Memory,
      Resp_Size     => Hand.Size,
      Resp_Frame    => Hand.Frame,
      Inval_Valid   => FrontValid(Reader_c),
      Inval_Ready   => FrontReady(Reader_c),
      Inval_First   => First,
      Inval_Last    => Last,
      Inval_Done    => FrontDone(Reader_c)
    );

  i_writer : entity work.address_path
    generic map (
      AddrBits_g   => AddrBits_g,
      PhysBits_g   => PhysBits_g,
      PageBits_g   => PageBits_g,
      WindowBits_g => WindowBits_c,
      RunBits_g    => LeafBits_g,
      IdBits_g     => IdBits_g,
      Entries_g    => Entries_g,
      Slots_g      => Slots_g,
      IsWriter_g   => true
    )
    port map (
      Clk           => Clk,
      Rst           => Rst,
      Window_Base   => WindowBase,
      S_Valid       => S_Aw_Valid,
      S_Ready       => S_Aw_Ready,
      S_Addr        => S_Aw_Addr,
      S_Id          => S_Aw_Id,
      S_Len         => S_Aw_Len,
      S_Size        => S_Aw_Size,
      S_Burst       => S_Aw_Burst,
      M_Valid       => M_Aw_Valid,
      M_Ready       => M_Aw_Ready,
      Fault_Valid   => Aw_FaultValid,
      Fault_Ready   => Aw_FaultReady,
      Fault_Status  => Aw_FaultStatus,
      M_Addr        => M_Aw_Addr,
      M_InWindow    => M_Aw_InWindow,
      M_Memory      => M_Aw_Memory,
      M_Id          => M_Aw_Id,
      M_Len         => M_Aw_Len,
      M_Size        => M_Aw_Size,
      M_Burst       => M_Aw_Burst,
      Walk_Valid    => WalkValid(Writer_c),
      Walk_Ready    => WalkReady(Writer_c),
      Walk_Page     => WritePage,
      Resp_Valid    => RespValid(Writer_c),
      Resp_Ready    => RespReady(Writer_c),
      Resp_Status   => Hand.Status,
      Resp_Writable => Hand.Writable,
      Resp_Memory   => Hand.Memory,
      Resp_Size     => Hand.Size,
      Resp_Frame    => Hand.Frame,
      Inval_Valid   => FrontValid(Writer_c),
      Inval_Ready   => FrontReady(Writer_c),
      Inval_First   => First,
      Inval_Last    => Last,
      Inval_Done    => FrontDone(Writer_c)
    );

  i_arbiter : entity work.page_arbiter
    generic map (
      WindowBits_g => WindowBits_c,
      Depth_g      => 2 * Slots_g
    )
    port map (
      Clk         => Clk,
      Rst         => Rst,
      Req_Valid   => WalkValid,
      Req_Ready   => WalkReady,
      Req_Page0   => ReadPage,
      Req_Page1   => WritePage,
      Resp_Valid  => RespValid,
      Resp_Ready  => RespReady,
      Page_Valid  => PageValid,
      Page_Ready  => PageReady,
      Page        => Page,
      Known_Valid => HandValid,
      Known_Ready => HandReady
    );

  -- Ready of who answers hangs on nothing beyond this.
  KnownIn       <= Known.Status & Known.Writable & Known.Memory & Known.Size & Known.Frame;
  Hand.Status   <= KnownOut(KnownBits_c - 1 downto KnownBits_c - Status_t'length);
  Hand.Writable <= KnownOut(FrameBits_c + SizeBits_c + MemoryBits_c);
  Hand.Memory   <= KnownOut(FrameBits_c + SizeBits_c + MemoryBits_c - 1 downto FrameBits_c + SizeBits_c);
  Hand.Size     <= KnownOut(FrameBits_c + SizeBits_c - 1 downto FrameBits_c);
  Hand.Frame    <= KnownOut(FrameBits_c - 1 downto 0);

  i_known : entity work.fifo
    generic map (
      Width_g => KnownBits_c,
      Depth_g => 2
    )
    port map (
      Clk       => Clk,
      Rst       => Rst,
      In_Valid  => KnownValid,
      In_Ready  => KnownReady,
      In_Data   => KnownIn,
      Out_Valid => HandValid,
      Out_Ready => HandReady,
      Out_Data  => KnownOut,
      Level     => open,
      In_Place  => open,
      Out_Place => open
    );

  Bound <= std_logic_vector(unsigned('0' & Last) + 1);

  i_flexible : entity work.flexible_stage
    generic map (
      WindowBits_g => WindowBits_c,
      FrameBits_g  => FrameBits_c,
      RunBits_g    => RunBits_g,
      Entries_g    => Flexible_g,
      Depth_g      => 2 * Slots_g
    )
    port map (
      Clk           => Clk,
      Rst           => Rst,
      Req_Valid     => PageValid,
      Req_Ready     => PageReady,
      Req_Page      => Page,
      Resp_Valid    => KnownValid,
      Resp_Ready    => KnownReady,
      Resp_Status   => Known.Status,
      Resp_Writable => Known.Writable,
      Resp_Memory   => Known.Memory,
      Resp_Size     => Known.Size,
      Resp_Frame    => Known.Frame,
      Ask_Valid     => AskValid,
      Ask_Ready     => AskReady,
      Ask_Page      => AskPage,
      Came_Valid    => ToldValid,
      Came_Ready    => ToldReady,
      Came_Status   => Told.Status,
      Came_Writable => Told.Writable,
      Came_Memory   => Told.Memory,
      Came_Size     => Told.Size,
      Came_Frame    => Told.Frame,
      Cmd_Valid     => CmdValid,
      Cmd_Ready     => CmdReady,
      Cmd_Kind      => CmdKind,
      Cmd_First     => First,
      Cmd_Bound     => Bound,
      Cmd_Writable  => CmdWritable,
      Cmd_Memory    => CmdMemory,
      Cmd_Frame     => CmdFrame,
      Evictions     => Evictions
    );

  i_l2 : entity work.l2_tlb
    generic map (
      PhysBits_g   => PhysBits_g,
      PageBits_g   => PageBits_g,
      WindowBits_g => WindowBits_c,
      SetBits_g    => SetBits_g,
      Ways_g       => Ways_g,
      Depth_g      => 2 * Slots_g,
      EpochBits_g  => EpochBits_g
    )
    port map (
      Clk           => Clk,
      Rst           => Rst,
      Req_Valid     => AskValid,
      Req_Ready     => AskReady,
      Req_Page      => AskPage,
      Resp_Valid    => ToldValid,
      Resp_Ready    => ToldReady,
      Resp_Status   => Told.Status,
      Resp_Writable => Told.Writable,
      Resp_Memory   => Told.Memory,
      Resp_Size     => Told.Size,
      Resp_Frame    => Told.Frame,
      Walk_Valid    => TableValid,
      Walk_Ready    => TableReady,
      Walk_Page     => TablePage,
      Came_Valid    => CameValid,
      Came_Ready    => CameReady,
      Came_Status   => Came.Status,
      Came_Writable => Came.Writable,
      Came_Memory   => Came.Memory,
      Came_Size     => Came.Size,
      Came_Frame    => Came.Frame,
      Inval_Valid   => L2Valid,
      Inval_Ready   => L2Ready,
      Inval_First   => First,
      Inval_Last    => Last,
      Event_Accept  => open,
      Event_Look    => open,
      Event_Held    => open
    );

  i_walker : entity work.walker
    generic map (
      PhysBits_g  => PhysBits_g,
      PageBits_g  => PageBits_g,
      RootBits_g  => RootBits_g,
      LeafBits_g  => LeafBits_g,
      DataBits_g  => DataBits_g,
      Walks_g     => 2 * Slots_g,
      Lines_g     => Lines_g,
      AheadFrom_g => AheadFrom_g
    )
    port map (
      Clk           => Clk,
      Rst           => Rst,
      Root_Valid    => RootValid,
      Root_Ready    => RootReady,
      Root_Index    => RootIndex,
      Root_Word     => RootWord,
      Req_Valid     => TableValid,
      Req_Ready     => TableReady,
      Req_Page      => TablePage,
      Resp_Valid    => CameValid,
      Resp_Ready    => CameReady,
      Resp_Status   => Came.Status,
      Resp_Writable => Came.Writable,
      Resp_Memory   => Came.Memory,
      Resp_Size     => Came.Size,
      Resp_Frame    => Came.Frame,
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
      Event_Walk    => open,
      Event_Found   => open,
      Event_Ahead   => open,
      Event_Resp    => open
    );

  L2Valid    <= InvalValid and not IsDropped;
  Drop       <= L2Valid and L2Ready;
  FrontValid <= not IsTaken when InvalValid = '1' and IsDropped = '1' else "00";
  InvalReady <= IsDropped and (and (IsTaken or FrontReady));
  InvalDone  <= not (or (IsDraining));

  p_invalidation : process (Clk) is
  begin
    if rising_edge(Clk) then
      if Drop = '1' then
        IsDropped <= '1';
      end if;
      IsTaken <= IsTaken or (FrontValid and FrontReady);
      if InvalValid = '1' and InvalReady = '1' then
        IsDropped <= '0';
        IsTaken   <= "00";
      end if;
      IsDraining <= (IsDraining and not FrontDone) or (FrontValid and FrontReady);
      if Rst = '1' then
        IsDropped  <= '0';
        IsTaken    <= "00";
        IsDraining <= "00";
      end if;
    end if;
  end process;

end architecture;
