-- Who commands the allocator next: one of several requesters after the other, so that nobody waits for ever.
--
-- A requester shows its command until it is taken, and waits for its answer before the next one. One command
-- is at the allocator at a time, and the answer goes to whose it is. The rule is that of the model's `arbiter.rs`:
-- whoever follows the one that was served last is looked at first.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.index_pkg.all;
  use work.window_pkg.all;

entity command_arbiter is
  generic (
    Requesters_g : positive := 4;
    -- Of a command, and of an answer.
    CmdBits_g    : positive := 135;
    RespBits_g   : positive := 68
  );
  port (
    Clk        : in    std_logic;
    Rst        : in    std_logic;
    -- Of each requester, command and answer; the first one has the lowest bits. An answer is for all, its Valid
    -- for one.
    In_Valid   : in    std_logic_vector(Requesters_g - 1 downto 0);
    In_Ready   : out   std_logic_vector(Requesters_g - 1 downto 0);
    In_Cmd     : in    std_logic_vector(Requesters_g * CmdBits_g - 1 downto 0);
    Out_Valid  : out   std_logic_vector(Requesters_g - 1 downto 0);
    Out_Ready  : in    std_logic_vector(Requesters_g - 1 downto 0);
    Out_Resp   : out   std_logic_vector(RespBits_g - 1 downto 0);
    -- To the allocator
    Cmd_Valid  : out   std_logic;
    Cmd_Ready  : in    std_logic;
    Cmd        : out   std_logic_vector(CmdBits_g - 1 downto 0);
    Resp_Valid : in    std_logic;
    Resp_Ready : out   std_logic;
    Resp       : in    std_logic_vector(RespBits_g - 1 downto 0)
  );
end entity;

architecture rtl of command_arbiter is

  type State_t is (StateIdle, StateShow, StateServe);

  subtype Requester_t is natural range 0 to maximum(Requesters_g, 2) - 1;

  signal State : State_t;
  -- Whose command it is; who is looked at first.
  signal Owner : Requester_t;
  signal First : Requester_t;
  signal Held  : std_logic_vector(CmdBits_g - 1 downto 0);
  signal Chosen : Requester_t;

begin

  Chosen    <= to_integer(unsigned(firstFrom(In_Valid, First, bitsOf(Requesters_g))));
  Out_Resp  <= Resp;
  Cmd       <= Held;
  Cmd_Valid <= '1' when State = StateShow else '0';

  p_ports : process (all) is
  begin
    In_Ready   <= (others => '0');
    Out_Valid  <= (others => '0');
    Resp_Ready <= '0';
    for i in 0 to Requesters_g - 1 loop
      if i = Chosen and State = StateIdle then
        In_Ready(i) <= In_Valid(i);
      end if;
      if i = Owner and State = StateServe then
        Out_Valid(i) <= Resp_Valid;
        Resp_Ready   <= Out_Ready(i);
      end if;
    end loop;
  end process;

  p_state : process (Clk) is
  begin
    if rising_edge(Clk) then

      case State is

        when StateIdle =>
          Owner <= Chosen;
          for i in 0 to Requesters_g - 1 loop
            if i = Chosen then
              Held <= In_Cmd(CmdBits_g * (i + 1) - 1 downto CmdBits_g * i);
            end if;
          end loop;
          if (or In_Valid) = '1' then
            State <= StateShow;
          end if;

        when StateShow =>
          if Cmd_Ready = '1' then
            First <= following(Owner, Requesters_g);
            State <= StateServe;
          end if;

        when StateServe =>
          if Resp_Valid = '1' and Resp_Ready = '1' then
            State <= StateIdle;
          end if;

      end case;

      if Rst = '1' then
        State <= StateIdle;
        First <= 0;
      end if;
    end if;
  end process;

end architecture;
