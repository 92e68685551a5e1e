-- Bench of a translator alone, over a walker that is a process of the bench: it answers in order, each
-- walk Latency_c cycles after it was asked for, with what the pages are then or were when it was asked.
--
-- In each cycle the bench looks at what went through the ports and says what comes next. Every change
-- of the pages makes a version of them; an invalidation that was taken is the floor of its pages, and a
-- request that is accepted afterwards may not be answered with anything older.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library std;
  use std.textio.all;

library vunit_lib;
  context vunit_lib.vunit_context;

library work;
  use work.random_pkg.all;

entity tb_translator is
  generic (
    runner_cfg : string;
    Entries_g  : positive := 8;
    Slots_g    : positive := 32;
    Depth_g    : positive := 32;
    Stall_g    : natural := 0;
    Seed_g     : positive := 1;
    -- The ports of each cycle are written down (scripts/rtl/replay.sh).
    Trace_g    : boolean := false
  );
end entity;

architecture sim of tb_translator is

  constant AddrBits_c   : positive := 32;
  constant PhysBits_c   : positive := 20;
  constant PageBits_c   : positive := 10;
  constant WindowBits_c : positive := 6;
  constant RunBits_c    : positive := 3;
  constant TagBits_c    : positive := 6;
  constant FrameBits_c  : positive := PhysBits_c - PageBits_c;
  constant Pages_c      : positive := 2 ** WindowBits_c;
  constant Inside_c     : positive := PageBits_c + WindowBits_c;
  -- Two reads of 71 cycles, and what a walker adds.
  constant Latency_c    : positive := 148;
  constant Period_c     : time := 4 ns;
  constant Base_c       : std_logic_vector(AddrBits_c - 1 downto Inside_c) := 16x"71a5";

  signal Clk         : std_logic := '0';
  signal Rst         : std_logic := '1';
  signal InValid     : std_logic := '0';
  signal InReady     : std_logic;
  signal InAddr      : std_logic_vector(AddrBits_c - 1 downto 0) := (others => '0');
  signal InWrite     : std_logic := '0';
  signal InTag       : std_logic_vector(TagBits_c - 1 downto 0) := (others => '0');
  signal OutValid    : std_logic;
  signal OutReady    : std_logic := '0';
  signal OutAddr     : std_logic_vector(AddrBits_c - 1 downto 0);
  signal OutWrite    : std_logic;
  signal OutTag      : std_logic_vector(TagBits_c - 1 downto 0);
  signal OutInWindow : std_logic;
  signal OutMemory   : std_logic_vector(3 downto 0);
  signal OutStatus   : std_logic_vector(2 downto 0);
  signal WalkValid   : std_logic;
  signal WalkReady   : std_logic := '0';
  signal WalkPage    : std_logic_vector(WindowBits_c - 1 downto 0);
  signal RespValid   : std_logic := '0';
  signal RespReady   : std_logic;
  signal RespStatus  : std_logic_vector(2 downto 0) := "000";
  signal RespWrites  : std_logic := '0';
  signal RespMemory  : std_logic_vector(3 downto 0) := "0000";
  signal RespSize    : std_logic_vector(4 downto 0) := "00000";
  signal RespFrame   : std_logic_vector(FrameBits_c - 1 downto 0) := (others => '0');
  signal InvalValid  : std_logic := '0';
  signal InvalReady  : std_logic;
  signal InvalFirst  : std_logic_vector(WindowBits_c - 1 downto 0) := (others => '0');
  signal InvalLast   : std_logic_vector(WindowBits_c - 1 downto 0) := (others => '0');
  signal InvalDone   : std_logic;
  signal Twice       : std_logic;

begin

  Clk <= not Clk after Period_c / 2;

  g_trace : if Trace_g generate

    p_trace : process is
      file trace_v    : text;
      variable line_v : line;

      procedure put (bits : std_logic_vector) is
      begin
        write(line_v, to_string(bits) & " ");
      end procedure;

      procedure put (bit : std_logic) is
      begin
        write(line_v, to_string(bit) & " ");
      end procedure;

    begin
      file_open(trace_v, output_path(runner_cfg) & "translator.trace", write_mode);
      loop
        wait until rising_edge(Clk);
        -- What comes in, then what goes out, as rtl/replay/translator.cpp has them.
        put(Rst);
        put(Base_c);
        put(InValid);
        put(InAddr);
        put(InWrite);
        put(InTag);
        put(OutReady);
        put(WalkReady);
        put(RespValid);
        put(RespStatus);
        put(RespWrites);
        put(RespMemory);
        put(RespSize);
        put(RespFrame);
        put(InvalValid);
        put(InvalFirst);
        put(InvalLast);
        put(InReady);
        put(OutValid);
        put(OutAddr);
        put(OutWrite);
        put(OutTag);
        put(OutInWindow);
        put(OutMemory);
        put(OutStatus);
        put(WalkValid);
        put(WalkPage);
        put(RespReady);
        put(InvalReady);
        put(InvalDone);
        writeline(trace_v, line_v);
      end loop;
    end process;

  end generate;

  p_test : process is
    constant VersionsMax_c : positive := 4096;

    -- What a page is: 0 or why it is a fault, and where it is.
    type Page_t is record
      status : natural;
      writes : std_logic;
      memory : std_logic_vector(3 downto 0);
      size   : natural;
      frame  : natural;
    end record;

    type Image_t is array (0 to Pages_c - 1) of Page_t;

    type Images_t is array (0 to VersionsMax_c - 1) of Image_t;

    type Request_t is record
      addr  : std_logic_vector(AddrBits_c - 1 downto 0);
      write : std_logic;
      tag   : std_logic_vector(TagBits_c - 1 downto 0);
      -- The oldest version of the pages that the answer may be from.
      floor : natural;
      cycle : natural;
    end record;

    type Requests_t is array (0 to 255) of Request_t;

    type Floors_t is array (0 to Pages_c - 1) of natural;

    type Walk_t is record
      page    : natural;
      version : natural;
      due     : natural;
    end record;

    type Walks_t is array (0 to 255) of Walk_t;

    variable images_v   : Images_t;
    variable version_v  : natural := 0;
    variable floors_v   : Floors_t := (others => 0);
    variable requests_v : Requests_t;
    variable accepted_v : natural := 0;
    variable answered_v : natural := 0;
    variable faults_v   : natural := 0;
    variable walks_v    : Walks_t;
    variable asked_v    : natural := 0;
    variable given_v    : natural := 0;
    variable shown_v    : boolean := false;
    variable underWay_v : natural := 0;
    variable cycle_v    : natural := 0;
    -- The last in which a request was accepted or answered.
    variable progress_v : natural := 0;
    variable random_v   : Random_t;
    variable drainTo_v  : natural := 0;
    variable draining_v : boolean := false;
    variable drains_v   : natural := 0;
    -- Of the last answer: cycles from request to answer, its address.
    variable latency_v  : natural := 0;
    variable addr_v     : std_logic_vector(AddrBits_c - 1 downto 0);
    variable status_v   : natural := 0;
    variable started_v  : natural;
    variable before_v   : natural;
    variable first_v    : natural;
    variable last_v     : natural;
    variable changed_v  : boolean := false;

    procedure newVersion is
    begin
      assert version_v + 1 < VersionsMax_c
        report "more changes than the bench remembers" severity failure;
      images_v(version_v + 1) := images_v(version_v);
      version_v := version_v + 1;
    end procedure;

    -- Runs of which the page is part are runs no more: of what is next to it each page is for itself.
    procedure split (page : natural) is
      variable size_v  : natural := images_v(version_v)(page).size;
      variable begin_v : natural := page - page mod 2 ** size_v;
    begin
      for i in begin_v to begin_v + 2 ** size_v - 1 loop
        images_v(version_v)(i).size := 0;
      end loop;
    end procedure;

    -- The aligned run of 2**size pages around `page` gets frames from a multiple of its size on.
    procedure mapRun (page : natural; size : natural; frame : natural; writes : std_logic := '1') is
      constant Begin_c : natural := page - page mod 2 ** size;
      variable memory_v : natural := random_v.pick(16);
    begin
      newVersion;
      for i in Begin_c to Begin_c + 2 ** size - 1 loop
        split(i);
        images_v(version_v)(i) := (0, writes, std_logic_vector(to_unsigned(memory_v, 4)), size,
                                   (frame - frame mod 2 ** size + i mod 2 ** size) mod 2 ** FrameBits_c);
      end loop;
    end procedure;

    procedure unmap (page : natural; status : natural := 1) is
    begin
      newVersion;
      split(page);
      images_v(version_v)(page).status := status;
    end procedure;

    procedure changeSomething is
      variable size_v   : natural := 0;
      variable writes_v : std_logic;
    begin
      writes_v := '1' when random_v.chance(70) else '0';
      first_v := random_v.pick(Pages_c);
      last_v  := first_v;
      case random_v.pick(6) is
        when 0 =>
          unmap(first_v);
        when 1 =>
          unmap(first_v, 3 + random_v.pick(2));
        when 2 | 3 =>
          mapRun(first_v, 0, random_v.pick(2 ** FrameBits_c), writes_v);
        when others =>
          size_v := random_v.pick(RunBits_c + 1);
          mapRun(first_v, size_v, random_v.pick(2 ** FrameBits_c), writes_v);
          first_v := first_v - first_v mod 2 ** size_v;
          last_v  := first_v + 2 ** size_v - 1;
      end case;
      changed_v := true;
    end procedure;

    impure function isAnswer (request : Request_t; version : natural) return boolean is
      variable page_v     : Page_t;
      variable status_v   : natural;
      variable expected_v : std_logic_vector(AddrBits_c - 1 downto 0) := request.addr;
    begin
      if request.addr(AddrBits_c - 1 downto Inside_c) /= Base_c then
        return OutStatus = "000" and OutMemory = "0000" and OutAddr = request.addr;
      end if;
      page_v := images_v(version)(to_integer(unsigned(request.addr(Inside_c - 1 downto PageBits_c))));
      status_v := page_v.status;
      if status_v = 0 and request.write = '1' and page_v.writes = '0' then
        status_v := 2;
      end if;
      if status_v /= 0 then
        return unsigned(OutStatus) = status_v and OutMemory = "0000" and OutAddr = request.addr;
      end if;
      expected_v(AddrBits_c - 1 downto PageBits_c) :=
        std_logic_vector(to_unsigned(page_v.frame, AddrBits_c - PageBits_c));
      return OutStatus = "000" and OutMemory = page_v.memory and OutAddr = expected_v;
    end function;

    procedure checkAnswer is
      variable request_v : Request_t;
      variable found_v   : boolean := false;
    begin
      check(accepted_v > answered_v, "an answer to no request");
      request_v := requests_v(answered_v mod 256);
      answered_v := answered_v + 1;
      latency_v := cycle_v - request_v.cycle;
      addr_v := OutAddr;
      status_v := to_integer(unsigned(OutStatus));
      check_equal(OutTag, request_v.tag, "order of the answers");
      check_equal(OutWrite, request_v.write, "direction");
      check_equal(OutInWindow, request_v.addr(AddrBits_c - 1 downto Inside_c) = Base_c, "in the window");
      for version in version_v downto request_v.floor loop
        found_v := isAnswer(request_v, version);
        exit when found_v;
      end loop;
      check(found_v, "answer to " & to_hstring(request_v.addr) & ": " & to_string(status_v) & " "
        & to_hstring(OutAddr));
      if status_v /= 0 then
        faults_v := faults_v + 1;
      end if;
    end procedure;

    -- The walker: what it has taken and been rid of in this cycle, what it shows in the next.
    procedure walk is
      variable walk_v : Walk_t;
      variable page_v : Page_t;
    begin
      if WalkValid = '1' and WalkReady = '1' then
        walks_v(asked_v mod 256) := (to_integer(unsigned(WalkPage)), version_v, cycle_v + Latency_c - 1);
        asked_v := asked_v + 1;
      end if;
      if RespValid = '1' and RespReady = '1' then
        RespValid <= '0';
        given_v := given_v + 1;
        shown_v := false;
      end if;
      check(asked_v - given_v <= Slots_g, "more walks than slots");
      underWay_v := maximum(underWay_v, asked_v - given_v);
      walk_v := walks_v(given_v mod 256);
      if not shown_v and given_v /= asked_v and walk_v.due <= cycle_v and not random_v.chance(Stall_g) then
        page_v := images_v(version_v)(walk_v.page);
        if random_v.chance(50) then
          page_v := images_v(walk_v.version)(walk_v.page);
        end if;
        shown_v := true;
        RespValid  <= '1';
        RespStatus <= std_logic_vector(to_unsigned(page_v.status, 3));
        RespWrites <= page_v.writes;
        RespMemory <= page_v.memory;
        RespSize   <= std_logic_vector(to_unsigned(page_v.size, 5));
        RespFrame  <= std_logic_vector(to_unsigned(page_v.frame, FrameBits_c));
      end if;
      WalkReady <= '0' when random_v.chance(Stall_g) else '1';
    end procedure;

    -- One cycle: what went through the ports at its end.
    procedure step is
      variable request_v : Request_t;
      variable page_v    : natural;
    begin
      wait until rising_edge(Clk);
      cycle_v := cycle_v + 1;
      check(Twice = '0', "two entries, or two slots, for one page");
      if OutValid = '1' and OutReady = '1' then
        checkAnswer;
        progress_v := cycle_v;
      end if;
      if InvalDone = '1' then
        check(draining_v, "an invalidation is done that was not asked for");
        check(answered_v >= drainTo_v, "done before the requests of before are answered");
        draining_v := false;
        drains_v := drains_v + 1;
      end if;
      if InValid = '1' and InReady = '1' then
        page_v := to_integer(unsigned(InAddr(Inside_c - 1 downto PageBits_c)));
        request_v := (InAddr, InWrite, InTag, floors_v(page_v), cycle_v);
        requests_v(accepted_v mod 256) := request_v;
        accepted_v := accepted_v + 1;
        progress_v := cycle_v;
        InValid <= '0';
      end if;
      walk;
      if InvalValid = '1' and InvalReady = '1' then
        for page in to_integer(unsigned(InvalFirst)) to to_integer(unsigned(InvalLast)) loop
          floors_v(page) := version_v;
        end loop;
        drainTo_v := accepted_v;
        draining_v := true;
        changed_v := false;
        InvalValid <= '0';
      end if;
      check(cycle_v - progress_v < 20000, "nothing goes on");
    end procedure;

    procedure ask (page : natural; offset : natural; write : std_logic := '0') is
    begin
      InValid <= '1';
      InWrite <= write;
      InAddr  <= Base_c & std_logic_vector(to_unsigned(page, WindowBits_c))
                 & std_logic_vector(to_unsigned(offset, PageBits_c));
      InTag   <= std_logic_vector(to_unsigned(random_v.pick(2 ** TagBits_c), TagBits_c));
    end procedure;

    procedure askSomething is
      variable base_v : std_logic_vector(AddrBits_c - 1 downto Inside_c) := Base_c;
      variable bit_v  : natural;
    begin
      if random_v.chance(50) then
        -- The page of before, or the next one.
        ask((to_integer(unsigned(InAddr(Inside_c - 1 downto PageBits_c))) + random_v.pick(2)) mod Pages_c,
          random_v.pick(1024));
      elsif random_v.chance(50) then
        ask(random_v.pick(6), random_v.pick(1024));
      else
        ask(random_v.pick(Pages_c), random_v.pick(1024));
      end if;
      InWrite <= '1' when random_v.chance(40) else '0';
      if random_v.chance(10) then
        bit_v := Inside_c + random_v.pick(base_v'length);
        base_v(bit_v) := not base_v(bit_v);
        InAddr(AddrBits_c - 1 downto Inside_c) <= base_v;
      end if;
    end procedure;

    procedure invalidate (firstPage, lastPage : natural) is
    begin
      InvalValid <= '1';
      InvalFirst <= std_logic_vector(to_unsigned(firstPage, WindowBits_c));
      InvalLast  <= std_logic_vector(to_unsigned(lastPage, WindowBits_c));
    end procedure;

    -- Until all is answered; nothing may take longer than `cycles`.
    procedure settle (cycles : positive) is
      variable left_v : natural := cycles;
    begin
      -- What was asked for a moment ago is at the ports then.
      step;
      while answered_v /= accepted_v or InValid = '1' or InvalValid = '1' or draining_v loop
        step;
        left_v := left_v - 1;
        check(left_v /= 0, "a request without an answer");
      end loop;
    end procedure;

    -- A request, and its answer.
    procedure accessPage (page : natural; write : std_logic := '0') is
    begin
      ask(page, 8 * page, write);
      settle(4 * Latency_c);
    end procedure;

    procedure accessAt (page : natural; frame : natural) is
    begin
      accessPage(page);
      check_equal(status_v, 0, "there is such a page");
      check_equal(to_integer(unsigned(addr_v(PhysBits_c - 1 downto PageBits_c))), frame, "frame");
    end procedure;

    procedure invalidateAndWait (page : natural) is
    begin
      step;
      invalidate(page, page);
      settle(4 * Latency_c);
    end procedure;

    -- The next request may be shown: there is none, or it was taken in this cycle.
    impure function isIdle return boolean is
    begin
      return InValid = '0' or InReady = '1';
    end function;

    -- Shows a request as soon as that may be; goes on one cycle, with which it may be taken or not.
    procedure send (page : natural) is
    begin
      while not isIdle loop
        step;
      end loop;
      ask(page, random_v.pick(1024));
      step;
    end procedure;

    -- Random requests, one every `every` cycles, or later if they are not taken.
    procedure stream (requests : natural; pages : positive; every : positive) is
      variable next_v : natural := cycle_v;
    begin
      OutReady <= '1';
      for i in 1 to requests loop
        while cycle_v < next_v loop
          step;
        end loop;
        next_v := next_v + every;
        send(random_v.pick(pages));
      end loop;
      settle(10000);
    end procedure;

  begin
    random_v.seed(Seed_g, 4711);
    test_runner_setup(runner, runner_cfg);
    for page in 0 to Pages_c - 1 loop
      images_v(0)(page) := (0, '1', x"0", 0, (page * 37) mod 1024);
    end loop;
    for i in 1 to 4 loop
      wait until rising_edge(Clk);
    end loop;
    Rst <= '0';

    while test_suite loop

      if run("random requests, changes and invalidations under stalls") then
        while accepted_v < 2500 loop
          if InValid = '0' and random_v.chance(80) then
            askSomething;
          end if;
          if not changed_v and InvalValid = '0' and version_v < VersionsMax_c - 8 and random_v.chance(4) then
            changeSomething;
          elsif changed_v and InvalValid = '0' and random_v.chance(10) then
            invalidate(first_v, last_v);
          elsif not changed_v and InvalValid = '0' and random_v.chance(1) then
            -- One that nobody needs, of some pages.
            first_v := random_v.pick(Pages_c);
            invalidate(first_v, first_v + random_v.pick(minimum(6, Pages_c - first_v)));
          end if;
          OutReady <= '0' when random_v.chance(Stall_g) else '1';
          step;
        end loop;
        OutReady <= '1';
        settle(100 * Latency_c);
        check(faults_v > 100 and faults_v < 2000, "faults: " & to_string(faults_v));
        check(drains_v > 5, "invalidations: " & to_string(drains_v));

      elsif run("a hit takes two cycles, hits come each cycle, also while others fill and are invalidated") then
        OutReady <= '1';
        accessPage(0);
        accessPage(0);
        check_equal(latency_v, 2, "cycles of a hit");
        started_v := cycle_v;
        for page in 1 to Entries_g - 1 loop
          send(page);
        end loop;
        for i in 1 to 400 loop
          send(0);
        end loop;
        settle(1000);
        -- A queue of one place takes a request every second cycle.
        check(Depth_g = 1 or
          cycle_v - started_v <= 400 + 8 + (1 + (Entries_g - 1) / minimum(Slots_g, Depth_g)) * (Latency_c + 8),
          "400 hits after misses: " & to_string(cycle_v - started_v) & " cycles");
        before_v := asked_v;
        started_v := cycle_v;
        for i in 1 to 400 loop
          if i mod 8 = 0 and InvalValid = '0' and not draining_v then
            invalidate(40, 40);
          end if;
          send(0);
        end loop;
        settle(20);
        check(Depth_g = 1 or cycle_v - started_v <= 410, "400 hits: " & to_string(cycle_v - started_v) & " cycles");
        check(drains_v > 10, "invalidations meanwhile");
        check_equal(asked_v, before_v, "walks for hits");

      elsif run("requests for a page whose walk is under way wait for it, whatever came between") then
        OutReady <= '1';
        for round in 1 to 3 loop
          for page in 0 to minimum(minimum(Slots_g, Depth_g / 3), 4) - 1 loop
            send(page);
          end loop;
        end loop;
        settle(4000);
        if Depth_g >= 3 then
          check_equal(asked_v, minimum(minimum(Slots_g, Depth_g / 3), 4), "a walk for each page");
        end if;

      elsif run("random requests for as many pages as there are entries walk once for each") then
        -- A request is 16 beats of data.
        started_v := cycle_v;
        stream(1200, minimum(Entries_g, Pages_c), 16);
        check(asked_v <= minimum(Entries_g, Pages_c), to_string(asked_v) & " walks");
        if Slots_g > 20 and Depth_g > 20 then
          check(16.0 * 1200.0 / real(cycle_v - started_v) >= 0.99, "of the raw throughput");
        end if;
        info(to_string(asked_v) & " walks, " & to_string(cycle_v - started_v) & " cycles");

      elsif run("as many walks are under way as there are slots") then
        OutReady <= '1';
        started_v := cycle_v;
        for i in 1 to 20 * Slots_g loop
          send((5 * i) mod Pages_c);
        end loop;
        settle(100000);
        if Depth_g >= Slots_g and Entries_g < 32 then
          check_equal(underWay_v, Slots_g, "walks under way");
          check(cycle_v - started_v <= 20 * (Latency_c + 6) + 4 * Slots_g, to_string(accepted_v) & " walks: "
            & to_string(cycle_v - started_v) & " cycles");
        end if;

      elsif run("one entry has a whole run") then
        OutReady <= '1';
        mapRun(8, 3, 16#150#);
        floors_v := (others => version_v);
        for page in 8 to 15 loop
          accessAt(page, 16#150# + page - 8);
        end loop;
        check_equal(asked_v, 1, "walks for a run");
        -- A part of it is another: the rest is walked for again.
        mapRun(12, 0, 7);
        invalidateAndWait(12);
        accessAt(12, 7);
        accessAt(13, 16#155#);
        check_equal(asked_v, 3, "walks for what it was taken apart into");

      elsif run("frames that do not lie as pages do are no run") then
        OutReady <= '1';
        newVersion;
        for page in 16 to 17 loop
          images_v(version_v)(page).size := 1;
          images_v(version_v)(page).frame := 16#101# + page - 16;
        end loop;
        floors_v := (others => version_v);
        accessAt(16, 16#101#);
        accessAt(17, 16#102#);
        check_equal(asked_v, 2, "walks");

      elsif run("a run that was under way at an invalidation of one of its pages is not that page's") then
        OutReady <= '1';
        mapRun(8, 1, 16#150#);
        floors_v := (others => version_v);
        ask(8, 0);
        step;
        step;
        step;
        check_equal(asked_v, 1, "the walk is under way");
        walks_v(0).version := version_v;
        mapRun(9, 0, 5);
        invalidateAndWait(9);
        accessAt(9, 5);

      elsif run("a page that was freed and is used again is what it is now") then
        OutReady <= '1';
        for round in 1 to 3 loop
          mapRun(3, 0, 100 + round);
          invalidateAndWait(3);
          accessAt(3, 100 + round);
          accessAt(3, 100 + round);
          unmap(3);
          invalidateAndWait(3);
          accessPage(3);
          check_equal(status_v, 1, "not mapped any more");
          -- Its frame is another page's.
          mapRun(4, 0, 100 + round);
          invalidateAndWait(4);
          accessAt(4, 100 + round);
        end loop;

      elsif run("accesses of pages that are not mapped are answered, each") then
        OutReady <= '1';
        for page in 0 to Pages_c - 1 loop
          unmap(page);
        end loop;
        floors_v := (others => version_v);
        stream(300, Pages_c, 1);
        check_equal(faults_v, accepted_v, "faults");
        -- One that was seen is not kept.
        before_v := asked_v;
        accessPage(5);
        accessPage(5);
        check_equal(asked_v, before_v + 2, "a walk for each");

      elsif run("a write to a page that may only be read is a fault, and what it is now counts then") then
        OutReady <= '1';
        mapRun(6, 0, 9, '0');
        floors_v := (others => version_v);
        accessAt(6, 9);
        accessPage(6, '1');
        check_equal(status_v, 2, "may only be read");
        before_v := asked_v;
        accessPage(6, '1');
        check_equal(asked_v, before_v + 1, "it is walked for again");

      elsif run("no answer is lost while all of them are taken at once, or none for a while") then
        for round in 1 to 4 loop
          OutReady <= '0' when round = 2 else '1';
          for i in 1 to 500 loop
            if isIdle then
              ask(random_v.pick(12), random_v.pick(1024));
            end if;
            step;
          end loop;
          check(round /= 2 or accepted_v - answered_v <= Depth_g + 1, "more requests wait than there are places");
          OutReady <= '1';
          settle(100000);
          check_equal(answered_v, accepted_v, "answers");
        end loop;

      end if;

    end loop;

    test_runner_cleanup(runner);
  end process;

  test_runner_watchdog(runner, 20 ms);

  i_translator : entity work.translator
    generic map (
      AddrBits_g   => AddrBits_c,
      PhysBits_g   => PhysBits_c,
      PageBits_g   => PageBits_c,
      WindowBits_g => WindowBits_c,
      RunBits_g    => RunBits_c,
      TagBits_g    => TagBits_c,
      Entries_g    => Entries_g,
      Slots_g      => Slots_g,
      Depth_g      => Depth_g,
      Checks_g     => true
    )
    port map (
      Clk           => Clk,
      Rst           => Rst,
      Window_Base   => Base_c,
      In_Valid      => InValid,
      In_Ready      => InReady,
      In_Addr       => InAddr,
      In_Write      => InWrite,
      In_Tag        => InTag,
      Out_Valid     => OutValid,
      Out_Ready     => OutReady,
      Out_Addr      => OutAddr,
      Out_Write     => OutWrite,
      Out_Tag       => OutTag,
      Out_InWindow  => OutInWindow,
      Out_Memory    => OutMemory,
      Out_Status    => OutStatus,
      Walk_Valid    => WalkValid,
      Walk_Ready    => WalkReady,
      Walk_Page     => WalkPage,
      Resp_Valid    => RespValid,
      Resp_Ready    => RespReady,
      Resp_Status   => RespStatus,
      Resp_Writable => RespWrites,
      Resp_Memory   => RespMemory,
      Resp_Size     => RespSize,
      Resp_Frame    => RespFrame,
      Inval_Valid   => InvalValid,
      Inval_Ready   => InvalReady,
      Inval_First   => InvalFirst,
      Inval_Last    => InvalLast,
      Inval_Done    => InvalDone,
      Twice         => Twice
    );

end architecture;
