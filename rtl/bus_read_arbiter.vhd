-- Readers without ids at one AXI4 port: each reader's bursts have its number for an id, so memories may answer
-- readers in any order, and each reader in its own.
--
-- Who was served last goes last. A reader says how many beats it wants, and takes them when they come: the
-- data of all come through one channel.
-- Timing, ports and generics: docs/rtl/bus_arbiters.md.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.window_pkg.all;

entity bus_read_arbiter is
  generic (
    Readers_g  : positive := 4;
    AddrBits_g : positive := 64;
    DataBits_g : positive := 512
  );
  port (
    Clk         : in    std_logic;
    Rst         : in    std_logic;
    -- Of each reader: where, and how many beats (0: 256); reader i has the bits from i times the width of one on
    Req_Valid   : in    std_logic_vector(Readers_g - 1 downto 0);
    Req_Ready   : out   std_logic_vector(Readers_g - 1 downto 0);
    Req_Addr    : in    std_logic_vector(Readers_g * AddrBits_g - 1 downto 0);
    Req_Beats   : in    std_logic_vector(Readers_g * 8 - 1 downto 0);
    -- Its beats, in the order of its requests; all see the data
    Data_Valid  : out   std_logic_vector(Readers_g - 1 downto 0);
    Data_Ready  : in    std_logic_vector(Readers_g - 1 downto 0);
    Data        : out   std_logic_vector(DataBits_g - 1 downto 0);
    Data_Last   : out   std_logic;
    Data_Error  : out   std_logic;
    -- AXI4
    Axi_ArValid : out   std_logic;
    Axi_ArReady : in    std_logic;
    Axi_ArAddr  : out   std_logic_vector(AddrBits_g - 1 downto 0);
    Axi_ArId    : out   std_logic_vector(bitsOf(Readers_g) - 1 downto 0);
    Axi_ArLen   : out   std_logic_vector(7 downto 0);
    Axi_ArSize  : out   std_logic_vector(2 downto 0);
    Axi_ArBurst : out   std_logic_vector(1 downto 0);
    Axi_RValid  : in    std_logic;
    Axi_RReady  : out   std_logic;
    Axi_RId     : in    std_logic_vector(bitsOf(Readers_g) - 1 downto 0);
    Axi_RData   : in    std_logic_vector(DataBits_g - 1 downto 0);
    Axi_RResp   : in    std_logic_vector(1 downto 0);
    Axi_RLast   : in    std_logic
  );
end entity;

architecture rtl of bus_read_arbiter is

begin

  i_requests : entity work.bus_requests
    generic map (
      Requesters_g => Readers_g,
      AddrBits_g   => AddrBits_g,
      DataBits_g   => DataBits_g
    )
    port map (
      Clk       => Clk,
      Rst       => Rst,
      Req_Valid => Req_Valid,
      Req_Ready => Req_Ready,
      Req_Addr  => Req_Addr,
      Req_Beats => Req_Beats,
      Room      => '1',
      Take      => open,
      Take_Id   => open,
      Axi_Valid => Axi_ArValid,
      Axi_Ready => Axi_ArReady,
      Axi_Addr  => Axi_ArAddr,
      Axi_Id    => Axi_ArId,
      Axi_Len   => Axi_ArLen,
      Axi_Size  => Axi_ArSize,
      Axi_Burst => Axi_ArBurst
    );

  p_data : process (all) is
  begin
    Axi_RReady <= '0';
    for i in 0 to Readers_g - 1 loop
      Data_Valid(i) <= '0';
      if unsigned(Axi_RId) = i then
        Data_Valid(i) <= Axi_RValid;
        Axi_RReady    <= Data_Ready(i);
      end if;
    end loop;
  end process;

  Data       <= Axi_RData;
  Data_Last  <= Axi_RLast;
  Data_Error <= Axi_RResp(1);

end architecture;
