-- The data of writes and their responses, behind the translation of their addresses: what may go on goes to the
-- memories; of what may not the data are dropped, and it is answered with an error.
--
-- Data come in the order of addresses, and go on as soon as the address is shown to the memory, as that may wait for
-- them. A burst that may not go on waits until nothing of its id is under way, and its record is taken; when its last
-- beat was dropped, SLVERR is the response. Until that is taken, bursts of its id wait, the others do not. Responses
-- that were shown stay.

library ieee;
  use ieee.std_logic_1164.all;

entity write_channel is
  generic (
    IdBits_g : positive := 6;
    -- Bursts under way, at most.
    Bursts_g : positive := 64
  );
  port (
    Clk         : in    std_logic;
    Rst         : in    std_logic;
    -- Bursts whose address is translated, or cannot be
    In_Valid    : in    std_logic;
    In_Ready    : out   std_logic;
    In_IsFault  : in    std_logic;
    In_Id       : in    std_logic_vector(IdBits_g - 1 downto 0);
    -- Those that go on, with the other signals of what comes in
    M_Aw_Valid  : out   std_logic;
    M_Aw_Ready  : in    std_logic;
    -- Beats; those that go on are the writer's
    S_W_Valid   : in    std_logic;
    S_W_Ready   : out   std_logic;
    S_W_Last    : in    std_logic;
    M_W_Valid   : out   std_logic;
    M_W_Ready   : in    std_logic;
    -- Responses
    M_B_Valid   : in    std_logic;
    M_B_Ready   : out   std_logic;
    M_B_Id      : in    std_logic_vector(IdBits_g - 1 downto 0);
    M_B_Resp    : in    std_logic_vector(1 downto 0);
    S_B_Valid   : out   std_logic;
    S_B_Ready   : in    std_logic;
    S_B_Id      : out   std_logic_vector(IdBits_g - 1 downto 0);
    S_B_Resp    : out   std_logic_vector(1 downto 0);
    -- Bursts that do not go on: their records
    Fault_Valid : out   std_logic;
    Fault_Ready : in    std_logic;
    -- As burst_ledger has them
    Drain       : in    std_logic;
    Drained     : out   std_logic
  );
end entity;

architecture rtl of write_channel is

  constant RespError_c : std_logic_vector(1 downto 0) := "10";

  -- The burst that is answered with an error, and whether its data have been dropped.
  signal Failing   : std_logic;
  signal FailId    : std_logic_vector(IdBits_g - 1 downto 0);
  signal Dropped   : std_logic;
  signal Fails     : std_logic;
  -- A memory's response was shown and not taken.
  signal Shown     : std_logic;
  -- The address that is shown to the memory has its place among the data already.
  signal Placed    : std_logic;
  signal Room      : std_logic;
  signal InReady   : std_logic;
  -- Nothing stands in the way of an error for the burst that is there, as was seen in the cycle before.
  signal MayFail   : std_logic;
  signal Quiet     : std_logic;
  -- Its id has an error.
  signal IsHeldUp  : std_logic;
  signal GoesOn    : std_logic;
  signal Begins    : std_logic;
  signal Faults    : std_logic;
  signal Taken     : std_logic;
  signal Ends      : std_logic;
  signal MReady    : std_logic;
  signal PlaceIn   : std_logic;
  signal PlaceRoom : std_logic;
  signal PlaceIs   : std_logic_vector(0 downto 0);
  -- The burst whose beats come now: of a fault, or not.
  signal HeadValid : std_logic;
  signal Head      : std_logic_vector(0 downto 0);
  signal WReady    : std_logic;
  signal LastTaken : std_logic;

begin

  IsHeldUp    <= Failing when In_Id = FailId else '0';
  GoesOn      <= In_Valid and not In_IsFault and Room and (Placed or PlaceRoom) and not IsHeldUp;
  Begins      <= GoesOn and M_Aw_Ready;
  M_Aw_Valid  <= GoesOn;
  Faults      <= MayFail;
  Taken       <= Faults and Fault_Ready;
  Fault_Valid <= Faults;
  InReady     <= Begins or Taken;
  In_Ready    <= InReady;

  PlaceIn    <= (GoesOn and not Placed) or Taken;
  PlaceIs(0) <= In_IsFault;

  i_places : entity work.fifo
    generic map (
      Width_g => 1,
      Depth_g => Bursts_g
    )
    port map (
      Clk       => Clk,
      Rst       => Rst,
      In_Valid  => PlaceIn,
      In_Ready  => PlaceRoom,
      In_Data   => PlaceIs,
      Out_Valid => HeadValid,
      Out_Ready => LastTaken,
      Out_Data  => Head,
      Level     => open,
      In_Place  => open,
      Out_Place => open
    );

  M_W_Valid <= S_W_Valid and HeadValid and not Head(0);
  WReady    <= HeadValid and (Head(0) or M_W_Ready);
  S_W_Ready <= WReady;
  LastTaken <= S_W_Valid and WReady and S_W_Last;

  Fails     <= Failing and Dropped and not Shown;
  MReady    <= S_B_Ready and not Fails;
  M_B_Ready <= MReady;
  Ends      <= M_B_Valid and MReady;
  S_B_Valid <= M_B_Valid or Fails;
  S_B_Id    <= FailId when Fails = '1' else M_B_Id;
  S_B_Resp  <= RespError_c when Fails = '1' else M_B_Resp;

  p_errors : process (Clk) is
  begin
    if rising_edge(Clk) then
      Placed <= GoesOn and not M_Aw_Ready;
      if LastTaken = '1' and Head(0) = '1' then
        Dropped <= '1';
      end if;
      if Fails = '1' and S_B_Ready = '1' then
        Failing <= '0';
      end if;
      if Taken = '1' then
        Failing <= '1';
        Dropped <= '0';
        FailId  <= In_Id;
      end if;
      Shown   <= M_B_Valid and not Fails and not S_B_Ready;
      MayFail <= In_Valid and In_IsFault and Quiet and not Failing and PlaceRoom and not InReady;
      if Rst = '1' then
        MayFail <= '0';
        Failing <= '0';
        Shown   <= '0';
        Placed  <= '0';
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
      End_Id      => M_B_Id,
      Drain       => Drain,
      Drained     => Drained
    );

end architecture;
