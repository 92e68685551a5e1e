-- The MMU of a card that reads and writes: the AXI4 channels of both, whose addresses go through translators of their
-- own, and behind these, shared, a TLB of flexible length, an L2 TLB and a walker. Registers are AXI4-Lite
-- (mmu_control.vhd).
--
-- A page that a translator does not hold is looked for in the TLB of flexible length, then in the L2 TLB, then in
-- the tables. An invalidation goes from behind to the front (mmu_invalidation.vhd). A burst that may not go on is
-- answered with an error, and leaves a record. The TLB of flexible length is changed by commands of its own; as with
-- the words of tables, an invalidation of the pages follows. Sizes are those of the multi-FPGA paper (section II-B).
--
-- With SpaceBits_g the addresses of the driver's space are translated: those of the window, which lies in it, by the
-- allocator's tables, the others by the driver's. Else those of the window alone. Who belongs to neither goes on as he
-- is.

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
    -- Bursts of each direction that memories have not answered.
    Bursts_g      : positive := 64;
    -- The L2 TLB: sets as a power of two, translations of a set.
    SetBits_g     : positive := 8;
    Ways_g        : positive := 4;
    EpochBits_g   : positive := 16;
    -- Runs of any length, and pages of the longest as a power of two.
    Flexible_g    : positive := 32;
    RunBits_g     : positive := 15;
    -- Of a beat, of tables too.
    DataBits_g    : positive := 512;
    -- The walker's.
    Lines_g       : positive := 32;
    AheadFrom_g   : natural  := 4;
    -- An allocator is asked for pages that no walk finds; of its tickets.
    Touches_g     : boolean  := false;
    TicketBits_g  : positive := 24;
    -- Pages of the driver's space, as a power of two; none: there is no space. Tables and runs of it that the walker
    -- holds.
    SpaceBits_g   : natural range 0 to 32 := 32;
    HeldBits_g    : positive := 4
  );
  port (
    Clk            : in    std_logic;
    Rst            : in    std_logic;
    -- AXI4, reads as they come; as they go on, in which memory
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
    M_R_Valid      : in    std_logic;
    M_R_Ready      : out   std_logic;
    M_R_Id         : in    std_logic_vector(IdBits_g - 1 downto 0);
    M_R_Data       : in    std_logic_vector(DataBits_g - 1 downto 0);
    M_R_Resp       : in    std_logic_vector(1 downto 0);
    M_R_Last       : in    std_logic;
    S_R_Valid      : out   std_logic;
    S_R_Ready      : in    std_logic;
    S_R_Id         : out   std_logic_vector(IdBits_g - 1 downto 0);
    S_R_Data       : out   std_logic_vector(DataBits_g - 1 downto 0);
    S_R_Resp       : out   std_logic_vector(1 downto 0);
    S_R_Last       : out   std_logic;
    -- AXI4, writes as they come; as they go on, in which memory
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
    S_W_Valid      : in    std_logic;
    S_W_Ready      : out   std_logic;
    S_W_Data       : in    std_logic_vector(DataBits_g - 1 downto 0);
    S_W_Strb       : in    std_logic_vector(DataBits_g / 8 - 1 downto 0);
    S_W_Last       : in    std_logic;
    M_W_Valid      : out   std_logic;
    M_W_Ready      : in    std_logic;
    M_W_Data       : out   std_logic_vector(DataBits_g - 1 downto 0);
    M_W_Strb       : out   std_logic_vector(DataBits_g / 8 - 1 downto 0);
    M_W_Last       : out   std_logic;
    M_B_Valid      : in    std_logic;
    M_B_Ready      : out   std_logic;
    M_B_Id         : in    std_logic_vector(IdBits_g - 1 downto 0);
    M_B_Resp       : in    std_logic_vector(1 downto 0);
    S_B_Valid      : out   std_logic;
    S_B_Ready      : in    std_logic;
    S_B_Id         : out   std_logic_vector(IdBits_g - 1 downto 0);
    S_B_Resp       : out   std_logic_vector(1 downto 0);
    -- Records of bursts that may not go on, which wait until there is room for theirs
    Fault_Valid    : out   std_logic;
    Fault_Ready    : in    std_logic;
    Fault_Write    : out   std_logic;
    Fault_Id       : out   std_logic_vector(IdBits_g - 1 downto 0);
    Fault_Status   : out   Status_t;
    Fault_Addr     : out   std_logic_vector(AddrBits_g - 1 downto 0);
    -- Of an allocator, as its ports are (0 where there is none): first touches and the gate
    Ticket         : in    std_logic_vector(TicketBits_g - 1 downto 0);
    Touch_Valid    : out   std_logic;
    Touch_Ready    : in    std_logic;
    Touch_Page     : out   std_logic_vector(RootBits_g + LeafBits_g - 1 downto 0);
    Touch_Write    : out   std_logic;
    Touch_Seen     : out   std_logic;
    Touch_Word     : out   std_logic_vector(WordBits_c - 1 downto 0);
    Touch_Ticket   : out   std_logic_vector(TicketBits_g - 1 downto 0);
    Found_Valid    : in    std_logic;
    Found_Ready    : out   std_logic;
    Found_Status   : in    Status_t;
    Found_Writable : in    std_logic;
    Found_Memory   : in    std_logic_vector(MemoryBits_c - 1 downto 0);
    Found_Size     : in    std_logic_vector(SizeBits_c - 1 downto 0);
    Found_Frame    : in    std_logic_vector(PhysBits_g - PageBits_g - 1 downto 0);
    Gate_Page      : out   std_logic_vector(RootBits_g + LeafBits_g - 1 downto 0);
    Gate_Closed    : in    std_logic;
    -- Its words of the root, which go before those of the registers, and its invalidations
    Root_Valid     : in    std_logic;
    Root_Ready     : out   std_logic;
    Root_Index     : in    std_logic_vector(RootBits_g - 1 downto 0);
    Root_Word      : in    std_logic_vector(WordBits_c - 1 downto 0);
    Inval_Valid    : in    std_logic;
    Inval_Ready    : out   std_logic;
    Inval_First    : in    std_logic_vector(RootBits_g + LeafBits_g - 1 downto 0);
    Inval_Last     : in    std_logic_vector(RootBits_g + LeafBits_g - 1 downto 0);
    Inval_Done     : out   std_logic;
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
  -- Of the number of a page, of the space or of the window.
  constant KeyBits_c    : positive := maximum(SpaceBits_g, WindowBits_c);
  constant FrameBits_c  : positive := PhysBits_g - PageBits_g;
  constant Reader_c     : natural := 0;
  constant Writer_c     : natural := 1;
  constant KnownBits_c  : positive := Status_t'length + 1 + MemoryBits_c + SizeBits_c + FrameBits_c;

  subtype Page_t is std_logic_vector(KeyBits_c - 1 downto 0);
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
  signal SpaceBase   : std_logic_vector(63 downto 0);
  signal SpaceRoot   : std_logic_vector(WordBits_c - 1 downto 0);
  signal SpaceFirst  : std_logic_vector(LevelsMax_c * SpaceStep_c - 1 downto 0);
  -- Of what is translated.
  signal Base        : std_logic_vector(AddrBits_g - 1 downto PageBits_g + KeyBits_c);
  -- The window lies in the space; the page that is walked for is none of it.
  signal HasWindow   : std_logic;
  signal TableIsSpace : std_logic;
  -- Of the allocator's invalidation.
  signal WindowFirst : Page_t;
  signal WindowLast  : Page_t;
  -- Words of the root: of the registers, and as they go
  signal RegRootValid : std_logic;
  signal RegRootReady : std_logic;
  signal RegRootIndex : std_logic_vector(RootBits_g - 1 downto 0);
  signal RegRootWord  : std_logic_vector(WordBits_c - 1 downto 0);
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
  signal Bound       : std_logic_vector(KeyBits_c downto 0);
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
  signal PageWrite   : std_logic;
  signal KnownValid  : std_logic;
  signal KnownReady  : std_logic;
  signal Known       : Known_t;
  signal KnownIn     : std_logic_vector(KnownBits_c - 1 downto 0);
  signal KnownOut    : std_logic_vector(KnownBits_c - 1 downto 0);
  signal KnownPush   : std_logic;
  signal StayValid   : std_logic;
  signal StayOut     : std_logic_vector(KnownBits_c - 1 downto 0);
  signal HandValid   : std_logic;
  signal HandReady   : std_logic;
  signal Hand        : Known_t;
  signal AskValid    : std_logic;
  signal AskReady    : std_logic;
  signal AskPage     : Page_t;
  signal AskWrite    : std_logic;
  signal AskSkip     : std_logic;
  signal ToldValid   : std_logic;
  signal ToldReady   : std_logic;
  signal Told        : Known_t;
  signal TableValid  : std_logic;
  signal TableReady  : std_logic;
  signal TablePage   : Page_t;
  signal TableWrite  : std_logic;
  signal CameValid   : std_logic;
  signal CameReady   : std_logic;
  signal Came        : Known_t;
  -- The walker itself
  signal WalkerValid  : std_logic;
  signal WalkerReady  : std_logic;
  signal WalkedValid  : std_logic;
  signal WalkedReady  : std_logic;
  signal Walked       : Known_t;
  signal WalkedSeen   : std_logic;
  signal WalkedWord   : std_logic_vector(WordBits_c - 1 downto 0);
  signal WalkedTicket : std_logic_vector(TicketBits_g - 1 downto 0);

  -- Invalidations: of the registers, and as they go
  signal InvalValid  : std_logic_vector(1 downto 0);
  signal InvalReady  : std_logic_vector(1 downto 0);
  signal InvalDone   : std_logic_vector(1 downto 0);
  signal InvalFirst  : Page_t;
  signal InvalLast   : Page_t;
  signal L2Valid     : std_logic;
  signal L2Ready     : std_logic;
  signal Drop        : std_logic;
  signal FrontValid  : Both_t;
  signal FrontReady  : Both_t;
  signal FrontDone   : Both_t;
  signal Drained     : Both_t;

  -- Bursts behind their translation, and the records of those that may not go on: status, id, address
  constant RecordBits_c : positive := Status_t'length + IdBits_g + AddrBits_g;

  signal OutValid    : Both_t;
  signal OutReady    : Both_t;
  signal IsFault     : Both_t;
  signal ReadStatus  : Status_t;
  signal ReadAddr    : std_logic_vector(AddrBits_g - 1 downto 0);
  signal ReadId      : std_logic_vector(IdBits_g - 1 downto 0);
  signal ReadLen     : std_logic_vector(7 downto 0);
  signal WriteStatus : Status_t;
  signal WriteAddr   : std_logic_vector(AddrBits_g - 1 downto 0);
  signal WriteId     : std_logic_vector(IdBits_g - 1 downto 0);
  signal FaultsValid : Both_t;
  signal FaultsReady : Both_t;
  signal ReadRecord  : std_logic_vector(RecordBits_c - 1 downto 0);
  signal WriteRecord : std_logic_vector(RecordBits_c - 1 downto 0);
  signal Record_Out  : std_logic_vector(RecordBits_c - 1 downto 0);

begin

  i_control : entity work.mmu_control
    generic map (
      AddrBits_g  => AddrBits_g,
      PageBits_g  => PageBits_g,
      RootBits_g  => RootBits_g,
      LeafBits_g  => LeafBits_g,
      SpaceBits_g => SpaceBits_g,
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
      Space_Base   => SpaceBase,
      Space_Root   => SpaceRoot,
      Root_Valid   => RegRootValid,
      Root_Ready   => RegRootReady,
      Root_Index   => RegRootIndex,
      Root_Word    => RegRootWord,
      Inval_Valid  => InvalValid(0),
      Inval_Ready  => InvalReady(0),
      Inval_Done   => InvalDone(0),
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

  assert SpaceBits_g = 0 or (SpaceBits_g > WindowBits_c and PageBits_g = SpaceStep_c + WordShift_c)
    report "mmu_top: the space has more pages than the window, of 4 KiB" severity failure;

  p_base : process (all) is
  begin
    SpaceFirst <= (others => '0');
    HasWindow  <= '1';
    if SpaceBits_g = 0 then
      Base <= WindowBase(Base'range);
    else
      Base <= SpaceBase(Base'range);
      SpaceFirst(AddrBits_g - PageBits_g - 1 downto KeyBits_c) <= SpaceBase(Base'range);
      if WindowBase(Base'range) /= SpaceBase(Base'range) then
        HasWindow <= '0';
      end if;
    end if;
  end process;

  -- Bits of pages of the space above those of the window's.
  p_window : process (all) is
  begin
    TableIsSpace <= '0' when SpaceBits_g = 0 or HasWindow = '1' else '1';
    WindowFirst  <= (others => '0');
    WindowLast   <= (others => '0');
    for i in WindowBits_c to KeyBits_c - 1 loop
      if TablePage(i) /= WindowBase(PageBits_g + i) then
        TableIsSpace <= '1';
      end if;
      WindowFirst(i) <= WindowBase(PageBits_g + i);
      WindowLast(i)  <= WindowBase(PageBits_g + i);
    end loop;
    WindowFirst(WindowBits_c - 1 downto 0) <= Inval_First;
    WindowLast(WindowBits_c - 1 downto 0)  <= Inval_Last;
  end process;

  i_reader : entity work.address_path
    generic map (
      AddrBits_g   => AddrBits_g,
      PhysBits_g   => PhysBits_g,
      PageBits_g   => PageBits_g,
      WindowBits_g => KeyBits_c,
      RunBits_g    => LeafBits_g,
      IdBits_g     => IdBits_g,
      Entries_g    => Entries_g,
      Slots_g      => Slots_g,
      IsWriter_g   => false
    )
    port map (
      Clk           => Clk,
      Rst           => Rst,
      Window_Base   => Base,
      S_Valid       => S_Ar_Valid,
      S_Ready       => S_Ar_Ready,
      S_Addr        => S_Ar_Addr,
      S_Id          => S_Ar_Id,
      S_Len         => S_Ar_Len,
      S_Size        => S_Ar_Size,
      S_Burst       => S_Ar_Burst,
      M_Valid       => OutValid(Reader_c),
      M_Ready       => OutReady(Reader_c),
      M_Status      => ReadStatus,
      M_Addr        => ReadAddr,
      M_InWindow    => M_Ar_InWindow,
      M_Memory      => M_Ar_Memory,
      M_Id          => ReadId,
      M_Len         => ReadLen,
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
      Inval_First   => InvalFirst,
      Inval_Last    => InvalLast,
      Inval_Done    => FrontDone(Reader_c)
    );

  i_writer : entity work.address_path
    generic map (
      AddrBits_g   => AddrBits_g,
      PhysBits_g   => PhysBits_g,
      PageBits_g   => PageBits_g,
      WindowBits_g => KeyBits_c,
      RunBits_g    => LeafBits_g,
      IdBits_g     => IdBits_g,
      Entries_g    => Entries_g,
      Slots_g      => Slots_g,
      IsWriter_g   => true
    )
    port map (
      Clk           => Clk,
      Rst           => Rst,
      Window_Base   => Base,
      S_Valid       => S_Aw_Valid,
      S_Ready       => S_Aw_Ready,
      S_Addr        => S_Aw_Addr,
      S_Id          => S_Aw_Id,
      S_Len         => S_Aw_Len,
      S_Size        => S_Aw_Size,
      S_Burst       => S_Aw_Burst,
      M_Valid       => OutValid(Writer_c),
      M_Ready       => OutReady(Writer_c),
      M_Status      => WriteStatus,
      M_Addr        => WriteAddr,
      M_InWindow    => M_Aw_InWindow,
      M_Memory      => M_Aw_Memory,
      M_Id          => WriteId,
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
      Inval_First   => InvalFirst,
      Inval_Last    => InvalLast,
      Inval_Done    => FrontDone(Writer_c)
    );

  i_arbiter : entity work.page_arbiter
    generic map (
      WindowBits_g => KeyBits_c,
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
      Page_Whose  => PageWrite,
      Known_Valid => HandValid,
      Known_Ready => HandReady
    );

  -- Ready of who answers hangs on nothing beyond this; what is taken at once does not stay here.
  KnownIn       <= Known.Status & Known.Writable & Known.Memory & Known.Size & Known.Frame;
  KnownPush     <= KnownValid and (StayValid or not HandReady);
  HandValid     <= StayValid or (KnownValid and KnownReady);
  KnownOut      <= StayOut when StayValid = '1' else KnownIn;
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
      In_Valid  => KnownPush,
      In_Ready  => KnownReady,
      In_Data   => KnownIn,
      Out_Valid => StayValid,
      Out_Ready => HandReady,
      Out_Data  => StayOut,
      Level     => open,
      In_Place  => open,
      Out_Place => open
    );

  -- One more than the last page, both halves at once: a carry goes through one of them.
  p_bound : process (all) is
    constant Half_c  : positive := KeyBits_c / 2;
    variable lower_v : unsigned(Half_c - 1 downto 0);
    variable upper_v : unsigned(KeyBits_c downto Half_c);
  begin
    lower_v := unsigned(Last(Half_c - 1 downto 0)) + 1;
    upper_v := unsigned('0' & Last(KeyBits_c - 1 downto Half_c));
    if and (Last(Half_c - 1 downto 0)) = '1' then
      upper_v := upper_v + 1;
    end if;
    Bound <= std_logic_vector(upper_v & lower_v);
  end process;

  i_flexible : entity work.flexible_stage
    generic map (
      WindowBits_g => KeyBits_c,
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
      Req_Write     => PageWrite,
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
      Ask_Write     => AskWrite,
      Ask_Skip      => AskSkip,
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
      WindowBits_g => KeyBits_c,
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
      Req_Write     => AskWrite,
      Look_Skip     => AskSkip,
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
      Walk_Write    => TableWrite,
      Came_Valid    => CameValid,
      Came_Ready    => CameReady,
      Came_Status   => Came.Status,
      Came_Writable => Came.Writable,
      Came_Memory   => Came.Memory,
      Came_Size     => Came.Size,
      Came_Frame    => Came.Frame,
      Inval_Valid   => L2Valid,
      Inval_Ready   => L2Ready,
      Inval_First   => InvalFirst,
      Inval_Last    => InvalLast,
      Event_Accept  => open,
      Event_Look    => open,
      Event_Held    => open
    );

  g_touches : if Touches_g generate

    i_touch : entity work.first_touch
      generic map (
        WindowBits_g => WindowBits_c,
        FrameBits_g  => FrameBits_c,
        TicketBits_g => TicketBits_g,
        Depth_g      => 2 * Slots_g
      )
      port map (
        Clk            => Clk,
        Rst            => Rst,
        Req_Valid      => TableValid,
        Req_Ready      => TableReady,
        Req_Page       => TablePage(WindowBits_c - 1 downto 0),
        Req_IsSpace    => TableIsSpace,
        Req_Write      => TableWrite,
        Resp_Valid     => CameValid,
        Resp_Ready     => CameReady,
        Resp_Status    => Came.Status,
        Resp_Writable  => Came.Writable,
        Resp_Memory    => Came.Memory,
        Resp_Size      => Came.Size,
        Resp_Frame     => Came.Frame,
        Walk_Valid     => WalkerValid,
        Walk_Ready     => WalkerReady,
        Came_Valid     => WalkedValid,
        Came_Ready     => WalkedReady,
        Came_Status    => Walked.Status,
        Came_Writable  => Walked.Writable,
        Came_Memory    => Walked.Memory,
        Came_Size      => Walked.Size,
        Came_Frame     => Walked.Frame,
        Came_Seen      => WalkedSeen,
        Came_Word      => WalkedWord,
        Came_Ticket    => WalkedTicket,
        Touch_Valid    => Touch_Valid,
        Touch_Ready    => Touch_Ready,
        Touch_Page     => Touch_Page,
        Touch_Write    => Touch_Write,
        Touch_Seen     => Touch_Seen,
        Touch_Word     => Touch_Word,
        Touch_Ticket   => Touch_Ticket,
        Found_Valid    => Found_Valid,
        Found_Ready    => Found_Ready,
        Found_Status   => Found_Status,
        Found_Writable => Found_Writable,
        Found_Memory   => Found_Memory,
        Found_Size     => Found_Size,
        Found_Frame    => Found_Frame,
        Gate_Page      => Gate_Page,
        Gate_Closed    => Gate_Closed
      );

  else generate

    WalkerValid  <= TableValid;
    TableReady   <= WalkerReady;
    CameValid    <= WalkedValid;
    WalkedReady  <= CameReady;
    Came         <= Walked;
    Touch_Valid  <= '0';
    Touch_Page   <= (others => '0');
    Touch_Write  <= '0';
    Touch_Seen   <= '0';
    Touch_Word   <= (others => '0');
    Touch_Ticket <= (others => '0');
    Found_Ready  <= '0';
    Gate_Page    <= (others => '0');

  end generate;

  RootValid    <= Root_Valid or RegRootValid;
  RootIndex    <= Root_Index when Root_Valid = '1' else RegRootIndex;
  RootWord     <= Root_Word when Root_Valid = '1' else RegRootWord;
  Root_Ready   <= RootReady;
  RegRootReady <= RootReady and not Root_Valid;

  i_walker : entity work.walker
    generic map (
      PhysBits_g  => PhysBits_g,
      PageBits_g  => PageBits_g,
      RootBits_g  => RootBits_g,
      LeafBits_g  => LeafBits_g,
      DataBits_g  => DataBits_g,
      Walks_g     => 2 * Slots_g,
      Lines_g     => Lines_g,
      AheadFrom_g => AheadFrom_g,
      Touches_g   => Touches_g,
      TicketBits_g => TicketBits_g,
      SpaceBits_g => SpaceBits_g,
      HeldBits_g  => HeldBits_g
    )
    port map (
      Clk           => Clk,
      Rst           => Rst,
      Root_Valid    => RootValid,
      Root_Ready    => RootReady,
      Root_Index    => RootIndex,
      Root_Word     => RootWord,
      Space_Root    => SpaceRoot,
      Space_First   => SpaceFirst,
      Req_Valid     => WalkerValid,
      Req_Ready     => WalkerReady,
      Req_Page      => TablePage,
      Req_IsSpace   => TableIsSpace,
      Resp_Valid    => WalkedValid,
      Resp_Ready    => WalkedReady,
      Resp_Status   => Walked.Status,
      Resp_Writable => Walked.Writable,
      Resp_Memory   => Walked.Memory,
      Resp_Size     => Walked.Size,
      Resp_Frame    => Walked.Frame,
      Resp_Seen     => WalkedSeen,
      Resp_Word     => WalkedWord,
      Resp_Ticket   => WalkedTicket,
      Ticket        => Ticket,
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

  InvalValid(1) <= Inval_Valid;
  Inval_Ready   <= InvalReady(1);
  Inval_Done    <= InvalDone(1);

  i_invalidation : entity work.mmu_invalidation
    generic map (
      WindowBits_g => KeyBits_c
    )
    port map (
      Clk         => Clk,
      Rst         => Rst,
      Req_Valid   => InvalValid,
      Req_Ready   => InvalReady,
      Req_First0  => First,
      Req_Last0   => Last,
      Req_First1  => WindowFirst,
      Req_Last1   => WindowLast,
      Req_Done    => InvalDone,
      First       => InvalFirst,
      Last        => InvalLast,
      L2_Valid    => L2Valid,
      L2_Ready    => L2Ready,
      Drop        => Drop,
      Front_Valid => FrontValid,
      Front_Ready => FrontReady,
      Drained     => Drained
    );

  IsFault <= (Writer_c => or (WriteStatus), Reader_c => or (ReadStatus));

  M_Ar_Addr <= ReadAddr;
  M_Ar_Id   <= ReadId;
  M_Ar_Len  <= ReadLen;

  i_read : entity work.read_channel
    generic map (
      IdBits_g   => IdBits_g,
      DataBits_g => DataBits_g,
      Bursts_g   => Bursts_g
    )
    port map (
      Clk         => Clk,
      Rst         => Rst,
      In_Valid    => OutValid(Reader_c),
      In_Ready    => OutReady(Reader_c),
      In_IsFault  => IsFault(Reader_c),
      In_Id       => ReadId,
      In_Len      => ReadLen,
      M_Ar_Valid  => M_Ar_Valid,
      M_Ar_Ready  => M_Ar_Ready,
      M_R_Valid   => M_R_Valid,
      M_R_Ready   => M_R_Ready,
      M_R_Id      => M_R_Id,
      M_R_Data    => M_R_Data,
      M_R_Resp    => M_R_Resp,
      M_R_Last    => M_R_Last,
      Fault_Valid => FaultsValid(Reader_c),
      Fault_Ready => FaultsReady(Reader_c),
      S_R_Valid   => S_R_Valid,
      S_R_Ready   => S_R_Ready,
      S_R_Id      => S_R_Id,
      S_R_Data    => S_R_Data,
      S_R_Resp    => S_R_Resp,
      S_R_Last    => S_R_Last,
      Drain       => FrontDone(Reader_c),
      Drained     => Drained(Reader_c)
    );

  M_Aw_Addr <= WriteAddr;
  M_Aw_Id   <= WriteId;
  M_W_Data  <= S_W_Data;
  M_W_Strb  <= S_W_Strb;
  M_W_Last  <= S_W_Last;

  i_write : entity work.write_channel
    generic map (
      IdBits_g => IdBits_g,
      Bursts_g => Bursts_g
    )
    port map (
      Clk         => Clk,
      Rst         => Rst,
      In_Valid    => OutValid(Writer_c),
      In_Ready    => OutReady(Writer_c),
      In_IsFault  => IsFault(Writer_c),
      In_Id       => WriteId,
      M_Aw_Valid  => M_Aw_Valid,
      M_Aw_Ready  => M_Aw_Ready,
      S_W_Valid   => S_W_Valid,
      S_W_Ready   => S_W_Ready,
      S_W_Last    => S_W_Last,
      M_W_Valid   => M_W_Valid,
      M_W_Ready   => M_W_Ready,
      M_B_Valid   => M_B_Valid,
      M_B_Ready   => M_B_Ready,
      M_B_Id      => M_B_Id,
      M_B_Resp    => M_B_Resp,
      S_B_Valid   => S_B_Valid,
      S_B_Ready   => S_B_Ready,
      S_B_Id      => S_B_Id,
      S_B_Resp    => S_B_Resp,
      Fault_Valid => FaultsValid(Writer_c),
      Fault_Ready => FaultsReady(Writer_c),
      Drain       => FrontDone(Writer_c),
      Drained     => Drained(Writer_c)
    );

  ReadRecord   <= ReadStatus & ReadId & ReadAddr;
  WriteRecord  <= WriteStatus & WriteId & WriteAddr;
  Fault_Status <= Record_Out(RecordBits_c - 1 downto RecordBits_c - Status_t'length);
  Fault_Id     <= Record_Out(IdBits_g + AddrBits_g - 1 downto AddrBits_g);
  Fault_Addr   <= Record_Out(AddrBits_g - 1 downto 0);

  i_faults : entity work.fault_queue
    generic map (
      Width_g => RecordBits_c,
      Depth_g => 4
    )
    port map (
      Clk       => Clk,
      Rst       => Rst,
      In_Valid  => FaultsValid,
      In_Ready  => FaultsReady,
      In_0      => ReadRecord,
      In_1      => WriteRecord,
      Out_Valid => Fault_Valid,
      Out_Ready => Fault_Ready,
      Out_Whose => Fault_Write,
      Out_Data  => Record_Out
    );

end architecture;
