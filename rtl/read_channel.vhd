-- The data of reads, behind the translation of their addresses: what may go on goes to the memories, and what may not
-- is answered with an error here.
--
-- Memories answer in any order that ids allow. A burst that may not go on waits until nothing of its id is under
-- way, and its record is taken; then as many beats as it has are answered with SLVERR and no data. Until these
-- are over, bursts of its id wait, the others do not. Beats of an error come between two bursts of a memory, and
-- a beat of a memory that was shown comes first.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

entity read_channel is
  generic (
    IdBits_g   : positive := 6;
    DataBits_g : positive := 512;
    -- Bursts under way, at most.
    Bursts_g   : positive := 64
  );
  port (
    Clk        : in    std_logic;
    Rst        : in    std_logic;
    -- Bursts whose address is translated, or cannot be
    In_Valid   : in    std_logic;
    In_Ready   : out   std_logic;
    In_IsFault : in    std_logic;
    In_Id      : in    std_logic_vector(IdBits_g - 1 downto 0);
    In_Len     : in    std_logic_vector(7 downto 0);
    -- Those that go on, with the other signals of what comes in
    M_Ar_Valid : out   std_logic;
    M_Ar_Ready : in    std_logic;
    M_R_Valid  : in    std_logic;
    M_R_Ready  : out   std_logic;
    M_R_Id     : in    std_logic_vector(IdBits_g - 1 downto 0);
    M_R_Data   : in    std_logic_vector(DataBits_g - 1 downto 0);
    M_R_Resp   : in    std_logic_vector(1 downto 0);
    M_R_Last   : in    std_logic;
    -- Those that do not: their records
    Fault_Valid : out   std_logic;
    Fault_Ready : in    std_logic;
    -- What readers get
    S_R_Valid  : out   std_logic;
    S_R_Ready  : in    std_logic;
    S_R_Id     : out   std_logic_vector(IdBits_g - 1 downto 0);
    S_R_Data   : out   std_logic_vector(DataBits_g - 1 downto 0);
    S_R_Resp   : out   std_logic_vector(1 downto 0);
    S_R_Last   : out   std_logic;
    -- As burst_ledger has them
    Drain      : in    std_logic;
    Drained    : out   std_logic
  );
end entity;

architecture rtl of read_channel is

  constant RespError_c : std_logic_vector(1 downto 0) := "10";

  -- The burst that is answered with an error, and its beats but one that are still to come.
  signal Failing  : std_logic;
  signal FailId   : std_logic_vector(IdBits_g - 1 downto 0);
  signal FailLeft : unsigned(7 downto 0);
  signal Fails    : std_logic;
  -- A memory's burst has begun and not ended; a beat of it was shown and not taken.
  signal Amid     : std_logic;
  signal Shown    : std_logic;
  signal Room     : std_logic;
  signal InReady  : std_logic;
  -- Nothing stands in the way of an error for the burst that is there, as was seen in the cycle before.
  signal MayFail  : std_logic;
  signal Quiet    : std_logic;
  signal GoesOn   : std_logic;
  signal Begins   : std_logic;
  signal Faults   : std_logic;
  signal Taken    : std_logic;
  signal Ends     : std_logic;
  signal MReady   : std_logic;

begin

  GoesOn      <= In_Valid and not In_IsFault and Room when Failing = '0' or In_Id /= FailId else '0';
  Begins      <= GoesOn and M_Ar_Ready;
  M_Ar_Valid  <= GoesOn;
  Faults      <= MayFail;
  Taken       <= Faults and Fault_Ready;
  Fault_Valid <= Faults;
  InReady     <= Begins or Taken;
  In_Ready    <= InReady;

  Fails     <= Failing and not Amid and not Shown;
  MReady    <= S_R_Ready and not Fails;
  M_R_Ready <= MReady;
  Ends      <= M_R_Valid and MReady and M_R_Last;
  S_R_Valid <= M_R_Valid or Fails;
  S_R_Id    <= FailId when Fails = '1' else M_R_Id;
  S_R_Data  <= (others => '0') when Fails = '1' else M_R_Data;
  S_R_Resp  <= RespError_c when Fails = '1' else M_R_Resp;
  S_R_Last  <= M_R_Last when Fails = '0' else '1' when FailLeft = 0 else '0';

  p_errors : process (Clk) is
  begin
    if rising_edge(Clk) then
      if Fails = '1' and S_R_Ready = '1' then
        FailLeft <= FailLeft - 1;
        if FailLeft = 0 then
          Failing <= '0';
        end if;
      end if;
      if Taken = '1' then
        Failing  <= '1';
        FailId   <= In_Id;
        FailLeft <= unsigned(In_Len);
      end if;
      if M_R_Valid = '1' and MReady = '1' then
        Amid <= not M_R_Last;
      end if;
      Shown   <= M_R_Valid and not Fails and not S_R_Ready;
      MayFail <= In_Valid and In_IsFault and Quiet and not Failing and not InReady;
      if Rst = '1' then
        MayFail <= '0';
        Failing <= '0';
        Amid    <= '0';
        Shown   <= '0';
      end if;
    end if;
  end process;

  i_ledger : entity work.burst_ledger
    generic map (
      IdBits_g => IdBits_g,
      Bursts_g => Bursts_g
    )
    port map (
      Clk         => Clk,
      Rst         => Rst,
      Begin_Room  => Room,
      Begin_Valid => Begins,
      Begin_Id    => In_Id,
      Begin_Quiet => Quiet,
      End_Valid   => Ends,
      End_Id      => M_R_Id,
      Drain       => Drain,
      Drained     => Drained
    );

end architecture;
