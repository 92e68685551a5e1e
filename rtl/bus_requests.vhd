-- The requests of readers or of writers without ids, at one AXI4 port's channel for addresses: one of several who ask
-- after the other, each with its number for an id.
--
-- Who was served last goes last. What was taken is at the port in the next cycle.
-- Generics: docs/rtl/bus_arbiters.md.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.index_pkg.all;
  use work.window_pkg.all;

entity bus_requests is
  generic (
    Requesters_g : positive := 4;
    AddrBits_g   : positive := 64;
    -- Of a beat.
    DataBits_g   : positive := 512
  );
  port (
    Clk       : in    std_logic;
    Rst       : in    std_logic;
    -- Of each requester: where, and how many beats (0: 256)
    Req_Valid : in    std_logic_vector(Requesters_g - 1 downto 0);
    Req_Ready : out   std_logic_vector(Requesters_g - 1 downto 0);
    Req_Addr  : in    std_logic_vector(Requesters_g * AddrBits_g - 1 downto 0);
    Req_Beats : in    std_logic_vector(Requesters_g * 8 - 1 downto 0);
    -- One may be taken; for one cycle: one is, of this number
    Room      : in    std_logic;
    Take      : out   std_logic;
    Take_Id   : out   std_logic_vector(bitsOf(Requesters_g) - 1 downto 0);
    -- AXI4, of a channel for addresses
    Axi_Valid : out   std_logic;
    Axi_Ready : in    std_logic;
    Axi_Addr  : out   std_logic_vector(AddrBits_g - 1 downto 0);
    Axi_Id    : out   std_logic_vector(bitsOf(Requesters_g) - 1 downto 0);
    Axi_Len   : out   std_logic_vector(7 downto 0);
    Axi_Size  : out   std_logic_vector(2 downto 0);
    Axi_Burst : out   std_logic_vector(1 downto 0)
  );
end entity;

architecture rtl of bus_requests is

  constant IdBits_c : positive := bitsOf(Requesters_g);

  subtype Requester_t is natural range 0 to Requesters_g - 1;

  -- Who goes first, of those that ask.
  signal First    : Requester_t;
  signal Chosen   : Requester_t;
  signal ChosenId : std_logic_vector(IdBits_c - 1 downto 0);
  signal Free     : std_logic;
  signal Takes    : std_logic;
  signal Valid    : std_logic;

begin

  assert DataBits_g = 8 * 2 ** exponent(DataBits_g / 8) and DataBits_g <= 1024
    report "bus_requests: a beat has 8 to 1024 bits, a power of two" severity failure;

  ChosenId <= firstFrom(Req_Valid, First, IdBits_c);
  Chosen   <= to_integer(unsigned(ChosenId));
  Free     <= (not Valid or Axi_Ready) and Room;
  Takes    <= (or Req_Valid) and Free;
  Take     <= Takes;
  Take_Id  <= ChosenId;

  p_ready : process (all) is
  begin
    Req_Ready         <= (others => '0');
    Req_Ready(Chosen) <= Free;
  end process;

  p_request : process (Clk) is
  begin
    if rising_edge(Clk) then
      if Axi_Ready = '1' then
        Valid <= '0';
      end if;
      if Takes = '1' then
        Valid  <= '1';
        First  <= following(Chosen, Requesters_g);
        Axi_Id <= ChosenId;
        for i in 0 to Requesters_g - 1 loop
          if Chosen = i then
            Axi_Addr <= Req_Addr((i + 1) * AddrBits_g - 1 downto i * AddrBits_g);
            Axi_Len  <= std_logic_vector(unsigned(Req_Beats(i * 8 + 7 downto i * 8)) - 1);
          end if;
        end loop;
      end if;
      if Rst = '1' then
        Valid <= '0';
        First <= 0;
      end if;
    end if;
  end process;

  Axi_Valid <= Valid;
  Axi_Size  <= std_logic_vector(to_unsigned(exponent(DataBits_g / 8), 3));
  Axi_Burst <= "01";

end architecture;
