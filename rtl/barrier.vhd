-- Between the allocator and the memory of the tables: AXI4 with single words, and when all of it is done.
--
-- Writes may be under way by the dozen; Quiet says that each has its response, so that whoever reads sees what
-- was written, and Failed whether one of them was an error since the reset. Reads come back in order;
-- as many may be under way as there is room for outside, which is the reader's to see to.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.window_pkg.all;

entity barrier is
  generic (
    PhysBits_g : positive := 40;
    -- Writes under way, and reads.
    Depth_g    : positive := 64
  );
  port (
    Clk         : in    std_logic;
    Rst         : in    std_logic;
    -- A word is written
    Write_Valid : in    std_logic;
    Write_Ready : out   std_logic;
    Write_Addr  : in    std_logic_vector(PhysBits_g - 1 downto 0);
    Write_Word  : in    std_logic_vector(WordBits_c - 1 downto 0);
    -- A word is read
    Read_Valid  : in    std_logic;
    Read_Ready  : out   std_logic;
    Read_Addr   : in    std_logic_vector(PhysBits_g - 1 downto 0);
    -- Nothing is under way.
    Quiet       : out   std_logic;
    Failed      : out   std_logic;
    -- AXI4; the data of reads go to the reader as they are.
    Axi_AwValid : out   std_logic;
    Axi_AwReady : in    std_logic;
    Axi_AwAddr  : out   std_logic_vector(PhysBits_g - 1 downto 0);
    Axi_WValid  : out   std_logic;
    Axi_WReady  : in    std_logic;
    Axi_WData   : out   std_logic_vector(WordBits_c - 1 downto 0);
    Axi_BValid  : in    std_logic;
    Axi_BReady  : out   std_logic;
    Axi_BResp   : in    std_logic_vector(1 downto 0);
    Axi_ArValid : out   std_logic;
    Axi_ArReady : in    std_logic;
    Axi_ArAddr  : out   std_logic_vector(PhysBits_g - 1 downto 0);
    Axi_RValid  : in    std_logic
  );
end entity;

architecture rtl of barrier is

  signal AwHeld    : std_logic;
  signal WHeld     : std_logic;
  signal ArHeld    : std_logic;
  signal AwAddr    : std_logic_vector(PhysBits_g - 1 downto 0);
  signal WData     : std_logic_vector(WordBits_c - 1 downto 0);
  signal ArAddr    : std_logic_vector(PhysBits_g - 1 downto 0);
  signal Writes    : natural range 0 to Depth_g;
  signal Reads     : natural range 0 to Depth_g;
  signal WriteTook : std_logic;
  signal ReadTook  : std_logic;
  signal HasFailed : std_logic;

begin

  Axi_AwValid <= AwHeld;
  Axi_AwAddr  <= AwAddr;
  Axi_WValid  <= WHeld;
  Axi_WData   <= WData;
  Axi_BReady  <= '1';
  Axi_ArValid <= ArHeld;
  Axi_ArAddr  <= ArAddr;

  Write_Ready <= '1' when (AwHeld = '0' or Axi_AwReady = '1') and (WHeld = '0' or Axi_WReady = '1')
                          and Writes /= Depth_g else '0';
  Read_Ready  <= '1' when (ArHeld = '0' or Axi_ArReady = '1') and Reads /= Depth_g else '0';

  WriteTook <= Write_Valid and Write_Ready;
  ReadTook  <= Read_Valid and Read_Ready;

  Quiet  <= '1' when Writes = 0 and Reads = 0 else '0';
  Failed <= HasFailed;

  p_held : process (Clk) is
  begin
    if rising_edge(Clk) then
      if Axi_AwReady = '1' then
        AwHeld <= '0';
      end if;
      if Axi_WReady = '1' then
        WHeld <= '0';
      end if;
      if WriteTook = '1' then
        AwHeld <= '1';
        WHeld  <= '1';
        AwAddr <= Write_Addr;
        WData  <= Write_Word;
      end if;
      if Axi_ArReady = '1' then
        ArHeld <= '0';
      end if;
      if ReadTook = '1' then
        ArHeld <= '1';
        ArAddr <= Read_Addr;
      end if;
      if Rst = '1' then
        AwHeld <= '0';
        WHeld  <= '0';
        ArHeld <= '0';
      end if;
    end if;
  end process;

  p_counts : process (Clk) is
  begin
    if rising_edge(Clk) then
      if WriteTook = '1' and Axi_BValid = '0' then
        Writes <= Writes + 1;
      elsif WriteTook = '0' and Axi_BValid = '1' and Writes /= 0 then
        Writes <= Writes - 1;
      end if;
      if ReadTook = '1' and Axi_RValid = '0' then
        Reads <= Reads + 1;
      elsif ReadTook = '0' and Axi_RValid = '1' and Reads /= 0 then
        Reads <= Reads - 1;
      end if;
      if Axi_BValid = '1' and Axi_BResp(1) = '1' then
        HasFailed <= '1';
      end if;
      if Rst = '1' then
        Writes    <= 0;
        Reads     <= 0;
        HasFailed <= '0';
      end if;
    end if;
  end process;

end architecture;
