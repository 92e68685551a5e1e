-- Writers without ids at one AXI4 port, with a response for each burst: each writer's bursts have its number for an
-- id, so memories may answer writers in any order, and each writer in its own.
--
-- Who was served last goes last. Beats go on in the order of addresses, as soon as an address is shown. Writers that
-- know no responses (HasResponses_g false) get none: they are taken here.
-- Timing, ports and generics: docs/rtl/bus_arbiters.md.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.window_pkg.all;

entity bus_write_arbiter is
  generic (
    Writers_g      : positive := 4;
    AddrBits_g     : positive := 64;
    DataBits_g     : positive := 512;
    -- Bursts whose data are still to come.
    Depth_g        : positive := 16;
    HasResponses_g : boolean  := true
  );
  port (
    Clk         : in    std_logic;
    Rst         : in    std_logic;
    -- Of each writer: where, and how many beats (0: 256); writer i has the bits from i times the width of one on
    Req_Valid   : in    std_logic_vector(Writers_g - 1 downto 0);
    Req_Ready   : out   std_logic_vector(Writers_g - 1 downto 0);
    Req_Addr    : in    std_logic_vector(Writers_g * AddrBits_g - 1 downto 0);
    Req_Beats   : in    std_logic_vector(Writers_g * 8 - 1 downto 0);
    -- Its beats
    Data_Valid  : in    std_logic_vector(Writers_g - 1 downto 0);
    Data_Ready  : out   std_logic_vector(Writers_g - 1 downto 0);
    Data        : in    std_logic_vector(Writers_g * DataBits_g - 1 downto 0);
    Data_Strobe : in    std_logic_vector(Writers_g * DataBits_g / 8 - 1 downto 0);
    Data_Last   : in    std_logic_vector(Writers_g - 1 downto 0);
    -- How its bursts end, in their order
    Resp_Valid  : out   std_logic_vector(Writers_g - 1 downto 0);
    Resp_Ready  : in    std_logic_vector(Writers_g - 1 downto 0);
    Resp_Error  : out   std_logic;
    -- AXI4
    Axi_AwValid : out   std_logic;
    Axi_AwReady : in    std_logic;
    Axi_AwAddr  : out   std_logic_vector(AddrBits_g - 1 downto 0);
    Axi_AwId    : out   std_logic_vector(bitsOf(Writers_g) - 1 downto 0);
    Axi_AwLen   : out   std_logic_vector(7 downto 0);
    Axi_AwSize  : out   std_logic_vector(2 downto 0);
    Axi_AwBurst : out   std_logic_vector(1 downto 0);
    Axi_WValid  : out   std_logic;
    Axi_WReady  : in    std_logic;
    Axi_WData   : out   std_logic_vector(DataBits_g - 1 downto 0);
    Axi_WStrb   : out   std_logic_vector(DataBits_g / 8 - 1 downto 0);
    Axi_WLast   : out   std_logic;
    Axi_BValid  : in    std_logic;
    Axi_BReady  : out   std_logic;
    Axi_BId     : in    std_logic_vector(bitsOf(Writers_g) - 1 downto 0);
    Axi_BResp   : in    std_logic_vector(1 downto 0)
  );
end entity;

architecture rtl of bus_write_arbiter is

  constant IdBits_c   : positive := bitsOf(Writers_g);
  constant StrbBits_c : positive := DataBits_g / 8;

  subtype Writer_t is natural range 0 to Writers_g - 1;

  signal Room      : std_logic;
  signal Take      : std_logic;
  signal TakeId    : std_logic_vector(IdBits_c - 1 downto 0);
  -- Whose beats come now.
  signal HeadValid : std_logic;
  signal HeadId    : std_logic_vector(IdBits_c - 1 downto 0);
  signal Head      : Writer_t;
  signal WValid    : std_logic;
  signal WLast     : std_logic;
  signal LastTaken : std_logic;

begin

  i_requests : entity work.bus_requests
    generic map (
      Requesters_g => Writers_g,
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
      Room      => Room,
      Take      => Take,
      Take_Id   => TakeId,
      Axi_Valid => Axi_AwValid,
      Axi_Ready => Axi_AwReady,
      Axi_Addr  => Axi_AwAddr,
      Axi_Id    => Axi_AwId,
      Axi_Len   => Axi_AwLen,
      Axi_Size  => Axi_AwSize,
      Axi_Burst => Axi_AwBurst
    );

  i_order : entity work.fifo
    generic map (
      Width_g => IdBits_c,
      Depth_g => Depth_g
    )
    port map (
      Clk       => Clk,
      Rst       => Rst,
      In_Valid  => Take,
      In_Ready  => Room,
      In_Data   => TakeId,
      Out_Valid => HeadValid,
      Out_Ready => LastTaken,
      Out_Data  => HeadId,
      Level     => open,
      In_Place  => open,
      Out_Place => open
    );

  Head <= to_integer(unsigned(HeadId)) when HeadValid = '1' else 0;

  p_data : process (all) is
  begin
    Data_Ready <= (others => '0');
    WValid     <= '0';
    WLast      <= '0';
    Axi_WData  <= Data(DataBits_g - 1 downto 0);
    Axi_WStrb  <= Data_Strobe(StrbBits_c - 1 downto 0);
    for i in 0 to Writers_g - 1 loop
      if Head = i then
        Data_Ready(i) <= HeadValid and Axi_WReady;
        WValid        <= HeadValid and Data_Valid(i);
        WLast         <= Data_Last(i);
        Axi_WData     <= Data((i + 1) * DataBits_g - 1 downto i * DataBits_g);
        Axi_WStrb     <= Data_Strobe((i + 1) * StrbBits_c - 1 downto i * StrbBits_c);
      end if;
    end loop;
  end process;

  LastTaken  <= WValid and WLast and Axi_WReady;
  Axi_WValid <= WValid;
  Axi_WLast  <= WLast;

  p_responses : process (all) is
  begin
    Axi_BReady <= '1';
    Resp_Valid <= (others => '0');
    if HasResponses_g then
      for i in 0 to Writers_g - 1 loop
        if unsigned(Axi_BId) = i then
          Resp_Valid(i) <= Axi_BValid;
          Axi_BReady    <= Resp_Ready(i);
        end if;
      end loop;
    end if;
  end process;

  Resp_Error <= Axi_BResp(1);

end architecture;
