-- Bench of the MMU of readers and writers with an allocator: pages are allocated and freed while both directions reach
-- for pages of all kinds, under stalls.
--
-- A page that is allocated all the time from the acceptance of a burst to its end is found, in the frame that its table
-- says; a page that is free all that time is an error. Single beats of one id, so answers are in order.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library vunit_lib;
  context vunit_lib.vunit_context;

library work;
  use work.alloc_pkg.AllocCommand_t;
  use work.alloc_pkg.AllocFree_c;
  use work.alloc_pkg.AllocMalloc_c;
  use work.alloc_pkg.Beat_t;
  use work.random_pkg.all;
  use work.table_memory_pkg.all;

entity tb_mmu_touch is
  generic (
    runner_cfg : string;
    Entries_g  : positive := 3;
    Slots_g    : positive := 4;
    DataBits_g : positive := 256;
    Stall_g    : natural := 0;
    Seed_g     : positive := 5
  );
end entity;

architecture sim of tb_mmu_touch is

  constant AddrBits_c   : positive := 40;
  constant PhysBits_c   : positive := 20;
  constant PageBits_c   : positive := 12;
  constant RootBits_c   : positive := 2;
  constant LeafBits_c   : positive := 5;
  constant WindowBits_c : positive := RootBits_c + LeafBits_c;
  constant Pages_c      : positive := 2 ** WindowBits_c;
  constant FrameBits_c  : positive := PhysBits_c - PageBits_c;
  constant StoreBits_c  : positive := 7;
  constant Frames_c     : positive := 100;
  constant IdBits_c     : positive := 2;
  constant TicketBits_c : positive := 24;
  constant Latency_c    : positive := 71;
  constant Period_c     : time := 4 ns;
  constant Base_c       : unsigned(AddrBits_c - 1 downto 0) := x"2300180000";
  -- The window lies in the driver's space, of which nothing is mapped; the page right behind it is the driver's.
  constant SpaceBits_c  : positive := 18;
  constant Driver_c     : natural := Pages_c;

  constant Reader_c : natural := 0;
  constant Writer_c : natural := 1;

  subtype Direction_t is natural range Reader_c to Writer_c;

  subtype Addr_t is std_logic_vector(AddrBits_c - 1 downto 0);
  subtype Page_t is std_logic_vector(WindowBits_c - 1 downto 0);

  type Addrs_t is array (Direction_t) of Addr_t;

  signal Clk         : std_logic := '0';
  signal Rst         : std_logic := '1';
  signal SValid      : std_logic_vector(1 downto 0) := "00";
  signal SReady      : std_logic_vector(1 downto 0);
  signal SAddr       : Addrs_t := (others => (others => '0'));
  signal MValid      : std_logic_vector(1 downto 0);
  signal MReady      : std_logic_vector(1 downto 0) := "00";
  signal MAddr       : Addrs_t;
  signal MInWindow   : std_logic_vector(1 downto 0);
  -- Answers of memories, and what readers and writers get
  signal BackValid   : std_logic_vector(1 downto 0) := "00";
  signal BackReady   : std_logic_vector(1 downto 0);
  signal EndValid    : std_logic_vector(1 downto 0);
  signal EndReady    : std_logic_vector(1 downto 0) := "00";
  signal ReadResp    : std_logic_vector(1 downto 0);
  signal WriteResp   : std_logic_vector(1 downto 0);
  signal WValid      : std_logic := '0';
  signal WReady      : std_logic;
  signal MWValid     : std_logic;
  signal MWReady     : std_logic := '0';
  signal LAwValid    : std_logic := '0';
  signal LAwReady    : std_logic;
  signal LAwAddr     : std_logic_vector(7 downto 0) := (others => '0');
  signal LWData      : std_logic_vector(31 downto 0) := (others => '0');
  signal LBValid     : std_logic;
  -- Lines of tables
  signal LineArValid : std_logic;
  signal LineArReady : std_logic;
  signal LineArAddr  : std_logic_vector(PhysBits_c - 1 downto 0);
  signal LineRValid  : std_logic;
  signal LineRReady  : std_logic;
  signal LineRData   : std_logic_vector(DataBits_g - 1 downto 0);
  signal LineRResp   : std_logic_vector(1 downto 0);
  -- Commands
  signal CmdValid    : std_logic := '0';
  signal CmdReady    : std_logic;
  signal CmdWhat     : AllocCommand_t := AllocMalloc_c;
  signal CmdBytes    : std_logic_vector(63 downto 0) := (others => '0');
  signal CmdAddr     : Addr_t := (others => '0');
  signal CmdWritable : std_logic := '0';
  signal CmdLazy     : std_logic := '0';
  signal RespValid   : std_logic;
  signal RespReady   : std_logic := '0';
  signal RespStatus  : std_logic_vector(3 downto 0);
  signal RespAddr    : Addr_t;
  -- Between the two
  signal Ticket      : std_logic_vector(TicketBits_c - 1 downto 0);
  signal TouchValid  : std_logic;
  signal TouchReady  : std_logic;
  signal TouchPage   : Page_t;
  signal TouchWrite  : std_logic;
  signal TouchSeen   : std_logic;
  signal TouchWord   : TableWord_t;
  signal TouchTicket : std_logic_vector(TicketBits_c - 1 downto 0);
  signal FoundValid  : std_logic;
  signal FoundReady  : std_logic;
  signal FoundStatus : std_logic_vector(2 downto 0);
  signal FoundWrites : std_logic;
  signal FoundMemory : std_logic_vector(3 downto 0);
  signal FoundSize   : std_logic_vector(4 downto 0);
  signal FoundStore  : std_logic_vector(StoreBits_c - 1 downto 0);
  signal FoundFrame  : std_logic_vector(FrameBits_c - 1 downto 0);
  signal GatePage    : Page_t;
  signal GateClosed  : std_logic;
  signal RootValid   : std_logic;
  signal RootReady   : std_logic;
  signal RootIndex   : std_logic_vector(RootBits_c - 1 downto 0);
  signal RootWord    : TableWord_t;
  signal InvalValid  : std_logic;
  signal InvalReady  : std_logic;
  signal InvalFirst  : Page_t;
  signal InvalLast   : Page_t;
  signal InvalDone   : std_logic;
  signal TAwValid    : std_logic;
  signal TAwReady    : std_logic;
  signal TAwAddr     : std_logic_vector(PhysBits_c - 1 downto 0);
  signal TWValid     : std_logic;
  signal TWReady     : std_logic;
  signal TWData      : Beat_t;
  signal TWStrb      : std_logic_vector(Beat_t'length / 8 - 1 downto 0);
  signal TBValid     : std_logic;
  signal TBReady     : std_logic;
  signal TBResp      : std_logic_vector(1 downto 0);
  signal TArValid    : std_logic;
  signal TArReady    : std_logic;
  signal TArAddr     : std_logic_vector(PhysBits_c - 1 downto 0);
  signal TRValid     : std_logic;
  signal TRReady     : std_logic;
  signal TRData      : Beat_t;
  signal TRResp      : std_logic_vector(1 downto 0);
  signal Broken      : std_logic;
  -- Nothing is swept.
  signal Pause       : std_logic := '0';
  -- Words that the allocator has read.
  signal WordsRead   : natural := 0;

begin

  Clk <= not Clk after Period_c / 2;

  p_count : process (Clk) is
  begin
    if rising_edge(Clk) and TArValid = '1' and TArReady = '1' then
      WordsRead <= WordsRead + 1;
    end if;
  end process;

  p_test : process is
    type Use_t is (Free, Allocated, Changing);

    type Page_Record_t is record
      state   : Use_t;
      -- Counts what becomes of it.
      version : natural;
      writes  : boolean;
    end record;

    type Pages_t is array (0 to Driver_c) of Page_Record_t;

    type Allocation_t is record
      first : natural;
      pages : natural;
    end record;

    type Allocations_t is array (0 to 63) of Allocation_t;

    type Burst_t is record
      page    : natural;
      state   : Use_t;
      version : natural;
      frame   : integer;
      cycle   : natural;
    end record;

    type Bursts_t is array (0 to 255) of Burst_t;

    type Queues_t is array (Direction_t) of Bursts_t;

    type Counts_t is array (Direction_t) of natural;

    -- What the end of a burst says, if its page was the same all the time: that what is free is refused, that what may
    -- only be read is not written to, that what is allocated is found.
    type Said_t is (FreeRefused, ReadOnlyRefused, AllocatedFound);

    type Saids_t is array (Direction_t, Said_t) of natural;

    type Roots_t is array (0 to 2 ** RootBits_c - 1) of TableWord_t;

    variable pages_v    : Pages_t := (others => (Free, 0, false));
    variable held_v     : Allocations_t;
    variable count_v    : natural := 0;
    variable live_v     : natural := 0;
    variable queues_v   : Queues_t;
    variable accepted_v : Counts_t := (others => 0);
    variable offered_v  : Counts_t := (others => 0);
    variable due_v      : Counts_t := (others => 0);
    variable ended_v    : Counts_t := (others => 0);
    variable latency_v  : Counts_t := (others => 0);
    variable found_v    : Counts_t := (others => 0);
    variable refused_v  : Counts_t := (others => 0);
    variable said_v     : Saids_t := (others => (others => 0));
    variable sent_v     : natural := 0;
    variable wrote_v    : natural := 0;
    variable cycle_v    : natural := 0;
    variable progress_v : natural := 0;
    variable traffic_v  : boolean := false;
    variable random_v   : Random_t;
    variable roots_v    : Roots_t := (others => (others => '0'));
    -- The command that is under way: how many pages it asks for, 0 if it frees; what it says of writes.
    variable command_v  : boolean := false;
    variable asked_v    : natural;
    variable writes_v   : boolean;
    variable freed_v    : Allocation_t;
    variable page_v     : natural;
    variable done_v     : natural := 0;
    variable touch_v    : natural;
    variable walk_v     : natural;
    variable reads_v    : natural;
    variable ops_v      : natural := 0;

    -- The frame that a page's table says, or -1.
    impure function frameOf (page : natural) return integer is
      variable word_v : TableWord_t;
      variable root_v : TableWord_t;
    begin
      root_v := roots_v(page / 2 ** LeafBits_c);
      if root_v(0) /= '1' then
        return -1;
      elsif root_v(16) = '0' then
        -- A run of all pages of the region.
        return to_integer(unsigned(root_v(50 downto 32))) + page mod 2 ** LeafBits_c;
      end if;
      word_v := Tables.read(to_integer(unsigned(root_v(50 downto 32))) * 2 ** LeafBits_c + page mod 2 ** LeafBits_c);
      if word_v(0) /= '1' then
        return -1;
      end if;
      return to_integer(unsigned(word_v(50 downto 32)));
    end function;

    procedure offer (d : Direction_t; page : natural) is
    begin
      SValid(d) <= '1';
      -- The number of the burst is in it.
      SAddr(d)  <= std_logic_vector(Base_c + page * 2 ** PageBits_c + offered_v(d) mod 256);
      offered_v(d) := offered_v(d) + 1;
    end procedure;

    -- A burst is over, with an error or in a frame: what its page has been all the time says which.
    procedure checkEnd (d : Direction_t; is_error : boolean) is
      variable burst_v : Burst_t;
      variable page_v  : Page_Record_t;
    begin
      check(ended_v(d) < accepted_v(d), "an answer to nobody");
      burst_v := queues_v(d)(ended_v(d) mod 256);
      page_v  := pages_v(burst_v.page);
      ended_v(d) := ended_v(d) + 1;
      progress_v := cycle_v;
      check(is_error = (burst_v.frame < 0), "what went on is no error");
      if is_error then
        refused_v(d) := refused_v(d) + 1;
      else
        found_v(d) := found_v(d) + 1;
      end if;
      if page_v.version = burst_v.version and burst_v.state /= Changing then
        if burst_v.state = Free then
          said_v(d, FreeRefused) := said_v(d, FreeRefused) + 1;
          check(is_error, "a free page is found: " & to_string(burst_v.page));
        elsif d = Writer_c and not page_v.writes then
          said_v(d, ReadOnlyRefused) := said_v(d, ReadOnlyRefused) + 1;
          check(is_error, "a page is written to that may only be read");
        else
          said_v(d, AllocatedFound) := said_v(d, AllocatedFound) + 1;
          check(not is_error, "an allocated page is not found: " & to_string(burst_v.page));
          check(burst_v.frame = frameOf(burst_v.page), "page " & to_string(burst_v.page) & " is in frame "
            & to_string(frameOf(burst_v.page)) & ", not in " & to_string(burst_v.frame));
        end if;
      end if;
    end procedure;

    procedure change (page : natural; state : Use_t) is
    begin
      pages_v(page).state := state;
      pages_v(page).version := pages_v(page).version + 1;
    end procedure;

    -- Pages that are free may be the ones.
    procedure beginMalloc (pages : positive; writable, lazy : boolean) is
    begin
      for page in 0 to Pages_c - 1 loop
        if pages_v(page).state = Free then
          change(page, Changing);
        end if;
      end loop;
      asked_v     := pages;
      CmdValid    <= '1';
      CmdWhat     <= AllocMalloc_c;
      CmdBytes    <= std_logic_vector(to_unsigned(pages * 2 ** PageBits_c - 5, 64));
      CmdWritable <= '1' when writable else '0';
      CmdLazy     <= '1' when lazy else '0';
      writes_v    := writable;
      command_v   := true;
    end procedure;

    procedure beginFree (n : natural) is
    begin
      asked_v := 0;
      freed_v := held_v(n);
      for page in freed_v.first to freed_v.first + freed_v.pages - 1 loop
        change(page, Changing);
      end loop;
      count_v   := count_v - 1;
      held_v(n) := held_v(count_v);
      CmdValid  <= '1';
      CmdWhat   <= AllocFree_c;
      CmdAddr   <= std_logic_vector(Base_c + freed_v.first * 2 ** PageBits_c);
      command_v := true;
    end procedure;

    procedure endCommand is
      variable first_v : natural;
    begin
      check_equal(RespStatus, std_logic_vector'(x"0"), "a command");
      command_v := false;
      ops_v := ops_v + 1;
      if asked_v = 0 then
        for page in freed_v.first to freed_v.first + freed_v.pages - 1 loop
          change(page, Free);
        end loop;
        live_v := live_v - freed_v.pages;
        return;
      end if;
      first_v := to_integer(unsigned(RespAddr) - Base_c) / 2 ** PageBits_c;
      for page in first_v to first_v + asked_v - 1 loop
        check(pages_v(page).state = Changing, "a page is allocated twice: " & to_string(page));
        change(page, Allocated);
        pages_v(page).writes := writes_v;
      end loop;
      for page in 0 to Pages_c - 1 loop
        if pages_v(page).state = Changing then
          change(page, Free);
        end if;
      end loop;
      held_v(count_v) := (first_v, asked_v);
      count_v := count_v + 1;
      live_v  := live_v + asked_v;
    end procedure;

    procedure step is
      variable i      : natural;
      variable page_v : natural;
    begin
      wait until rising_edge(Clk);
      cycle_v := cycle_v + 1;
      check(Broken = '0', "the memory has not failed");
      if RootValid = '1' and RootReady = '1' then
        roots_v(to_integer(unsigned(RootIndex))) := RootWord;
      end if;
      for d in Direction_t loop
        if EndValid(d) = '1' and EndReady(d) = '1' then
          checkEnd(d, (d = Reader_c and ReadResp = "10") or (d = Writer_c and WriteResp = "10"));
        end if;
        if MValid(d) = '1' and MReady(d) = '1' then
          check(MInWindow(d) = '1', "an address of the window");
          i := ended_v(d) + (to_integer(unsigned(MAddr(d)(7 downto 0))) + 256 - ended_v(d) mod 256) mod 256;
          check(i < accepted_v(d), "a burst that goes on");
          queues_v(d)(i mod 256).frame := to_integer(unsigned(MAddr(d)(PhysBits_c - 1 downto PageBits_c)));
          latency_v(d) := cycle_v - queues_v(d)(i mod 256).cycle;
          due_v(d) := due_v(d) + 1;
        end if;
        if BackValid(d) = '1' and BackReady(d) = '1' then
          due_v(d) := due_v(d) - 1;
        end if;
        if SValid(d) = '1' and SReady(d) = '1' then
          page_v := to_integer(unsigned(SAddr(d)) - Base_c) / 2 ** PageBits_c;
          queues_v(d)(accepted_v(d) mod 256) :=
            (page_v, pages_v(page_v).state, pages_v(page_v).version, -1, cycle_v);
          accepted_v(d) := accepted_v(d) + 1;
          SValid(d) <= '0';
        end if;
        if traffic_v and (SValid(d) = '0' or SReady(d) = '1') and random_v.chance(50)
          and offered_v(d) - ended_v(d) < 100 then
          page_v := 24 when random_v.chance(80) else Pages_c;
          page_v := random_v.pick(page_v);
          if random_v.chance(5) then
            page_v := Driver_c;
          end if;
          offer(d, page_v);
        end if;
        MReady(d)    <= '0' when random_v.chance(Stall_g) else '1';
        EndReady(d)  <= '0' when random_v.chance(Stall_g) else '1';
        BackValid(d) <= '1' when due_v(d) > 0 else '0';
      end loop;
      if WValid = '1' and WReady = '1' then
        sent_v := sent_v + 1;
      end if;
      if MWValid = '1' and MWReady = '1' then
        wrote_v := wrote_v + 1;
      end if;
      WValid  <= '1' when sent_v < offered_v(Writer_c) else '0';
      MWReady <= '0' when random_v.chance(Stall_g) else '1';
      -- A write has ended when its data are there too.
      if wrote_v <= done_v then
        BackValid(Writer_c) <= '0';
      end if;
      if BackValid(Writer_c) = '1' and BackReady(Writer_c) = '1' then
        done_v := done_v + 1;
        if wrote_v <= done_v then
          BackValid(Writer_c) <= '0';
        end if;
      end if;
      if CmdValid = '1' and CmdReady = '1' then
        CmdValid <= '0';
      end if;
      if RespValid = '1' and RespReady = '1' then
        endCommand;
      end if;
      RespReady <= '0' when random_v.chance(Stall_g) else '1';
      if traffic_v and not command_v and random_v.chance(10) then
        if count_v > 0 and (live_v > 24 or random_v.chance(40)) then
          beginFree(random_v.pick(count_v));
        else
          beginMalloc(1 + random_v.pick(4), random_v.chance(70), random_v.chance(70));
        end if;
      end if;
      check(ended_v = accepted_v or cycle_v - progress_v < 3000, "a burst without an answer");
    end procedure;

    procedure settle is
    begin
      step;
      while ended_v /= offered_v or command_v loop
        step;
      end loop;
      -- What is told of pages that became valid, and the background.
      for i in 1 to 400 loop
        step;
      end loop;
    end procedure;

    procedure ask (d : Direction_t; page : natural) is
    begin
      progress_v := cycle_v;
      offer(d, page);
      settle;
    end procedure;

    procedure write (register_no : natural; data : natural) is
    begin
      LAwValid <= '1';
      LAwAddr  <= std_logic_vector(to_unsigned(register_no, 8));
      LWData   <= std_logic_vector(to_unsigned(data, 32));
      loop
        step;
        if LAwValid = '1' and LAwReady = '1' then
          LAwValid <= '0';
        end if;
        exit when LBValid = '1';
      end loop;
    end procedure;

  begin
    random_v.seed(Seed_g, 17);
    test_runner_setup(runner, runner_cfg);
    for i in 1 to 4 loop
      wait until rising_edge(Clk);
    end loop;
    Rst <= '0';
    write(0, to_integer(resize(Base_c, 31)));
    write(4, to_integer(Base_c(AddrBits_c - 1 downto 32)));
    write(44, to_integer(Base_c(AddrBits_c - 1 downto 32)));
    -- The allocator clears its memories.
    for i in 1 to 2000 loop
      step;
    end loop;

    while test_suite loop

      if run("random bursts of both while pages are allocated and freed") then
        traffic_v  := true;
        progress_v := cycle_v;
        while ops_v < 80 or accepted_v(Reader_c) < 250 or accepted_v(Writer_c) < 250
          or (said_v(Writer_c, ReadOnlyRefused) < 20 and accepted_v(Writer_c) < 1000) loop
          step;
        end loop;
        traffic_v := false;
        settle;
        info("found " & to_string(found_v(Reader_c)) & " and " & to_string(found_v(Writer_c)) & ", refused "
          & to_string(refused_v(Reader_c)) & " and " & to_string(refused_v(Writer_c)) & ", "
          & to_string(cycle_v) & " cycles");
        for d in Direction_t loop
          check(found_v(d) > 50 and refused_v(d) > 50, "bursts of both kinds");
          for said in Said_t loop
            info(Said_t'image(said) & " in direction " & to_string(d) & ": " & to_string(said_v(d, said)));
            -- Everybody may read.
            check((said_v(d, said) > 15) = (d = Writer_c or said /= ReadOnlyRefused), "ends that say so");
          end loop;
        end loop;

      elsif run("what was freed is not found before it is swept either") then
        beginMalloc(4, true, false);
        settle;
        page_v := held_v(0).first;
        ask(Reader_c, page_v);
        check_equal(found_v(Reader_c), 1, "a page that is allocated");
        Pause <= '1';
        beginFree(0);
        settle;
        check(frameOf(page_v + 1) >= 0, "its word is not zero yet");
        for i in 0 to 3 loop
          ask(i mod 2, page_v + i);
        end loop;
        check(refused_v(Reader_c) = 2 and refused_v(Writer_c) = 2, "what was freed");

      elsif run("a large allocation is found by the root, and not when it is freed") then
        beginMalloc(2 ** LeafBits_c, true, false);
        settle;
        page_v := held_v(0).first;
        check_equal(page_v mod 2 ** LeafBits_c, 0, "a whole region");
        check(roots_v(page_v / 2 ** LeafBits_c)(0) = '1'
          and roots_v(page_v / 2 ** LeafBits_c)(16) = '0', "by the root");
        reads_v := WordsRead;
        for i in 0 to 6 loop
          ask(i mod 2, page_v + 5 * i);
        end loop;
        check_equal(found_v(Reader_c) + found_v(Writer_c), 7, "each page in its frame");
        check_equal(WordsRead, reads_v, "no word of a table is read");
        beginFree(0);
        settle;
        for i in 0 to 3 loop
          ask(i mod 2, page_v + 7 * i);
        end loop;
        check_equal(refused_v(Reader_c) + refused_v(Writer_c), 4, "what was freed");

      elsif run("a first touch through the whole chain takes 100 cycles beyond its walk at most") then
        beginMalloc(4, true, false);
        settle;
        beginMalloc(16, true, true);
        settle;
        page_v := held_v(1).first;
        -- A walk, with everything idle.
        ask(Reader_c, held_v(0).first);
        walk_v := latency_v(Reader_c);
        for i in 0 to 7 loop
          reads_v := WordsRead;
          ask(i mod 2, page_v + i);
          touch_v := latency_v(i mod 2);
          info("a walk: " & to_string(walk_v) & ", with a first touch: " & to_string(touch_v));
          check(touch_v <= walk_v + 100, "a first touch");
          check_equal(WordsRead, reads_v, "the word that the walk has seen is not read again");
          ask(Reader_c, page_v + i);
          check(latency_v(Reader_c) <= walk_v, "the page has its frame");
        end loop;
        check_equal(found_v(Reader_c) + found_v(Writer_c), 17, "all are found");
        -- A page that may only be read gets no frame because somebody writes.
        beginMalloc(1, false, true);
        settle;
        page_v := held_v(2).first;
        ask(Writer_c, page_v);
        check_equal(refused_v(Writer_c), 1, "a write");
        check_equal(frameOf(page_v), -1, "a page that nobody has read");
        ask(Reader_c, page_v);
        check_equal(refused_v(Reader_c), 0, "a read");
        -- Words that were touched have kept what marks their allocation.
        beginFree(1);
        settle;

      end if;

    end loop;

    test_runner_cleanup(runner);
  end process;

  test_runner_watchdog(runner, 10 ms);

  i_mmu : entity work.mmu_top
    generic map (
      AddrBits_g   => AddrBits_c,
      PhysBits_g   => PhysBits_c,
      PageBits_g   => PageBits_c,
      RootBits_g   => RootBits_c,
      LeafBits_g   => LeafBits_c,
      IdBits_g     => IdBits_c,
      Entries_g    => Entries_g,
      Slots_g      => Slots_g,
      Bursts_g     => 10,
      SetBits_g    => 2,
      Ways_g       => 2,
      EpochBits_g  => 4,
      Flexible_g   => 2,
      RunBits_g    => 4,
      DataBits_g   => DataBits_g,
      Lines_g      => 3,
      AheadFrom_g  => 1,
      Touches_g    => true,
      TicketBits_g => TicketBits_c,
      SpaceBits_g  => SpaceBits_c
    )
    port map (
      Clk            => Clk,
      Rst            => Rst,
      S_Ar_Valid     => SValid(Reader_c),
      S_Ar_Ready     => SReady(Reader_c),
      S_Ar_Addr      => SAddr(Reader_c),
      S_Ar_Id        => (others => '0'),
      S_Ar_Len       => x"00",
      S_Ar_Size      => "011",
      S_Ar_Burst     => "01",
      M_Ar_Valid     => MValid(Reader_c),
      M_Ar_Ready     => MReady(Reader_c),
      M_Ar_Addr      => MAddr(Reader_c),
      M_Ar_Id        => open,
      M_Ar_Len       => open,
      M_Ar_Size      => open,
      M_Ar_Burst     => open,
      M_Ar_InWindow  => MInWindow(Reader_c),
      M_Ar_Memory    => open,
      M_R_Valid      => BackValid(Reader_c),
      M_R_Ready      => BackReady(Reader_c),
      M_R_Id         => (others => '0'),
      M_R_Data       => (others => '0'),
      M_R_Resp       => "00",
      M_R_Last       => '1',
      S_R_Valid      => EndValid(Reader_c),
      S_R_Ready      => EndReady(Reader_c),
      S_R_Id         => open,
      S_R_Data       => open,
      S_R_Resp       => ReadResp,
      S_R_Last       => open,
      S_Aw_Valid     => SValid(Writer_c),
      S_Aw_Ready     => SReady(Writer_c),
      S_Aw_Addr      => SAddr(Writer_c),
      S_Aw_Id        => (others => '0'),
      S_Aw_Len       => x"00",
      S_Aw_Size      => "011",
      S_Aw_Burst     => "01",
      M_Aw_Valid     => MValid(Writer_c),
      M_Aw_Ready     => MReady(Writer_c),
      M_Aw_Addr      => MAddr(Writer_c),
      M_Aw_Id        => open,
      M_Aw_Len       => open,
      M_Aw_Size      => open,
      M_Aw_Burst     => open,
      M_Aw_InWindow  => MInWindow(Writer_c),
      M_Aw_Memory    => open,
      S_W_Valid      => WValid,
      S_W_Ready      => WReady,
      S_W_Data       => (others => '0'),
      S_W_Strb       => (others => '1'),
      S_W_Last       => '1',
      M_W_Valid      => MWValid,
      M_W_Ready      => MWReady,
      M_W_Data       => open,
      M_W_Strb       => open,
      M_W_Last       => open,
      M_B_Valid      => BackValid(Writer_c),
      M_B_Ready      => BackReady(Writer_c),
      M_B_Id         => (others => '0'),
      M_B_Resp       => "00",
      S_B_Valid      => EndValid(Writer_c),
      S_B_Ready      => EndReady(Writer_c),
      S_B_Id         => open,
      S_B_Resp       => WriteResp,
      Fault_Valid    => open,
      Fault_Ready    => '1',
      Fault_Write    => open,
      Fault_Id       => open,
      Fault_Status   => open,
      Fault_Addr     => open,
      Ticket         => Ticket,
      Touch_Valid    => TouchValid,
      Touch_Ready    => TouchReady,
      Touch_Page     => TouchPage,
      Touch_Write    => TouchWrite,
      Touch_Seen     => TouchSeen,
      Touch_Word     => TouchWord,
      Touch_Ticket   => TouchTicket,
      Found_Valid    => FoundValid,
      Found_Ready    => FoundReady,
      Found_Status   => FoundStatus,
      Found_Writable => FoundWrites,
      Found_Memory   => FoundMemory,
      Found_Size     => FoundSize,
      Found_Frame    => FoundFrame,
      Gate_Page      => GatePage,
      Gate_Closed    => GateClosed,
      Root_Valid     => RootValid,
      Root_Ready     => RootReady,
      Root_Index     => RootIndex,
      Root_Word      => RootWord,
      Inval_Valid    => InvalValid,
      Inval_Ready    => InvalReady,
      Inval_First    => InvalFirst,
      Inval_Last     => InvalLast,
      Inval_Done     => InvalDone,
      Lite_AwValid   => LAwValid,
      Lite_AwReady   => LAwReady,
      Lite_AwAddr    => LAwAddr,
      Lite_WValid    => LAwValid,
      Lite_WReady    => open,
      Lite_WData     => LWData,
      Lite_WStrb     => "1111",
      Lite_BValid    => LBValid,
      Lite_BReady    => '1',
      Lite_BResp     => open,
      Lite_ArValid   => '0',
      Lite_ArReady   => open,
      Lite_ArAddr    => x"00",
      Lite_RValid    => open,
      Lite_RReady    => '1',
      Lite_RData     => open,
      Lite_RResp     => open,
      Axi_ArValid    => LineArValid,
      Axi_ArReady    => LineArReady,
      Axi_ArAddr     => LineArAddr,
      Axi_ArLen      => open,
      Axi_ArSize     => open,
      Axi_ArBurst    => open,
      Axi_RValid     => LineRValid,
      Axi_RReady     => LineRReady,
      Axi_RData      => LineRData,
      Axi_RResp      => LineRResp
    );

  FoundFrame <= std_logic_vector(resize(unsigned(FoundStore), FrameBits_c));

  i_allocator : entity work.allocator
    generic map (
      AddrBits_g   => AddrBits_c,
      PhysBits_g   => PhysBits_c,
      PageBits_g   => PageBits_c,
      RootBits_g   => RootBits_c,
      LeafBits_g   => LeafBits_c,
      FrameBits_g  => StoreBits_c,
      Frames_g     => Frames_c,
      TicketBits_g => TicketBits_c
    )
    port map (
      Clk            => Clk,
      Rst            => Rst,
      Window_Base    => std_logic_vector(Base_c(AddrBits_c - 1 downto PageBits_c + WindowBits_c)),
      Pause          => Pause,
      Busy           => open,
      Step_Done      => open,
      Broken         => Broken,
      Count_Which    => (others => '0'),
      Count_Value    => open,
      Cmd_Valid      => CmdValid,
      Cmd_Ready      => CmdReady,
      Cmd_What       => CmdWhat,
      Cmd_Bytes      => CmdBytes,
      Cmd_Addr       => CmdAddr,
      Cmd_Memory     => "0000",
      Cmd_Writable   => CmdWritable,
      Cmd_Lazy       => CmdLazy,
      Resp_Valid     => RespValid,
      Resp_Ready     => RespReady,
      Resp_Status    => RespStatus,
      Resp_Addr      => RespAddr,
      Ticket         => Ticket,
      Touch_Valid    => TouchValid,
      Touch_Ready    => TouchReady,
      Touch_Page     => TouchPage,
      Touch_Write    => TouchWrite,
      Touch_Seen     => TouchSeen,
      Touch_Word     => TouchWord,
      Touch_Ticket   => TouchTicket,
      Found_Valid    => FoundValid,
      Found_Ready    => FoundReady,
      Found_Status   => FoundStatus,
      Found_Writable => FoundWrites,
      Found_Memory   => FoundMemory,
      Found_Size     => FoundSize,
      Found_Frame    => FoundStore,
      Gate_Page      => GatePage,
      Gate_Closed    => GateClosed,
      Root_Valid     => RootValid,
      Root_Ready     => RootReady,
      Root_Index     => RootIndex,
      Root_Word      => RootWord,
      Inval_Valid    => InvalValid,
      Inval_Ready    => InvalReady,
      Inval_First    => InvalFirst,
      Inval_Last     => InvalLast,
      Inval_Done     => InvalDone,
      Axi_AwValid    => TAwValid,
      Axi_AwReady    => TAwReady,
      Axi_AwAddr     => TAwAddr,
      Axi_WValid     => TWValid,
      Axi_WReady     => TWReady,
      Axi_WData      => TWData,
      Axi_WStrb      => TWStrb,
      Axi_BValid     => TBValid,
      Axi_BReady     => TBReady,
      Axi_BResp      => TBResp,
      Axi_ArValid    => TArValid,
      Axi_ArReady    => TArReady,
      Axi_ArAddr     => TArAddr,
      Axi_RValid     => TRValid,
      Axi_RReady     => TRReady,
      Axi_RData      => TRData,
      Axi_RResp      => TRResp
    );

  -- What the walker reads.
  i_lines : entity work.axi_read_memory
    generic map (
      AddrBits_g => PhysBits_c,
      DataBits_g => DataBits_g,
      Latency_g  => Latency_c,
      Stall_g    => Stall_g,
      Seed_g     => Seed_g,
      OfTables_g => true
    )
    port map (
      Clk     => Clk,
      ArValid => LineArValid,
      ArReady => LineArReady,
      ArAddr  => LineArAddr,
      RValid  => LineRValid,
      RReady  => LineRReady,
      RData   => LineRData,
      RResp   => LineRResp
    );

  i_memory : entity work.table_memory
    generic map (
      AddrBits_g => PhysBits_c,
      Latency_g  => Latency_c,
      Stall_g    => Stall_g,
      Seed_g     => Seed_g
    )
    port map (
      Clk     => Clk,
      AwValid => TAwValid,
      AwReady => TAwReady,
      AwAddr  => TAwAddr,
      WValid  => TWValid,
      WReady  => TWReady,
      WData   => TWData,
      WStrb   => TWStrb,
      BValid  => TBValid,
      BReady  => TBReady,
      BResp   => TBResp,
      ArValid => TArValid,
      ArReady => TArReady,
      ArAddr  => TArAddr,
      RValid  => TRValid,
      RReady  => TRReady,
      RData   => TRData,
      RResp   => TRResp
    );

end architecture;
