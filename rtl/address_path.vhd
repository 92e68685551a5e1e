-- The address channel of an AXI4 reader or writer through a translator: bursts leave in the order in which they
-- came, with the places of their pages, or as faults.
--
-- A burst does not cross 4 KiB, so it is within a page. Data channels are in read_channel and write_channel.

library ieee;
  use ieee.std_logic_1164.all;

library work;
  use work.window_pkg.all;

entity address_path is
  generic (
    AddrBits_g   : positive;
    PhysBits_g   : positive;
    PageBits_g   : positive;
    WindowBits_g : positive;
    RunBits_g    : positive;
    IdBits_g     : positive;
    Entries_g    : positive;
    -- Walks under way, and bursts that wait.
    Slots_g      : positive;
    IsWriter_g   : boolean
  );
  port (
    Clk           : in    std_logic;
    Rst           : in    std_logic;
    Window_Base   : in    std_logic_vector(AddrBits_g - 1 downto PageBits_g + WindowBits_g);
    -- Bursts as they come
    S_Valid       : in    std_logic;
    S_Ready       : out   std_logic;
    S_Addr        : in    std_logic_vector(AddrBits_g - 1 downto 0);
    S_Id          : in    std_logic_vector(IdBits_g - 1 downto 0);
    S_Len         : in    std_logic_vector(7 downto 0);
    S_Size        : in    std_logic_vector(2 downto 0);
    S_Burst       : in    std_logic_vector(1 downto 0);
    -- And as they leave: Memory is which of the card's memories the place is in, if InWindow is 1; else the address is
    -- as it came, as that of a burst is that may not go on.
    M_Valid       : out   std_logic;
    M_Ready       : in    std_logic;
    M_Status      : out   Status_t;
    M_Addr        : out   std_logic_vector(AddrBits_g - 1 downto 0);
    M_InWindow    : out   std_logic;
    M_Memory      : out   std_logic_vector(MemoryBits_c - 1 downto 0);
    M_Id          : out   std_logic_vector(IdBits_g - 1 downto 0);
    M_Len         : out   std_logic_vector(7 downto 0);
    M_Size        : out   std_logic_vector(2 downto 0);
    M_Burst       : out   std_logic_vector(1 downto 0);
    -- As translator has them
    Walk_Valid    : out   std_logic;
    Walk_Ready    : in    std_logic;
    Walk_Page     : out   std_logic_vector(WindowBits_g - 1 downto 0);
    Resp_Valid    : in    std_logic;
    Resp_Ready    : out   std_logic;
    Resp_Status   : in    Status_t;
    Resp_Writable : in    std_logic;
    Resp_Memory   : in    std_logic_vector(MemoryBits_c - 1 downto 0);
    Resp_Size     : in    std_logic_vector(SizeBits_c - 1 downto 0);
    Resp_Frame    : in    std_logic_vector(PhysBits_g - PageBits_g - 1 downto 0);
    Inval_Valid   : in    std_logic;
    Inval_Ready   : out   std_logic;
    Inval_First   : in    std_logic_vector(WindowBits_g - 1 downto 0);
    Inval_Last    : in    std_logic_vector(WindowBits_g - 1 downto 0);
    Inval_Done    : out   std_logic
  );
end entity;

architecture rtl of address_path is

  constant TagBits_c : positive := IdBits_g + 8 + 3 + 2;

  signal Write : std_logic;
  signal TagIn : std_logic_vector(TagBits_c - 1 downto 0);
  signal Tag   : std_logic_vector(TagBits_c - 1 downto 0);

begin

  assert PageBits_g >= 12
    report "address_path: a burst is within 4 KiB, and must be within a page" severity failure;

  Write <= '1' when IsWriter_g else '0';
  TagIn <= S_Burst & S_Size & S_Len & S_Id;

  i_translator : entity work.translator
    generic map (
      AddrBits_g   => AddrBits_g,
      PhysBits_g   => PhysBits_g,
      PageBits_g   => PageBits_g,
      WindowBits_g => WindowBits_g,
      RunBits_g    => RunBits_g,
      TagBits_g    => TagBits_c,
      Entries_g    => Entries_g,
      Slots_g      => Slots_g,
      Depth_g      => Slots_g
    )
    port map (
      Clk           => Clk,
      Rst           => Rst,
      Window_Base   => Window_Base,
      In_Valid      => S_Valid,
      In_Ready      => S_Ready,
      In_Addr       => S_Addr,
      In_Write      => Write,
      In_Tag        => TagIn,
      Out_Valid     => M_Valid,
      Out_Ready     => M_Ready,
      Out_Addr      => M_Addr,
      Out_Write     => open,
      Out_Tag       => Tag,
      Out_InWindow  => M_InWindow,
      Out_Memory    => M_Memory,
      Out_Status    => M_Status,
      Walk_Valid    => Walk_Valid,
      Walk_Ready    => Walk_Ready,
      Walk_Page     => Walk_Page,
      Resp_Valid    => Resp_Valid,
      Resp_Ready    => Resp_Ready,
      Resp_Status   => Resp_Status,
      Resp_Writable => Resp_Writable,
      Resp_Memory   => Resp_Memory,
      Resp_Size     => Resp_Size,
      Resp_Frame    => Resp_Frame,
      Inval_Valid   => Inval_Valid,
      Inval_Ready   => Inval_Ready,
      Inval_First   => Inval_First,
      Inval_Last    => Inval_Last,
      Inval_Done    => Inval_Done,
      Twice         => open
    );

  M_Id    <= Tag(IdBits_g - 1 downto 0);
  M_Len   <= Tag(IdBits_g + 7 downto IdBits_g);
  M_Size  <= Tag(IdBits_g + 10 downto IdBits_g + 8);
  M_Burst <= Tag(IdBits_g + 12 downto IdBits_g + 11);

end architecture;
