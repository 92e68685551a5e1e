-- Hands the pages that several translators ask for to one who answers them in order, and the responses back.
--
-- Who asked for nothing last goes first. What is shown stays until it is taken.

library ieee;
  use ieee.std_logic_1164.all;

entity page_arbiter is
  generic (
    -- Pages of the window, as a power of two.
    WindowBits_g : positive := 26;
    -- Requests of both that wait for their response.
    Depth_g      : positive := 32
  );
  port (
    Clk         : in    std_logic;
    Rst         : in    std_logic;
    -- Of the translators 0 and 1: pages; who of them a response is for
    Req_Valid   : in    std_logic_vector(1 downto 0);
    Req_Ready   : out   std_logic_vector(1 downto 0);
    Req_Page0   : in    std_logic_vector(WindowBits_g - 1 downto 0);
    Req_Page1   : in    std_logic_vector(WindowBits_g - 1 downto 0);
    Resp_Valid  : out   std_logic_vector(1 downto 0);
    Resp_Ready  : in    std_logic_vector(1 downto 0);
    -- To who answers
    Page_Valid  : out   std_logic;
    Page_Ready  : in    std_logic;
    Page        : out   std_logic_vector(WindowBits_g - 1 downto 0);
    Page_Whose  : out   std_logic;
    Known_Valid : in    std_logic;
    Known_Ready : out   std_logic
  );
end entity;

architecture rtl of page_arbiter is

  -- The one that goes first, if he asks: also he whose page is shown already.
  signal First      : std_logic;
  signal Chosen     : std_logic;
  signal IsAsked    : std_logic;
  signal PageValid  : std_logic;
  signal Accept     : std_logic;
  signal OwnerReady : std_logic;
  signal OwnerValid : std_logic;
  signal OwnerIn    : std_logic_vector(0 downto 0);
  signal Owner      : std_logic_vector(0 downto 0);
  signal KnownReady : std_logic;
  signal Responded  : std_logic;

begin

  Chosen     <= First when (First = '1' and Req_Valid(1) = '1') or (First = '0' and Req_Valid(0) = '1') else not First;
  IsAsked    <= Req_Valid(1) when Chosen = '1' else Req_Valid(0);
  PageValid  <= IsAsked and OwnerReady;
  Page_Valid <= PageValid;
  Page       <= Req_Page1 when Chosen = '1' else Req_Page0;
  Accept     <= PageValid and Page_Ready;
  Req_Ready  <= (1 => Accept and Chosen, 0 => Accept and not Chosen);

  p_turns : process (Clk) is
  begin
    if rising_edge(Clk) then
      if Accept = '1' then
        First <= not Chosen;
      elsif PageValid = '1' then
        First <= Chosen;
      end if;
      if Rst = '1' then
        First <= '0';
      end if;
    end if;
  end process;

  OwnerIn(0) <= Chosen;
  Page_Whose <= Chosen;

  i_owners : entity work.fifo
    generic map (
      Width_g => 1,
      Depth_g => Depth_g
    )
    port map (
      Clk       => Clk,
      Rst       => Rst,
      In_Valid  => Accept,
      In_Ready  => OwnerReady,
      In_Data   => OwnerIn,
      Out_Valid => OwnerValid,
      Out_Ready => Responded,
      Out_Data  => Owner,
      Level     => open,
      In_Place  => open,
      Out_Place => open
    );

  Resp_Valid  <= (1 => Known_Valid and OwnerValid and Owner(0), 0 => Known_Valid and OwnerValid and not Owner(0));
  KnownReady  <= OwnerValid and Resp_Ready(1) when Owner(0) = '1' else OwnerValid and Resp_Ready(0);
  Known_Ready <= KnownReady;
  Responded   <= Known_Valid and KnownReady;

end architecture;
