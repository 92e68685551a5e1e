-- Bench of the MMU of readers and writers: bursts of both at once, while words of tables, of the window and of the
-- driver's space, and runs of flexible length change and are invalidated through the registers.
--
-- Of each page the bench knows what it was, and from when on it may not be that any more: an invalidation that
-- was answered is the floor of its pages. A burst that is accepted afterwards is answered with nothing older. Memories
-- answer in any order that ids allow, beats of several bursts mixed; readers and writers get each burst's own, in the
-- order of each id.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library vunit_lib;
  context vunit_lib.vunit_context;

library work;
  use work.memory_pkg.all;
  use work.random_pkg.all;

entity tb_mmu_top is
  generic (
    runner_cfg : string;
    Entries_g  : positive := 3;
    Slots_g    : positive := 4;
    Bursts_g   : positive := 20;
    SetBits_g  : positive := 1;
    Ways_g     : positive := 2;
    Flexible_g : positive := 2;
    DataBits_g : positive := 256;
    -- There is a space of the driver's, and the window lies in it.
    HasSpace_g : boolean := true;
    Stall_g    : natural := 0;
    Seed_g     : positive := 1
  );
end entity;

architecture sim of tb_mmu_top is

  constant AddrBits_c : positive := 40;
  constant PhysBits_c : positive := 24;
  constant PageBits_c : positive := 12;
  constant RootBits_c : positive := 2;
  constant LeafBits_c : positive := 3;
  constant IdBits_c   : positive := 5;
  constant PerRoot_c  : positive := 2 ** LeafBits_c;
  constant Pages_c    : positive := 2 ** (RootBits_c + LeafBits_c);
  constant Latency_c  : positive := 71;
  constant Period_c   : time := 4 ns;
  -- The window begins in page 96 of the space, which has three levels of tables.
  constant Space_c    : unsigned(AddrBits_c - 1 downto 0) := x"2300000000";
  constant Base_c     : unsigned(AddrBits_c - 1 downto 0) := x"2300060000";
  constant Levels_c   : positive := 3;
  -- The pages of the driver's that are asked for, numbered behind the window's: eight right behind the window, eight
  -- in the last words of a table and the first of the next, eight in a run or a table, four right before the window.
  constant Drivers_c  : positive := 28;
  constant Before_c   : positive := Pages_c + 24;
  -- The space's tables of the leaf level, and those above: the first is that of the root.
  constant Groups_c   : positive := 4;
  constant TopTable_c : positive := 1;
  constant MidTable_c : positive := 2;
  constant LeafTable_c : positive := 3;
  constant HighTable_c : positive := 7;
  constant PerTable_c : positive := 512;

  function spaceBits return natural is
  begin
    if HasSpace_g then
      return 20;
    end if;
    return 0;
  end function;

  function allPages return positive is
  begin
    if HasSpace_g then
      return Pages_c + Drivers_c;
    end if;
    return Pages_c;
  end function;

  constant SpaceBits_c : natural := spaceBits;
  constant All_c       : positive := allPages;

  constant Reader_c : natural := 0;
  constant Writer_c : natural := 1;

  -- Registers
  constant BaseLow_c   : natural := 0;
  constant BaseHigh_c  : natural := 4;
  constant RootIndex_c : natural := 8;
  constant RootLow_c   : natural := 12;
  constant RootHigh_c  : natural := 16;
  constant First_c     : natural := 20;
  constant Last_c      : natural := 24;
  constant Frame_c     : natural := 28;
  constant Command_c   : natural := 32;
  constant Evictions_c : natural := 36;
  constant SpaceLow_c  : natural := 40;
  constant SpaceHigh_c : natural := 44;
  constant SpaceRootLow_c  : natural := 48;
  constant SpaceRootHigh_c : natural := 52;

  constant Remove_c     : natural := 0;
  constant Protect_c    : natural := 1;
  constant Insert_c     : natural := 2;
  constant Invalidate_c : natural := 3;

  subtype Direction_t is natural range Reader_c to Writer_c;

  subtype Addr_t is std_logic_vector(AddrBits_c - 1 downto 0);
  subtype Id_t is std_logic_vector(IdBits_c - 1 downto 0);

  type Addrs_t is array (Direction_t) of Addr_t;

  type Ids_t is array (Direction_t) of Id_t;

  type Bytes_t is array (Direction_t) of std_logic_vector(7 downto 0);

  type Threes_t is array (Direction_t) of std_logic_vector(2 downto 0);

  type Twos_t is array (Direction_t) of std_logic_vector(1 downto 0);

  type Fours_t is array (Direction_t) of std_logic_vector(3 downto 0);

  signal Clk         : std_logic := '0';
  signal Rst         : std_logic := '1';
  signal SValid      : std_logic_vector(1 downto 0) := "00";
  signal SReady      : std_logic_vector(1 downto 0);
  signal SAddr       : Addrs_t := (others => (others => '0'));
  signal SId         : Ids_t := (others => (others => '0'));
  signal SLen        : Bytes_t := (others => (others => '0'));
  signal SSize       : Threes_t := (others => (others => '0'));
  signal SBurst      : Twos_t := (others => (others => '0'));
  signal MValid      : std_logic_vector(1 downto 0);
  signal MReady      : std_logic_vector(1 downto 0) := "00";
  signal MAddr       : Addrs_t;
  signal MInWindow   : std_logic_vector(1 downto 0);
  signal MMemory     : Fours_t;
  signal MId         : Ids_t;
  signal MLen        : Bytes_t;
  signal MSize       : Threes_t;
  signal MBurst      : Twos_t;
  -- Data of reads and writes, as memories and as readers and writers have them
  signal MRValid     : std_logic := '0';
  signal MRReady     : std_logic;
  signal MRId        : Id_t := (others => '0');
  signal MRData      : std_logic_vector(DataBits_g - 1 downto 0) := (others => '0');
  signal MRResp      : std_logic_vector(1 downto 0) := "00";
  signal MRLast      : std_logic := '0';
  signal SRValid     : std_logic;
  signal SRReady     : std_logic := '0';
  signal SRId        : Id_t;
  signal SRData      : std_logic_vector(DataBits_g - 1 downto 0);
  signal SRResp      : std_logic_vector(1 downto 0);
  signal SRLast      : std_logic;
  signal SWValid     : std_logic := '0';
  signal SWReady     : std_logic;
  signal SWData      : std_logic_vector(DataBits_g - 1 downto 0) := (others => '0');
  signal SWLast      : std_logic := '0';
  signal MWValid     : std_logic;
  signal MWReady     : std_logic := '0';
  signal MWData      : std_logic_vector(DataBits_g - 1 downto 0);
  signal MWLast      : std_logic;
  signal MBValid     : std_logic := '0';
  signal MBReady     : std_logic;
  signal MBId        : Id_t := (others => '0');
  signal MBResp      : std_logic_vector(1 downto 0) := "00";
  signal SBValid     : std_logic;
  signal SBReady     : std_logic := '0';
  signal SBId        : Id_t;
  signal SBResp      : std_logic_vector(1 downto 0);
  signal FaultValid  : std_logic;
  signal FaultReady  : std_logic := '0';
  signal FaultWrite  : std_logic_vector(0 downto 0);
  signal FaultId     : Id_t;
  signal FaultStatus : std_logic_vector(2 downto 0);
  signal FaultAddr   : Addr_t;
  signal AwValid     : std_logic := '0';
  signal AwReady     : std_logic;
  signal AwAddr      : std_logic_vector(7 downto 0) := (others => '0');
  signal WValid      : std_logic := '0';
  signal WReady      : std_logic;
  signal WData       : std_logic_vector(31 downto 0) := (others => '0');
  signal WStrb       : std_logic_vector(3 downto 0) := "1111";
  signal BValid      : std_logic;
  signal BReady      : std_logic := '0';
  signal BResp       : std_logic_vector(1 downto 0);
  signal LArValid    : std_logic := '0';
  signal LArReady    : std_logic;
  signal LArAddr     : std_logic_vector(7 downto 0) := (others => '0');
  signal LRValid     : std_logic;
  signal LRReady     : std_logic := '0';
  signal LRData      : std_logic_vector(31 downto 0);
  signal LRResp      : std_logic_vector(1 downto 0);
  signal ArValid     : std_logic;
  signal ArReady     : std_logic;
  signal ArAddr      : std_logic_vector(PhysBits_c - 1 downto 0);
  signal ArLen       : std_logic_vector(7 downto 0);
  signal ArSize      : std_logic_vector(2 downto 0);
  signal ArBurst     : std_logic_vector(1 downto 0);
  signal RValid      : std_logic;
  signal RReady      : std_logic;
  signal RData       : std_logic_vector(DataBits_g - 1 downto 0);
  signal RResp       : std_logic_vector(1 downto 0);
  signal Reads       : natural := 0;

begin

  Clk <= not Clk after Period_c / 2;

  p_reads : process (Clk) is
  begin
    if rising_edge(Clk) and ArValid = '1' and ArReady = '1' then
      Reads <= Reads + 1;
    end if;
  end process;

  p_test : process is
    -- Of a page, at some time: what is wrong with it (0: nothing), what it allows, where it is.
    type Known_t is record
      status : natural;
      writes : boolean;
      memory : natural;
      frame  : natural;
    end record;

    type History_t is array (0 to 255) of Known_t;

    type Histories_t is array (0 to All_c - 1) of History_t;

    type Numbers_t is array (0 to All_c - 1) of natural;

    -- What a word above the leaf level says: nothing, a table, a run, or what none may say.
    type Link_t is (IsNothing, IsTable, IsRun, IsWrong);

    type Links_t is array (0 to Groups_c - 1) of Link_t;

    -- Where a burst is: it waits for its place, is in a memory, is answered with an error, or is over.
    type Where_t is (Waits, InMemory, Fails, Ended);

    -- A burst: its signals, the oldest time of its page that counts, when it was accepted and when it left.
    type Burst_t is record
      addr  : Addr_t;
      id    : Id_t;
      len   : natural;
      floor : natural;
      cycle : natural;
      left  : natural;
      where : Where_t;
      -- Beats of data: that the writer has sent, that came to the memory or to the reader, that the memory has sent.
      sent  : natural;
      came  : natural;
      given : natural;
      -- It was answered with an error; it may not go on any more, as an invalidation is done.
      failed : boolean;
      stays  : boolean;
    end record;

    type Bursts_t is array (0 to 255) of Burst_t;

    type Queues_t is array (Direction_t) of Bursts_t;

    type Counts_t is array (Direction_t) of natural;

    type Are_t is array (Direction_t) of boolean;

    variable history_v  : Histories_t;
    -- The last that there is of each page, the oldest that counts, and what its table says.
    variable last_v     : Numbers_t := (others => 0);
    variable floor_v    : Numbers_t := (others => 0);
    variable table_v    : History_t;
    -- What words above say of each table of the driver's leaf level, and the run that one may say.
    variable links_v    : Links_t := (others => IsTable);
    variable run_v      : Known_t := (0, true, 0, 0);
    variable isRooted_v : boolean := true;
    variable queues_v   : Queues_t;
    variable accepted_v : Counts_t := (others => 0);
    -- So many were offered, were accepted, left for a memory or as a fault, and all up to there are over.
    variable offered_v  : Counts_t := (others => 0);
    variable answered_v : Counts_t := (others => 0);
    variable over_v     : Counts_t := (others => 0);
    -- The write whose beats are sent, and that whose beats come to the memory.
    variable sending_v  : natural := 0;
    variable coming_v   : natural := 0;
    -- Records that came, and the burst from which on there may be one.
    variable records_v  : Counts_t := (others => 0);
    variable told_v     : Counts_t := (others => 0);
    -- What was shown to the reader or the writer and not taken.
    variable isShown_v  : Are_t := (others => false);
    variable shown_v    : Ids_t;
    -- The memory does not take an address before it sees data.
    variable awaits_v   : boolean := false;
    -- Cycles from a read's address to its data in a memory.
    variable memory_v   : positive := 1;
    -- Of the last burst, from its acceptance: cycles to its place, and to the first beat that the reader gets.
    variable latency_v  : Counts_t := (others => 0);
    variable first_v    : natural := 0;
    variable faults_v   : Counts_t := (others => 0);
    variable runs_v     : natural := 0;
    variable cycle_v    : natural := 0;
    variable progress_v : natural := 0;
    variable traffic_v  : boolean := false;
    variable random_v   : Random_t;
    variable resp_v     : std_logic_vector(1 downto 0);
    variable data_v     : natural;
    variable page_v     : natural;
    variable end_v      : natural;
    variable reads_v    : natural;
    variable changes_v  : natural := 0;
    variable isPut_v    : boolean := false;

    function isInside (addr : Addr_t) return boolean is
    begin
      if HasSpace_g then
        return unsigned(addr(AddrBits_c - 1 downto PageBits_c + SpaceBits_c))
          = Space_c(AddrBits_c - 1 downto PageBits_c + SpaceBits_c);
      end if;
      return unsigned(addr(AddrBits_c - 1 downto PageBits_c + RootBits_c + LeafBits_c))
        = Base_c(AddrBits_c - 1 downto PageBits_c + RootBits_c + LeafBits_c);
    end function;

    -- Where a page lies in the space.
    function placeOf (page : natural) return natural is
    begin
      if page < Pages_c + 8 then
        -- Those of the first table follow the window.
        return 96 + page;
      elsif page < Pages_c + 16 then
        return 5 * PerTable_c - 4 + page - Pages_c - 8;
      elsif page >= Before_c then
        return 92 + page - Before_c;
      end if;
      return 7 * PerTable_c + 100 + page - Pages_c - 16;
    end function;

    type Places_t is array (0 to Groups_c - 1) of natural;

    -- Which aligned 512 pages of the space the driver's are of.
    constant GroupPlaces_c : Places_t := (0, 4, 5, 7);

    function groupOf (page : natural) return natural is
    begin
      for branch in 1 to Groups_c - 1 loop
        if placeOf(page) / PerTable_c = GroupPlaces_c(branch) then
          return branch;
        end if;
      end loop;
      return 0;
    end function;

    function pageOf (addr : Addr_t) return natural is
    begin
      for page in 0 to All_c - 1 loop
        if unsigned(addr(AddrBits_c - 1 downto PageBits_c)) =
          Space_c(AddrBits_c - 1 downto PageBits_c) + placeOf(page) then
          return page;
        end if;
      end loop;
      return 0;
    end function;

    -- As the registers have it.
    function numberOf (page : natural) return natural is
    begin
      if HasSpace_g then
        return placeOf(page);
      end if;
      return page;
    end function;

    -- What is answered is what the page was at that time.
    impure function isAnswer (d : Direction_t; burst : Burst_t; known : Known_t) return boolean is
    begin
      return known.status = 0 and (d = Reader_c or known.writes)
        and MInWindow(d) = '1' and unsigned(MMemory(d)) = known.memory
        and unsigned(MAddr(d)(AddrBits_c - 1 downto PageBits_c)) = known.frame
        and MAddr(d)(PageBits_c - 1 downto 0) = burst.addr(PageBits_c - 1 downto 0);
    end function;

    impure function isFault (d : Direction_t; known : Known_t) return boolean is
    begin
      if known.status = 0 then
        return d = Writer_c and not known.writes and FaultStatus = "010";
      end if;
      return unsigned(FaultStatus) = known.status;
    end function;

    -- Bursts leave in order: those up to this one that are not in a memory may not go on.
    procedure leaveUpTo (d : Direction_t; last : natural) is
    begin
      while answered_v(d) <= last loop
        if queues_v(d)(answered_v(d) mod 256).where = Waits then
          queues_v(d)(answered_v(d) mod 256).where := Fails;
        end if;
        answered_v(d) := answered_v(d) + 1;
      end loop;
    end procedure;

    -- Each address has the number of its burst within its page.
    impure function burstOf (d : Direction_t; addr : Addr_t) return natural is
      variable ahead_v : natural;
    begin
      ahead_v := (to_integer(unsigned(addr(PageBits_c - 1 downto 0))) + 4096 - over_v(d) mod 4096) mod 4096;
      -- Records may come when the burst is over.
      if ahead_v > 2048 then
        return over_v(d) + ahead_v - 4096;
      end if;
      return over_v(d) + ahead_v;
    end function;

    procedure checkAnswer (d : Direction_t) is
      variable i       : natural;
      variable burst_v : Burst_t;
      variable found_v : boolean := false;
    begin
      i := burstOf(d, MAddr(d));
      check(answered_v(d) <= i and i < accepted_v(d), "an answer to nobody");
      burst_v := queues_v(d)(i mod 256);
      check(burst_v.where = Waits, "a burst that goes on leaves once");
      check(not burst_v.stays, "a burst of before an invalidation that is done");
      queues_v(d)(i mod 256).where := InMemory;
      queues_v(d)(i mod 256).left := cycle_v;
      leaveUpTo(d, i);
      latency_v(d) := cycle_v - burst_v.cycle;
      progress_v := cycle_v;
      check(MId(d) = burst_v.id and unsigned(MLen(d)) = burst_v.len and MSize(d) = burst_v.id(2 downto 0)
        and MBurst(d) = burst_v.id(1 downto 0), "a burst's id, length, size and kind");
      if not isInside(burst_v.addr) then
        check(MInWindow(d) = '0' and MAddr(d) = burst_v.addr, "a burst outside of the window");
        return;
      end if;
      for time in last_v(pageOf(burst_v.addr)) downto burst_v.floor loop
        found_v := isAnswer(d, burst_v, history_v(pageOf(burst_v.addr))(time mod 256));
        exit when found_v;
      end loop;
      check(found_v, "answer " & to_string(d) & " for page " & to_string(pageOf(burst_v.addr)) & ": "
        & to_hstring(MAddr(d)) & " " & to_hstring(MMemory(d)));
      if MMemory(d) = x"5" then
        runs_v := runs_v + 1;
      end if;
    end procedure;

    procedure checkRecord is
      variable d       : Direction_t;
      variable i       : natural;
      variable burst_v : Burst_t;
      variable found_v : boolean := false;
    begin
      d := to_integer(unsigned(FaultWrite));
      i := burstOf(d, FaultAddr);
      check(i < accepted_v(d) and i >= told_v(d), "a record of a burst");
      leaveUpTo(d, i);
      told_v(d) := i + 1;
      burst_v := queues_v(d)(i mod 256);
      check(burst_v.where = Fails or (burst_v.where = Ended and burst_v.failed), "a record of who may not go on");
      check(FaultId = burst_v.id and FaultAddr = burst_v.addr and isInside(burst_v.addr), "a record's id and address");
      for time in last_v(pageOf(burst_v.addr)) downto burst_v.floor loop
        found_v := isFault(d, history_v(pageOf(burst_v.addr))(time mod 256));
        exit when found_v;
      end loop;
      check(found_v, "a record " & to_string(d) & " for page " & to_string(pageOf(burst_v.addr)) & ": "
        & to_string(FaultStatus));
      records_v(d) := records_v(d) + 1;
    end procedure;

    -- The oldest burst of an id that is not over.
    impure function oldestOf (d : Direction_t; id : Id_t) return natural is
    begin
      for i in over_v(d) to accepted_v(d) - 1 loop
        if queues_v(d)(i mod 256).id = id and queues_v(d)(i mod 256).where /= Ended then
          return i;
        end if;
      end loop;
      return accepted_v(d);
    end function;

    -- One that is in the memory, with nothing older of its id there, from some place on; or none.
    impure function anyInMemory (d : Direction_t) return natural is
      variable from_v : natural;
      variable i      : natural;
    begin
      if over_v(d) = answered_v(d) then
        return accepted_v(d);
      end if;
      from_v := random_v.pick(answered_v(d) - over_v(d));
      for n in 0 to answered_v(d) - over_v(d) - 1 loop
        i := over_v(d) + (from_v + n) mod (answered_v(d) - over_v(d));
        if queues_v(d)(i mod 256).where = InMemory and oldestOf(d, queues_v(d)(i mod 256).id) = i
          and (d = Writer_c or (queues_v(d)(i mod 256).given <= queues_v(d)(i mod 256).len
            and cycle_v + 1 >= queues_v(d)(i mod 256).left + memory_v))
          and (d = Reader_c or (queues_v(d)(i mod 256).came > queues_v(d)(i mod 256).len
            and queues_v(d)(i mod 256).given = 0)) then
          return i;
        end if;
      end loop;
      return accepted_v(d);
    end function;

    -- What beat a burst has for data.
    function dataOf (burst, beat : natural) return std_logic_vector is
    begin
      return std_logic_vector(to_unsigned(burst * 16 + beat + 1, DataBits_g));
    end function;

    procedure close (d : Direction_t; i : natural) is
    begin
      queues_v(d)(i mod 256).where := Ended;
      progress_v := cycle_v;
      while over_v(d) < answered_v(d) and queues_v(d)(over_v(d) mod 256).where = Ended loop
        over_v(d) := over_v(d) + 1;
      end loop;
    end procedure;

    -- An error for a burst, which leaves with it at the latest.
    procedure fail (d : Direction_t; i : natural) is
    begin
      leaveUpTo(d, i);
      check(queues_v(d)(i mod 256).where = Fails, "an error for who may go on");
      if not queues_v(d)(i mod 256).failed then
        faults_v(d) := faults_v(d) + 1;
      end if;
      queues_v(d)(i mod 256).failed := true;
    end procedure;

    -- A beat that the reader gets.
    procedure checkBeat is
      variable i       : natural;
      variable burst_v : Burst_t;
    begin
      i := oldestOf(Reader_c, SRId);
      check(i < accepted_v(Reader_c), "a beat for nobody");
      burst_v := queues_v(Reader_c)(i mod 256);
      if burst_v.came = 0 then
        first_v := cycle_v - burst_v.cycle;
      end if;
      if SRResp = "10" then
        fail(Reader_c, i);
        check(SRData = (SRData'range => '0'), "an error has no data");
      else
        check(burst_v.where = InMemory and SRResp = "00" and SRData = dataOf(i, burst_v.came),
          "a beat of another burst");
      end if;
      check((SRLast = '1') = (burst_v.came = burst_v.len), "the last beat");
      queues_v(Reader_c)(i mod 256).came := burst_v.came + 1;
      if SRLast = '1' then
        close(Reader_c, i);
      end if;
    end procedure;

    -- A response that the writer gets.
    procedure checkResponse is
      variable i       : natural;
      variable burst_v : Burst_t;
    begin
      i := oldestOf(Writer_c, SBId);
      check(i < accepted_v(Writer_c), "a response for nobody");
      burst_v := queues_v(Writer_c)(i mod 256);
      check(burst_v.sent = burst_v.len + 1, "a response before the data");
      if SBResp = "10" then
        fail(Writer_c, i);
        check(burst_v.came = 0, "data of a burst that may not go on");
      else
        check(burst_v.where = InMemory and SBResp = "00" and burst_v.given = 1, "a response of another burst");
      end if;
      close(Writer_c, i);
    end procedure;

    -- A beat that comes to the memory: of the oldest write that goes on and whose data are not all there.
    procedure checkWrite is
      variable i : natural;
    begin
      i := (to_integer(unsigned(MWData(30 downto 0))) - 1) / 16;
      check(coming_v <= i and i < offered_v(Writer_c), "a beat of nobody");
      while coming_v < i loop
        leaveUpTo(Writer_c, coming_v);
        check(queues_v(Writer_c)(coming_v mod 256).where = Fails or queues_v(Writer_c)(coming_v mod 256).failed
          or queues_v(Writer_c)(coming_v mod 256).came > queues_v(Writer_c)(coming_v mod 256).len, "a beat too early");
        coming_v := coming_v + 1;
      end loop;
      check(queues_v(Writer_c)(i mod 256).where = Waits or queues_v(Writer_c)(i mod 256).where = InMemory,
        "data of a burst that may not go on");
      check(MWData = dataOf(i, queues_v(Writer_c)(i mod 256).came), "a beat that is not next: " & to_hstring(MWData));
      check((MWLast = '1') = (queues_v(Writer_c)(i mod 256).came = queues_v(Writer_c)(i mod 256).len), "the last beat");
      queues_v(Writer_c)(i mod 256).came := queues_v(Writer_c)(i mod 256).came + 1;
    end procedure;

    procedure offer (d : Direction_t; addr : Addr_t) is
      variable id_v   : Id_t;
      variable some_v : natural;
      variable len_v  : natural;
      variable addr_v : Addr_t;
    begin
      -- A few ids more often, so that some have several.
      some_v := 4 when random_v.chance(60) else 2 ** IdBits_c;
      id_v   := std_logic_vector(to_unsigned(random_v.pick(some_v), IdBits_c));
      len_v  := random_v.pick(4);
      SValid(d) <= '1';
      addr_v    := addr;
      addr_v(PageBits_c - 1 downto 0) := std_logic_vector(to_unsigned(offered_v(d) mod 4096, PageBits_c));
      SAddr(d)  <= addr_v;
      SId(d)    <= id_v;
      SLen(d)   <= std_logic_vector(to_unsigned(len_v, 8));
      SSize(d)  <= id_v(2 downto 0);
      SBurst(d) <= id_v(1 downto 0);
      queues_v(d)(offered_v(d) mod 256) := (addr_v, id_v, len_v, 0, 0, 0, Waits, 0, 0, 0, false, false);
      offered_v(d) := offered_v(d) + 1;
    end procedure;

    impure function inPage (page : natural) return Addr_t is
    begin
      return std_logic_vector(Space_c + placeOf(page) * 2 ** PageBits_c);
    end function;

    impure function beyond return Addr_t is
    begin
      if HasSpace_g then
        return std_logic_vector(Space_c + shift_left(to_unsigned(1, AddrBits_c), PageBits_c + SpaceBits_c));
      end if;
      return std_logic_vector(Base_c + (Pages_c + random_v.pick(3)) * 2 ** PageBits_c);
    end function;

    -- What readers, writers and memories do with data in a cycle.
    procedure stepData is
      variable i : natural;
    begin
      check(not isShown_v(Reader_c) or (SRValid = '1' and SRId = shown_v(Reader_c)), "a beat that was shown stays");
      check(not isShown_v(Writer_c) or (SBValid = '1' and SBId = shown_v(Writer_c)), "a response that was shown stays");
      isShown_v := (Reader_c => SRValid = '1' and SRReady = '0', Writer_c => SBValid = '1' and SBReady = '0');
      shown_v   := (Reader_c => SRId, Writer_c => SBId);
      if SRValid = '1' and SRReady = '1' then
        checkBeat;
      end if;
      if SBValid = '1' and SBReady = '1' then
        checkResponse;
      end if;
      if MWValid = '1' and MWReady = '1' then
        checkWrite;
      end if;
      if MRValid = '0' or MRReady = '1' then
        MRValid <= '0';
        i := anyInMemory(Reader_c);
        if i < accepted_v(Reader_c) and not random_v.chance(Stall_g) then
          MRValid <= '1';
          MRId    <= queues_v(Reader_c)(i mod 256).id;
          MRData  <= dataOf(i, queues_v(Reader_c)(i mod 256).given);
          MRLast  <= '1' when queues_v(Reader_c)(i mod 256).given = queues_v(Reader_c)(i mod 256).len else '0';
          queues_v(Reader_c)(i mod 256).given := queues_v(Reader_c)(i mod 256).given + 1;
        end if;
      end if;
      if MBValid = '0' or MBReady = '1' then
        MBValid <= '0';
        i := anyInMemory(Writer_c);
        if i < accepted_v(Writer_c) and not random_v.chance(Stall_g) then
          MBValid <= '1';
          MBId    <= queues_v(Writer_c)(i mod 256).id;
          queues_v(Writer_c)(i mod 256).given := 1;
        end if;
      end if;
      if SWValid = '1' and SWReady = '1' then
        queues_v(Writer_c)(sending_v mod 256).sent := queues_v(Writer_c)(sending_v mod 256).sent + 1;
        if SWLast = '1' then
          sending_v := sending_v + 1;
        end if;
      end if;
      if SWValid = '0' or SWReady = '1' then
        SWValid <= '0';
        if sending_v < offered_v(Writer_c) and not random_v.chance(Stall_g) then
          SWValid <= '1';
          SWData  <= dataOf(sending_v, queues_v(Writer_c)(sending_v mod 256).sent);
          SWLast  <= '0';
          if queues_v(Writer_c)(sending_v mod 256).sent = queues_v(Writer_c)(sending_v mod 256).len then
            SWLast <= '1';
          end if;
        end if;
      end if;
      SRReady    <= '0' when random_v.chance(Stall_g) else '1';
      SBReady    <= '0' when random_v.chance(Stall_g) else '1';
      MWReady    <= '0' when random_v.chance(Stall_g) else '1';
      if FaultValid = '1' and FaultReady = '1' then
        checkRecord;
      end if;
      FaultReady <= '0' when random_v.chance(Stall_g) else '1';
    end procedure;

    procedure step is
      variable page_v : natural;
    begin
      wait until rising_edge(Clk);
      cycle_v := cycle_v + 1;
      stepData;
      for d in Direction_t loop
        if MValid(d) = '1' and MReady(d) = '1' then
          checkAnswer(d);
        end if;
        if SValid(d) = '1' and SReady(d) = '1' then
          page_v := 0;
          if isInside(SAddr(d)) then
            page_v := pageOf(SAddr(d));
          end if;
          queues_v(d)(accepted_v(d) mod 256).floor := floor_v(page_v);
          queues_v(d)(accepted_v(d) mod 256).cycle := cycle_v;
          accepted_v(d) := accepted_v(d) + 1;
          SValid(d) <= '0';
        end if;
        if traffic_v and (SValid(d) = '0' or SReady(d) = '1') and random_v.chance(70)
          and offered_v(d) - over_v(d) < 200 then
          if random_v.chance(10) then
            offer(d, beyond);
          elsif random_v.chance(50) then
            offer(d, inPage(random_v.pick(6)));
          else
            offer(d, inPage(random_v.pick(All_c)));
          end if;
        end if;
        MReady(d) <= '0' when random_v.chance(Stall_g) else '1';
      end loop;
      if awaits_v and MValid(Writer_c) = '1' then
        page_v := burstOf(Writer_c, MAddr(Writer_c)) mod 256;
        if queues_v(Writer_c)(page_v).came = 0 then
          MReady(Writer_c) <= '0';
        end if;
      elsif awaits_v then
        MReady(Writer_c) <= '0';
      end if;
      check(over_v = accepted_v or cycle_v - progress_v < 2000, "a burst without an answer");
    end procedure;

    procedure settle is
    begin
      step;
      while over_v /= accepted_v or SValid /= "00" loop
        step;
      end loop;
    end procedure;

    procedure write (register_no : natural; data : natural; strobes : std_logic_vector(3 downto 0) := "1111") is
    begin
      AwValid <= '1';
      WValid  <= '1';
      AwAddr  <= std_logic_vector(to_unsigned(register_no, 8));
      WData   <= std_logic_vector(to_unsigned(data, 32));
      WStrb   <= strobes;
      BReady  <= '1';
      end_v   := cycle_v + 3000;
      loop
        step;
        if AwValid = '1' and AwReady = '1' then
          AwValid <= '0';
        end if;
        if WValid = '1' and WReady = '1' then
          WValid <= '0';
        end if;
        exit when BValid = '1' and BReady = '1';
        check(cycle_v < end_v, "a register takes no end");
      end loop;
      BReady <= '0';
      resp_v := BResp;
    end procedure;

    procedure read (register_no : natural) is
    begin
      LArValid <= '1';
      LArAddr  <= std_logic_vector(to_unsigned(register_no, 8));
      LRReady  <= '1';
      loop
        step;
        if LArValid = '1' and LArReady = '1' then
          LArValid <= '0';
        end if;
        exit when LRValid = '1';
      end loop;
      LRReady <= '0';
      resp_v := LRResp;
      data_v := to_integer(unsigned(LRData));
    end procedure;

    -- From now on a page may be this too.
    procedure becomes (page : natural; known : Known_t) is
    begin
      last_v(page) := last_v(page) + 1;
      history_v(page)(last_v(page) mod 256) := known;
    end procedure;

    procedure tabulate (page : natural; known : Known_t) is
      variable word_v : Word_t := (others => '0');
    begin
      word_v(0) := '1' when known.status = 0 else '0';
      word_v(1) := '1' when known.writes else '0';
      word_v(2) := '1';
      word_v(15 downto 12) := std_logic_vector(to_unsigned(known.memory, 4));
      word_v(63 downto 32) := std_logic_vector(to_unsigned(known.frame, 32));
      Memory.write(PerRoot_c + page, word_v);
      table_v(page) := known;
    end procedure;

    -- The words of a directory and of an entry of the driver's.
    function directory (number : natural) return Word_t is
      variable word_v : Word_t := (others => '0');
    begin
      word_v(0)  := '1';
      word_v(16) := '1';
      word_v(63 downto 32) := std_logic_vector(to_unsigned(number, 32));
      return word_v;
    end function;

    -- Of pages that may be written to some are not dirty, and of those that are not mapped some are not accessed: who
    -- has the tables is to set that.
    impure function driverWord (known : Known_t; size : natural) return Word_t is
      variable word_v : Word_t := (others => '0');
    begin
      if known.status = 0 or random_v.chance(50) then
        word_v(0) := '1';
        word_v(3) := '1' when known.status = 0 else '0';
      end if;
      word_v(1) := '1' when known.writes or random_v.chance(50) else '0';
      word_v(4) := '1' when known.writes or (word_v(1) = '0' and random_v.chance(50)) else '0';
      word_v(2) := '1' when known.memory = 0 else '0';
      word_v(9 downto 5) := std_logic_vector(to_unsigned(size, 5));
      word_v(63 downto 32) := std_logic_vector(to_unsigned(known.frame, 32));
      return word_v;
    end function;

    impure function driverKnown return Known_t is
      variable known_v : Known_t;
    begin
      known_v := (0, random_v.chance(70), 0, random_v.pick(4096));
      known_v.memory := 15 when random_v.chance(30) else 0;
      known_v.status := 1 when random_v.chance(20) else 0;
      return known_v;
    end function;

    procedure tabulateDriver (page : natural; known : Known_t) is
    begin
      Memory.write((LeafTable_c + groupOf(page)) * PerTable_c + placeOf(page) mod PerTable_c, driverWord(known, 0));
      table_v(page) := known;
    end procedure;

    -- What the driver's tables say of a page.
    impure function walked (page : natural) return Known_t is
      variable known_v : Known_t := (1, false, 0, 0);
    begin
      if not isRooted_v then
        return known_v;
      end if;
      case links_v(groupOf(page)) is
        when IsNothing =>
          null;
        when IsTable =>
          known_v := table_v(page);
        when IsRun =>
          known_v := run_v;
          known_v.frame := run_v.frame + placeOf(page) mod PerTable_c;
        when IsWrong =>
          known_v.status := 4;
      end case;
      return known_v;
    end function;

    -- The driver's pages of a branch, or all of them, are as their tables say now.
    procedure follow (branch : integer) is
    begin
      for page in Pages_c to All_c - 1 loop
        if branch < 0 or groupOf(page) = branch then
          becomes(page, walked(page));
        end if;
      end loop;
    end procedure;

    procedure link (branch : natural; kind : Link_t) is
      constant Place_c : natural := MidTable_c * PerTable_c + GroupPlaces_c(branch);
    begin
      links_v(branch) := kind;
      case kind is
        when IsNothing =>
          Memory.write(Place_c, (others => '0'));
        when IsTable =>
          Memory.write(Place_c, directory(LeafTable_c + branch));
        when IsRun =>
          run_v       := driverKnown;
          run_v.status := 0;
          run_v.frame := PerTable_c * random_v.pick(8);
          Memory.write(Place_c, driverWord(run_v, 9));
        when IsWrong =>
          -- A table beyond the memory, and a run that is not aligned.
          if random_v.chance(50) then
            Memory.write(Place_c, directory(4096));
          else
            Memory.write(Place_c, driverWord((0, true, 0, 512 + 8), 9));
          end if;
      end case;
    end procedure;

    procedure rootSpace (levels, table : natural; valid : boolean) is
    begin
      write(SpaceRootLow_c, levels * 2 + boolean'pos(valid));
      write(SpaceRootHigh_c, table);
      check(resp_v = "00", "the root word");
    end procedure;

    -- An invalidation, and when it is answered nothing older counts for its pages than what was there when it began.
    procedure invalidate (firstPage, lastPage : natural) is
      variable from_v : Numbers_t;
    begin
      from_v := last_v;
      write(First_c, numberOf(firstPage));
      write(Last_c, numberOf(lastPage));
      if HasSpace_g and firstPage = 0 and lastPage = All_c - 1 then
        write(First_c, 0);
        write(Last_c, 2 ** SpaceBits_c - 1);
      end if;
      write(Command_c, Invalidate_c);
      check(resp_v = "00", "an invalidation");
      floor_v(firstPage to lastPage) := from_v(firstPage to lastPage);
    end procedure;

    -- An invalidation that is waited for: what was accepted before is in no memory any more.
    procedure drain (firstPage, lastPage : natural) is
      variable before_v : Counts_t;
    begin
      before_v := accepted_v;
      invalidate(firstPage, lastPage);
      loop
        read(Command_c);
        exit when data_v = 0;
      end loop;
      for d in Direction_t loop
        for i in over_v(d) to before_v(d) - 1 loop
          check(queues_v(d)(i mod 256).where /= InMemory, "a burst of before an invalidation that is done");
          -- Its record may still be to come.
          queues_v(d)(i mod 256).stays := true;
        end loop;
      end loop;
    end procedure;

    -- A run of frames of memory 5 from 100 on is put in.
    procedure insert (firstPage, lastPage : natural) is
    begin
      for page in firstPage to lastPage loop
        becomes(page, (0, true, 5, 100 + page));
      end loop;
      write(First_c, numberOf(firstPage));
      write(Last_c, numberOf(lastPage));
      write(Frame_c, 100 + firstPage);
      write(Command_c, Insert_c + 16 + 5 * 256);
      check(resp_v = "00", "a command");
      -- Bursts of before may find what the tables say beneath it.
      drain(firstPage, lastPage);
    end procedure;

    procedure removeAll is
    begin
      for page in 0 to Pages_c - 1 loop
        becomes(page, table_v(page));
      end loop;
      write(First_c, numberOf(0));
      write(Last_c, numberOf(Pages_c - 1));
      write(Command_c, Remove_c);
      check(resp_v = "00", "a command");
      invalidate(0, Pages_c - 1);
    end procedure;

    -- One word of the driver's tables changes, on some level.
    procedure changeSpace is
      variable page_v  : natural;
      variable group_v : natural;
      variable link_v  : Link_t;
    begin
      if random_v.chance(60) then
        page_v := Pages_c + random_v.pick(Drivers_c);
        tabulateDriver(page_v, driverKnown);
        becomes(page_v, walked(page_v));
        invalidate(page_v, page_v);
      elsif random_v.chance(80) then
        group_v := random_v.pick(Groups_c);
        link_v  := IsTable;
        if random_v.chance(70) then
          link_v := Link_t'val(random_v.pick(4));
        end if;
        -- Only the pages of one table are a run, or known to have none.
        if group_v < 3 and link_v /= IsTable then
          link_v := IsNothing;
        end if;
        link(group_v, link_v);
        follow(group_v);
        if group_v = 0 then
          invalidate(Pages_c, Pages_c + 7);
          invalidate(Before_c, Before_c + 3);
        elsif group_v = 3 then
          invalidate(Pages_c + 16, Pages_c + 23);
        else
          invalidate(Pages_c + 4 + 4 * group_v, Pages_c + 7 + 4 * group_v);
        end if;
      else
        isRooted_v := not isRooted_v;
        follow(-1);
        rootSpace(Levels_c + boolean'pos(random_v.chance(50)), 0, false);
        if isRooted_v then
          if random_v.chance(50) then
            rootSpace(Levels_c, TopTable_c, true);
          else
            rootSpace(Levels_c + 1, HighTable_c, true);
          end if;
        end if;
        invalidate(0, All_c - 1);
      end if;
    end procedure;

    procedure ask (d : Direction_t; page : natural) is
    begin
      offer(d, inPage(page));
      settle;
    end procedure;

  begin
    random_v.seed(Seed_g, 99);
    test_runner_setup(runner, runner_cfg);
    for page in 0 to Pages_c - 1 loop
      tabulate(page, (boolean'pos(page mod 11 = 7), page mod 5 /= 4, 1 + page mod 3, 8 * page));
      history_v(page)(0) := table_v(page);
    end loop;
    for page in Pages_c to All_c - 1 loop
      tabulateDriver(page, (0, true, 0, 1000 + 3 * page));
      history_v(page)(0) := table_v(page);
    end loop;
    Memory.write(HighTable_c * PerTable_c, directory(TopTable_c));
    Memory.write(TopTable_c * PerTable_c
      + to_integer(Space_c(AddrBits_c - 1 downto PageBits_c)) / PerTable_c / PerTable_c, directory(MidTable_c));
    for branch in 0 to Groups_c - 1 loop
      link(branch, IsTable);
    end loop;
    for i in 1 to 4 loop
      wait until rising_edge(Clk);
    end loop;
    Rst <= '0';
    write(BaseLow_c, to_integer(resize(Base_c, 31)));
    write(BaseHigh_c, to_integer(Base_c(AddrBits_c - 1 downto 32)));
    if HasSpace_g then
      write(SpaceLow_c, 0);
      write(SpaceHigh_c, to_integer(Space_c(AddrBits_c - 1 downto 32)));
      rootSpace(Levels_c, TopTable_c, true);
    end if;
    write(RootIndex_c, 0);
    for i in 0 to 2 ** RootBits_c - 1 loop
      write(RootLow_c, 16#10001#);
      write(RootHigh_c, i + 1);
      check(resp_v = "00", "a word of the root");
    end loop;

    while test_suite loop

      if run("random bursts of both, changes, runs and invalidations under stalls") then
        traffic_v := true;
        awaits_v := Stall_g > 50;
        while changes_v < 240 or accepted_v(Reader_c) <= 1000 or accepted_v(Writer_c) <= 1000 loop
          for i in 1 to random_v.pick(60) loop
            step;
          end loop;
          changes_v := changes_v + 1;
          if not isPut_v and random_v.chance(20) then
            page_v := random_v.pick(6);
            insert(page_v, page_v + random_v.pick(4));
            isPut_v := true;
          elsif isPut_v and random_v.chance(40) then
            removeAll;
            isPut_v := false;
          elsif HasSpace_g and random_v.chance(50) then
            changeSpace;
          else
            page_v := random_v.pick(6) when random_v.chance(60) else random_v.pick(Pages_c);
            tabulate(page_v, (boolean'pos(random_v.chance(20)), random_v.chance(70), 1 + random_v.pick(3),
              8 * page_v + random_v.pick(8)));
            if history_v(page_v)(last_v(page_v) mod 256).memory /= 5 then
              becomes(page_v, table_v(page_v));
            end if;
            if random_v.chance(40) then
              drain(page_v, page_v);
            else
              invalidate(page_v, page_v);
            end if;
          end if;
        end loop;
        traffic_v := false;
        settle;
        for d in Direction_t loop
          check(faults_v(d) > 50, "faults: " & to_string(faults_v(d)) & " of " & to_string(accepted_v(d)));
          check_equal(records_v(d), faults_v(d), "a record for each");
        end loop;
        check(runs_v > 50, "pages of runs: " & to_string(runs_v));
        read(Evictions_c);
        check(resp_v = "00" and data_v = 0, "a run has room");

      elsif run("cycles of what is held, of the L2 TLB, of a run and of a miss") then
        memory_v := Latency_c;
        for page in 0 to Entries_g loop
          ask(Reader_c, page);
          if page = 0 then
            -- For scripts/rtl/report.sh.
            info("a miss of an idle MMU of readers and writers: " & to_string(latency_v(Reader_c))
              & " cycles to its place, " & to_string(first_v) & " to data");
          end if;
          check(latency_v(Reader_c) <= Latency_c + 8, "a miss");
          check_equal(first_v, latency_v(Reader_c) + Latency_c, "data come as the memory has them");
        end loop;
        reads_v := Reads;
        -- The translator has lost it.
        ask(Reader_c, 0);
        info("a page of the L2 TLB: " & to_string(latency_v(Reader_c)) & " cycles");
        check(latency_v(Reader_c) <= 8, "a page of the L2 TLB");
        ask(Reader_c, 0);
        check(latency_v(Reader_c) <= 2, "a page that is held");
        -- What the reader has walked for is there for the writer.
        ask(Writer_c, 1);
        check(latency_v(Writer_c) <= 8, "a page of the L2 TLB");
        check_equal(Reads, reads_v, "reads");
        insert(16, 17);
        -- Until it is put in.
        for i in 1 to 20 loop
          step;
        end loop;
        ask(Writer_c, 17);
        info("a page of a run: " & to_string(latency_v(Writer_c)) & " cycles");
        check(latency_v(Writer_c) <= 8, "a page of a run");
        check_equal(runs_v, 1, "a page of a run");
        check_equal(Reads, reads_v, "reads");

      elsif run("a page of the driver's, its table, a run, and numbers of more levels") and HasSpace_g then
        memory_v := Latency_c;
        ask(Reader_c, Pages_c);
        info("a page of the driver's: " & to_string(latency_v(Reader_c)) & " cycles to its place");
        -- A read each level, and no more than the window's for the last.
        check_equal(Reads, Levels_c, "reads");
        check(latency_v(Reader_c) <= Levels_c * (Latency_c + 4) + 14, "a miss in three levels");
        reads_v := Reads;
        ask(Writer_c, Pages_c + 7);
        check(Reads - reads_v <= 1, "its table is held");
        info("one whose table is held: " & to_string(latency_v(Writer_c)) & " cycles");
        check(latency_v(Writer_c) <= Latency_c + 8, "a miss in a table that is held");
        -- The window's pages are the allocator's, between the driver's of the same table; nobody reads ahead from one
        -- into the other.
        ask(Reader_c, Before_c + 2);
        ask(Reader_c, Before_c + 3);
        ask(Reader_c, 0);
        ask(Reader_c, Pages_c - 2);
        ask(Reader_c, Pages_c - 1);
        ask(Reader_c, Pages_c + 8);
        ask(Writer_c, Pages_c + 12);
        link(3, IsRun);
        follow(3);
        invalidate(Pages_c + 16, Pages_c + 23);
        reads_v := Reads;
        ask(Reader_c, Pages_c + 16);
        check_equal(Reads - reads_v, Levels_c - 1, "reads for a run");
        -- A level more, whose first table leads to the one on top of before.
        rootSpace(Levels_c + 1, HighTable_c, true);
        invalidate(0, All_c - 1);
        reads_v := Reads;
        ask(Reader_c, Pages_c + 16);
        check_equal(Reads - reads_v, Levels_c, "reads for a run");
        check_equal(faults_v(Reader_c), 0, "faults");
        -- A level less than the page's number has.
        rootSpace(Levels_c - 1, MidTable_c, true);
        isRooted_v := false;
        follow(-1);
        invalidate(0, All_c - 1);
        reads_v := Reads;
        ask(Reader_c, Pages_c + 16);
        ask(Writer_c, Pages_c);
        check_equal(Reads, reads_v, "reads");
        check_equal(records_v(Reader_c), 1, "a record of a page without a table");
        check_equal(records_v(Writer_c), 1, "a record of a page without a table");
        -- A memory that fails above the leaf level.
        rootSpace(Levels_c, TopTable_c, true);
        Memory.spoil(TopTable_c * PerTable_c + 140, true);
        for page in Pages_c to All_c - 1 loop
          becomes(page, (3, false, 0, 0));
        end loop;
        invalidate(0, All_c - 1);
        ask(Reader_c, Pages_c);
        check_equal(records_v(Reader_c), 2, "a record of a walk that failed");
        Memory.spoil(TopTable_c * PerTable_c + 140, false);
        isRooted_v := true;
        follow(-1);
        ask(Reader_c, Pages_c);
        check_equal(records_v(Reader_c), 2, "it is walked for again");

      elsif run("what is no register, no whole word and no command is refused, and nothing happens") then
        ask(Writer_c, 1);
        write(64, 1);
        check(resp_v = "10", "no register");
        write(First_c, 9, "0111");
        check(resp_v = "10", "a part of a word");
        write(First_c, numberOf(3));
        write(Last_c, numberOf(1));
        write(Command_c, Invalidate_c);
        check(resp_v = "10", "pages that are none");
        write(Frame_c, 77);
        write(Command_c, Insert_c + 16);
        check(resp_v = "10", "pages that are none");
        read(64);
        check(resp_v = "10", "no register");
        reads_v := Reads;
        ask(Writer_c, 1);
        check_equal(Reads, reads_v, "it is held");
        check(latency_v(Writer_c) <= 2, "it is held");
        write(First_c, numberOf(1));
        write(Command_c, Invalidate_c);
        check(resp_v = "00", "an invalidation");
        for i in 1 to 4 loop
          step;
        end loop;
        read(Command_c);
        check(resp_v = "00" and data_v = 0, "it is done");
        ask(Writer_c, 1);
        check(latency_v(Writer_c) > 8, "a miss");

      end if;

    end loop;

    test_runner_cleanup(runner);
  end process;

  test_runner_watchdog(runner, 10 ms);

  i_mmu : entity work.mmu_top
    generic map (
      AddrBits_g  => AddrBits_c,
      PhysBits_g  => PhysBits_c,
      PageBits_g  => PageBits_c,
      RootBits_g  => RootBits_c,
      LeafBits_g  => LeafBits_c,
      IdBits_g    => IdBits_c,
      Entries_g   => Entries_g,
      Slots_g     => Slots_g,
      Bursts_g    => Bursts_g,
      SetBits_g   => SetBits_g,
      Ways_g      => Ways_g,
      EpochBits_g => 4,
      Flexible_g  => Flexible_g,
      RunBits_g   => 4,
      DataBits_g  => DataBits_g,
      Lines_g     => 3,
      AheadFrom_g => 1,
      SpaceBits_g => SpaceBits_c,
      HeldBits_g  => 1
    )
    port map (
      Clk            => Clk,
      Rst            => Rst,
      S_Ar_Valid     => SValid(Reader_c),
      S_Ar_Ready     => SReady(Reader_c),
      S_Ar_Addr      => SAddr(Reader_c),
      S_Ar_Id        => SId(Reader_c),
      S_Ar_Len       => SLen(Reader_c),
      S_Ar_Size      => SSize(Reader_c),
      S_Ar_Burst     => SBurst(Reader_c),
      M_Ar_Valid     => MValid(Reader_c),
      M_Ar_Ready     => MReady(Reader_c),
      M_Ar_Addr      => MAddr(Reader_c),
      M_Ar_Id        => MId(Reader_c),
      M_Ar_Len       => MLen(Reader_c),
      M_Ar_Size      => MSize(Reader_c),
      M_Ar_Burst     => MBurst(Reader_c),
      M_Ar_InWindow  => MInWindow(Reader_c),
      M_Ar_Memory    => MMemory(Reader_c),
      M_R_Valid      => MRValid,
      M_R_Ready      => MRReady,
      M_R_Id         => MRId,
      M_R_Data       => MRData,
      M_R_Resp       => MRResp,
      M_R_Last       => MRLast,
      S_R_Valid      => SRValid,
      S_R_Ready      => SRReady,
      S_R_Id         => SRId,
      S_R_Data       => SRData,
      S_R_Resp       => SRResp,
      S_R_Last       => SRLast,
      S_Aw_Valid     => SValid(Writer_c),
      S_Aw_Ready     => SReady(Writer_c),
      S_Aw_Addr      => SAddr(Writer_c),
      S_Aw_Id        => SId(Writer_c),
      S_Aw_Len       => SLen(Writer_c),
      S_Aw_Size      => SSize(Writer_c),
      S_Aw_Burst     => SBurst(Writer_c),
      M_Aw_Valid     => MValid(Writer_c),
      M_Aw_Ready     => MReady(Writer_c),
      M_Aw_Addr      => MAddr(Writer_c),
      M_Aw_Id        => MId(Writer_c),
      M_Aw_Len       => MLen(Writer_c),
      M_Aw_Size      => MSize(Writer_c),
      M_Aw_Burst     => MBurst(Writer_c),
      M_Aw_InWindow  => MInWindow(Writer_c),
      M_Aw_Memory    => MMemory(Writer_c),
      S_W_Valid      => SWValid,
      S_W_Ready      => SWReady,
      S_W_Data       => SWData,
      S_W_Strb       => (others => '1'),
      S_W_Last       => SWLast,
      M_W_Valid      => MWValid,
      M_W_Ready      => MWReady,
      M_W_Data       => MWData,
      M_W_Strb       => open,
      M_W_Last       => MWLast,
      M_B_Valid      => MBValid,
      M_B_Ready      => MBReady,
      M_B_Id         => MBId,
      M_B_Resp       => MBResp,
      S_B_Valid      => SBValid,
      S_B_Ready      => SBReady,
      S_B_Id         => SBId,
      S_B_Resp       => SBResp,
      Fault_Valid    => FaultValid,
      Fault_Ready    => FaultReady,
      Fault_Write    => FaultWrite(0),
      Fault_Id       => FaultId,
      Fault_Status   => FaultStatus,
      Fault_Addr     => FaultAddr,
      Ticket         => (others => '0'),
      Touch_Valid    => open,
      Touch_Ready    => '0',
      Touch_Page     => open,
      Touch_Write    => open,
      Touch_Seen     => open,
      Touch_Word     => open,
      Touch_Ticket   => open,
      Found_Valid    => '0',
      Found_Ready    => open,
      Found_Status   => "000",
      Found_Writable => '0',
      Found_Memory   => (others => '0'),
      Found_Size     => (others => '0'),
      Found_Frame    => (others => '0'),
      Gate_Page      => open,
      Gate_Closed    => '0',
      Root_Valid     => '0',
      Root_Ready     => open,
      Root_Index     => (others => '0'),
      Root_Word      => (others => '0'),
      Inval_Valid    => '0',
      Inval_Ready    => open,
      Inval_First    => (others => '0'),
      Inval_Last     => (others => '0'),
      Inval_Done     => open,
      Lite_AwValid   => AwValid,
      Lite_AwReady   => AwReady,
      Lite_AwAddr    => AwAddr,
      Lite_WValid    => WValid,
      Lite_WReady    => WReady,
      Lite_WData     => WData,
      Lite_WStrb     => WStrb,
      Lite_BValid    => BValid,
      Lite_BReady    => BReady,
      Lite_BResp     => BResp,
      Lite_ArValid   => LArValid,
      Lite_ArReady   => LArReady,
      Lite_ArAddr    => LArAddr,
      Lite_RValid    => LRValid,
      Lite_RReady    => LRReady,
      Lite_RData     => LRData,
      Lite_RResp     => LRResp,
      Axi_ArValid    => ArValid,
      Axi_ArReady    => ArReady,
      Axi_ArAddr     => ArAddr,
      Axi_ArLen      => ArLen,
      Axi_ArSize     => ArSize,
      Axi_ArBurst    => ArBurst,
      Axi_RValid     => RValid,
      Axi_RReady     => RReady,
      Axi_RData      => RData,
      Axi_RResp      => RResp
    );

  i_memory : entity work.axi_read_memory
    generic map (
      AddrBits_g => PhysBits_c,
      DataBits_g => DataBits_g,
      Latency_g  => Latency_c,
      Stall_g    => Stall_g,
      Seed_g     => Seed_g
    )
    port map (
      Clk     => Clk,
      ArValid => ArValid,
      ArReady => ArReady,
      ArAddr  => ArAddr,
      RValid  => RValid,
      RReady  => RReady,
      RData   => RData,
      RResp   => RResp
    );

end architecture;
