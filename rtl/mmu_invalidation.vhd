-- Invalidations of an MMU, of several who ask, one after the other: from behind to the front.
--
-- First the L2 TLB takes one and the walker's lines are dropped, in one cycle; then each translator does, and with
-- the last one it is in force, and taken. It is done when each translator has answered all of before, and what
-- it let go on has ended in the memories. Who had none last goes first.

library ieee;
  use ieee.std_logic_1164.all;

entity mmu_invalidation is
  generic (
    -- Pages, as a power of two.
    WindowBits_g : positive := 26
  );
  port (
    Clk         : in    std_logic;
    Rst         : in    std_logic;
    -- Of two: pages from First to Last; for one cycle: the last that was taken is done
    Req_Valid   : in    std_logic_vector(1 downto 0);
    Req_Ready   : out   std_logic_vector(1 downto 0);
    Req_First0  : in    std_logic_vector(WindowBits_g - 1 downto 0);
    Req_Last0   : in    std_logic_vector(WindowBits_g - 1 downto 0);
    Req_First1  : in    std_logic_vector(WindowBits_g - 1 downto 0);
    Req_Last1   : in    std_logic_vector(WindowBits_g - 1 downto 0);
    Req_Done    : out   std_logic_vector(1 downto 0);
    -- Its pages
    First       : out   std_logic_vector(WindowBits_g - 1 downto 0);
    Last        : out   std_logic_vector(WindowBits_g - 1 downto 0);
    -- To the L2 TLB; lines are dropped
    L2_Valid    : out   std_logic;
    L2_Ready    : in    std_logic;
    Drop        : out   std_logic;
    -- To each translator; for one cycle each: what it accepted before has been answered, and has ended in the memories
    Front_Valid : out   std_logic_vector(1 downto 0);
    Front_Ready : in    std_logic_vector(1 downto 0);
    Drained     : in    std_logic_vector(1 downto 0)
  );
end entity;

architecture rtl of mmu_invalidation is

  type State_t is (Idle, Behind, Front, Draining);

  signal State   : State_t;
  signal Chosen  : std_logic;
  signal Owner   : std_logic;
  -- Who goes first.
  signal Turn    : std_logic;
  -- Which of the translators have taken it, and which have answered and drained all of before.
  signal Taken   : std_logic_vector(1 downto 0);
  signal Drains  : std_logic_vector(1 downto 0);
  signal IsTaken : std_logic;
  signal IsDone  : std_logic;

begin

  Chosen <= Req_Valid(1) and (Turn or not Req_Valid(0));

  L2_Valid    <= '1' when State = Behind else '0';
  Drop        <= L2_Ready when State = Behind else '0';
  Front_Valid <= not Taken when State = Front else "00";
  IsTaken     <= and (Taken or Front_Ready) when State = Front else '0';
  Req_Ready   <= (1 => IsTaken and Owner, 0 => IsTaken and not Owner);
  IsDone      <= and (Drains or Drained) when State = Draining else '0';
  Req_Done    <= (1 => IsDone and Owner, 0 => IsDone and not Owner);

  p_state : process (Clk) is
  begin
    if rising_edge(Clk) then
      Drains <= Drains or Drained;
      case State is
        when Idle =>
          if (or Req_Valid) = '1' then
            State <= Behind;
          end if;
          Owner  <= Chosen;
          Turn   <= not Chosen when (or Req_Valid) = '1' else Turn;
          First  <= Req_First1 when Chosen = '1' else Req_First0;
          Last   <= Req_Last1 when Chosen = '1' else Req_Last0;
          Taken  <= "00";
          Drains <= "00";
        when Behind =>
          if L2_Ready = '1' then
            State <= Front;
          end if;
        when Front =>
          Taken <= Taken or Front_Ready;
          if IsTaken = '1' then
            State <= Draining;
          end if;
        when Draining =>
          if IsDone = '1' then
            State <= Idle;
          end if;
      end case;
      if Rst = '1' then
        State <= Idle;
        Turn  <= '0';
      end if;
    end if;
  end process;

end architecture;
