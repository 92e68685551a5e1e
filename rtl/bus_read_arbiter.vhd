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
  use work.index_pkg.all;
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

  constant IdBits_c : positive := bitsOf(Readers_g);

  subtype Reader_t is natural range 0 to Readers_g - 1;

  -- Who goes first, of those that ask.
  signal First   : Reader_t;
  signal Chosen  : Reader_t;
  signal IsAsked : std_logic;
  signal Free    : std_logic;
  signal ArValid : std_logic;

begin

  assert DataBits_g = 8 * 2 ** exponent(DataBits_g / 8) and DataBits_g <= 1024
    report "bus_read_arbiter: a beat has 8 to 1024 bits, a power of two" severity failure;

  Chosen  <= to_integer(unsigned(firstFrom(Req_Valid, First, IdBits_c)));
  IsAsked <= or (Req_Valid);
  Free    <= not ArValid or Axi_ArReady;

  p_ready : process (all) is
  begin
    Req_Ready         <= (others => '0');
    Req_Ready(Chosen) <= Free;
  end process;

  p_request : process (Clk) is
  begin
    if rising_edge(Clk) then
      if Axi_ArReady = '1' then
        ArValid <= '0';
      end if;
      if IsAsked = '1' and Free = '1' then
        ArValid    <= '1';
        First      <= following(Chosen, Readers_g);
        Axi_ArId   <= std_logic_vector(to_unsigned(Chosen, IdBits_c));
        for i in 0 to Readers_g - 1 loop
          if Chosen = i then
            Axi_ArAddr <= Req_Addr((i + 1) * AddrBits_g - 1 downto i * AddrBits_g);
            Axi_ArLen  <= std_logic_vector(unsigned(Req_Beats(i * 8 + 7 downto i * 8)) - 1);
          end if;
        end loop;
      end if;
      if Rst = '1' then
        ArValid <= '0';
        First   <= 0;
      end if;
    end if;
  end process;

  Axi_ArValid <= ArValid;
  Axi_ArSize  <= std_logic_vector(to_unsigned(exponent(DataBits_g / 8), 3));
  Axi_ArBurst <= "01";

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
