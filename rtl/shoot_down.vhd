-- What the allocator has the translators drop, one invalidation after the other.
--
-- Three may wait: of pages that became valid, for which nobody waits; of a command, and of the sweep, which
-- wait until every access of before has ended. The allocator never waits here: an access of before may
-- itself wait for a first touch. So pages that become valid while an invalidation is under way are put
-- together with those that do already: the smallest range that has both.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

entity shoot_down is
  generic (
    -- Of a page's number in the window.
    PageBits_g : positive
  );
  port (
    Clk          : in    std_logic;
    Rst          : in    std_logic;
    -- Pages First to Last, of one of the three; of a command and of the sweep there is one at a time.
    Made_Valid   : in    std_logic;
    Command      : in    std_logic;
    Sweep        : in    std_logic;
    First        : in    std_logic_vector(PageBits_g - 1 downto 0);
    Last         : in    std_logic_vector(PageBits_g - 1 downto 0);
    -- No pages that became valid wait.
    Told         : out   std_logic;
    -- For one cycle: the invalidation of a command, or of the sweep, is done.
    Command_Done : out   std_logic;
    Sweep_Done   : out   std_logic;
    -- To the translators
    Inval_Valid  : out   std_logic;
    Inval_Ready  : in    std_logic;
    Inval_First  : out   std_logic_vector(PageBits_g - 1 downto 0);
    Inval_Last   : out   std_logic_vector(PageBits_g - 1 downto 0);
    Inval_Done   : in    std_logic
  );
end entity;

architecture rtl of shoot_down is

  type Kind_t is (KindMade, KindCommand, KindSweep);

  subtype Page_t is unsigned(PageBits_g - 1 downto 0);

  type Pages_t is record
    Valid : std_logic;
    First : Page_t;
    Last  : Page_t;
  end record;

  type Waiting_t is array (Kind_t) of Pages_t;

  signal Waiting : Waiting_t;
  -- Pages that became valid while others wait: they are put together in the next cycle.
  signal More    : Pages_t;
  -- That which is shown, or was taken and is not done.
  signal Kind    : Kind_t;
  signal Shown   : std_logic;
  signal Running : std_logic;
  signal Now     : Pages_t;

begin

  Inval_Valid <= Shown;
  Inval_First <= std_logic_vector(Now.First);
  Inval_Last  <= std_logic_vector(Now.Last);

  Told         <= '0' when More.Valid = '1' or Waiting(KindMade).Valid = '1' or
                           (Shown = '1' and Kind = KindMade) else '1';
  Command_Done <= '1' when Running = '1' and Inval_Done = '1' and Kind = KindCommand else '0';
  Sweep_Done   <= '1' when Running = '1' and Inval_Done = '1' and Kind = KindSweep else '0';

  p_shoot : process (Clk) is
    variable waiting_v : Waiting_t;
  begin
    if rising_edge(Clk) then
      waiting_v := Waiting;
      if Shown = '1' and Inval_Ready = '1' then
        Shown   <= '0';
        Running <= '1';
      end if;
      if Running = '1' and Inval_Done = '1' then
        Running <= '0';
      end if;
      if Shown = '0' and Running = '0' then
        for k in KindSweep downto KindMade loop
          if Waiting(k).Valid = '1' then
            Kind  <= k;
            Now   <= Waiting(k);
            Shown <= '1';
          end if;
        end loop;
        if Waiting(KindMade).Valid = '1' then
          waiting_v(KindMade).Valid := '0';
        elsif Waiting(KindCommand).Valid = '1' then
          waiting_v(KindCommand).Valid := '0';
        else
          waiting_v(KindSweep).Valid := '0';
        end if;
      end if;
      if More.Valid = '1' then
        if waiting_v(KindMade).Valid = '0' or More.First < waiting_v(KindMade).First then
          waiting_v(KindMade).First := More.First;
        end if;
        if waiting_v(KindMade).Valid = '0' or More.Last > waiting_v(KindMade).Last then
          waiting_v(KindMade).Last := More.Last;
        end if;
        waiting_v(KindMade).Valid := '1';
      end if;
      More <= ('0', unsigned(First), unsigned(Last));
      if Made_Valid = '1' then
        if waiting_v(KindMade).Valid = '1' then
          More.Valid <= '1';
        else
          waiting_v(KindMade) := ('1', unsigned(First), unsigned(Last));
        end if;
      end if;
      if Command = '1' then
        waiting_v(KindCommand) := ('1', unsigned(First), unsigned(Last));
      end if;
      if Sweep = '1' then
        waiting_v(KindSweep) := ('1', unsigned(First), unsigned(Last));
      end if;
      Waiting <= waiting_v;
      if Rst = '1' then
        Shown      <= '0';
        Running    <= '0';
        More.Valid <= '0';
        for k in Kind_t loop
          Waiting(k).Valid <= '0';
        end loop;
      end if;
    end if;
  end process;

end architecture;
