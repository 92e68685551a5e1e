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
  use work.index_pkg.all;
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

  -- Who goes first, of those that ask.
  signal First     : Writer_t;
  signal Chosen    : Writer_t;
  signal ChosenId  : std_logic_vector(IdBits_c - 1 downto 0);
  signal Free      : std_logic;
  signal Room      : std_logic;
  signal Take      : std_logic;
  signal AwValid   : std_logic;
  -- Whose beats come now.
  signal HeadValid : std_logic;
  signal HeadId    : std_logic_vector(IdBits_c - 1 downto 0);
  signal Head      : Writer_t;
  signal WValid    : std_logic;
  signal WLast     : std_logic;
  signal LastTaken : std_logic;

begin

  assert DataBits_g = 8 * 2 ** exponent(DataBits_g / 8) and DataBits_g <= 1024
    report "bus_write_arbiter: a beat has 8 to 1024 bits, a power of two" severity failure;

  Chosen   <= to_integer(unsigned(firstFrom(Req_Valid, First, IdBits_c)));
  ChosenId <= std_logic_vector(to_unsigned(Chosen, IdBits_c));
  Free     <= (not AwValid or Axi_AwReady) and Room;
  Take     <= (or Req_Valid) and Free;

  p_ready : process (all) is
  begin
    Req_Ready         <= (others => '0');
    Req_Ready(Chosen) <= Free;
  end process;

  p_request : process (Clk) is
  begin
    if rising_edge(Clk) then
      if Axi_AwReady = '1' then
        AwValid <= '0';
      end if;
      if Take = '1' then
        AwValid    <= '1';
        First      <= following(Chosen, Writers_g);
        Axi_AwId   <= ChosenId;
        for i in 0 to Writers_g - 1 loop
          if Chosen = i then
            Axi_AwAddr <= Req_Addr((i + 1) * AddrBits_g - 1 downto i * AddrBits_g);
            Axi_AwLen  <= std_logic_vector(unsigned(Req_Beats(i * 8 + 7 downto i * 8)) - 1);
          end if;
        end loop;
      end if;
      if Rst = '1' then
        AwValid <= '0';
        First   <= 0;
      end if;
    end if;
  end process;

  Axi_AwValid <= AwValid;
  Axi_AwSize  <= std_logic_vector(to_unsigned(exponent(StrbBits_c), 3));
  Axi_AwBurst <= "01";

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
      In_Data   => ChosenId,
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
