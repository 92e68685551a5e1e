-- Bench of a translator with its L2 TLB and walker, over a memory with reads of 71 cycles.
--
-- In each cycle it looks at what went through the ports and says what comes next. What an answer may
-- be is computed from the tables as they were: every change of a word makes a version of them, an
-- invalidation that was taken is the floor of its pages, and a request that is accepted afterwards
-- may not be answered with anything older.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library vunit_lib;
  context vunit_lib.vunit_context;

library work;
  use work.memory_pkg.all;
  use work.random_pkg.all;

entity tb_window_mmu is
  generic (
    runner_cfg  : string;
    Depth_g     : positive := 32;
    Walks_g     : positive := 32;
    SetBits_g   : positive := 3;
    Ways_g      : natural := 2;
    Lines_g     : positive := 32;
    DataBits_g  : positive := 256;
    AheadFrom_g : natural := 1;
    Stall_g     : natural := 0;
    Requests_g  : positive := 2000;
    Seed_g      : positive := 1
  );
end entity;

architecture sim of tb_window_mmu is

  constant AddrBits_c : positive := 32;
  constant PhysBits_c : positive := 20;
  constant PageBits_c : positive := 12;
  constant RootBits_c : positive := 2;
  constant LeafBits_c : positive := 3;
  constant TagBits_c  : positive := 6;
  constant Entries_c  : positive := 8;
  constant Pages_c    : positive := 2 ** (RootBits_c + LeafBits_c);
  constant PerRoot_c  : positive := 2 ** LeafBits_c;
  constant Inside_c   : positive := PageBits_c + RootBits_c + LeafBits_c;
  constant Latency_c  : positive := 71;
  constant PerLine_c  : positive := DataBits_g / 64;
  -- Whether lines are read ahead.
  constant Ahead_c    : boolean := AheadFrom_g < PerLine_c;
  -- Tables of the leaf level: table n begins with word 8 n of the memory. Words 0 and following of an
  -- image are the root's, which are not in the memory.
  constant Tables_c   : positive := 5;
  constant Period_c   : time := 4 ns;
  constant Base_c     : std_logic_vector(AddrBits_c - 1 downto Inside_c) := 15x"1a5";

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
  signal InvalValid  : std_logic := '0';
  signal InvalReady  : std_logic;
  signal InvalFirst  : std_logic_vector(RootBits_c + LeafBits_c - 1 downto 0) := (others => '0');
  signal InvalLast   : std_logic_vector(RootBits_c + LeafBits_c - 1 downto 0) := (others => '0');
  signal InvalDone   : std_logic;
  signal RootValid   : std_logic := '0';
  signal RootReady   : std_logic;
  signal RootIndex   : std_logic_vector(RootBits_c - 1 downto 0);
  signal RootWord    : std_logic_vector(63 downto 0);
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

begin

  Clk <= not Clk after Period_c / 2;

  p_test : process is
    constant VersionsMax_c : positive := 4096;
    constant Words_c       : positive := 8 * (Tables_c + 1);

    type Image_t is array (0 to Words_c - 1) of Word_t;

    type Images_t is array (0 to VersionsMax_c - 1) of Image_t;

    type Request_t is record
      addr  : std_logic_vector(AddrBits_c - 1 downto 0);
      write : std_logic;
      tag   : std_logic_vector(TagBits_c - 1 downto 0);
      -- The oldest version of the tables that the answer may be from.
      floor : natural;
      cycle : natural;
    end record;

    type Requests_t is array (0 to 255) of Request_t;

    type Floors_t is array (0 to Pages_c - 1) of natural;

    -- Status, memory and address of an answer.
    type Answer_t is record
      status : natural;
      memory : std_logic_vector(3 downto 0);
      addr   : std_logic_vector(AddrBits_c - 1 downto 0);
    end record;

    variable images_v    : Images_t;
    variable version_v   : natural := 0;
    variable floors_v    : Floors_t := (others => 0);
    variable requests_v  : Requests_t;
    variable accepted_v  : natural := 0;
    variable answered_v  : natural := 0;
    variable faults_v    : natural := 0;
    variable cycle_v     : natural := 0;
    -- The last in which a request was accepted or answered.
    variable progress_v  : natural := 0;
    variable random_v    : Random_t;
    -- Requests accepted up to the last invalidation; it is done when they have been answered.
    variable drainTo_v   : natural := 0;
    variable draining_v  : boolean := false;
    variable drains_v    : natural := 0;
    variable reads_v     : natural := 0;
    -- Of the last answer: cycles from request to answer.
    variable latency_v   : natural := 0;
    variable started_v   : natural;
    variable first_v     : natural;
    variable last_v      : natural;
    -- The pages that a change concerns, which is still to be made known.
    variable changed_v   : boolean := false;

    impure function someBits return Word_t is
      variable word_v : Word_t;
    begin
      for i in 0 to 3 loop
        word_v(16 * i + 15 downto 16 * i) := std_logic_vector(to_unsigned(random_v.pick(65536), 16));
      end loop;
      return word_v;
    end function;

    -- A word for a page, most often a good one; bits that say nothing are random. Its frame does not lie as
    -- the page does, so that it is no run whatever it says: of runs see tb_translator.
    impure function someLeaf (index : natural) return Word_t is
      variable word_v : Word_t := someBits;
    begin
      word_v(0)            := '1';
      word_v(2)            := '1';
      word_v(9 downto 5)   := std_logic_vector(to_unsigned(random_v.pick(4), 5));
      word_v(16)           := '0';
      word_v(63 downto 40) := (others => '0');
      word_v(32)           := '1' when index mod 2 = 0 else '0';
      case random_v.pick(20) is
        when 0 | 1 | 2 =>
          word_v(0) := '0';
        when 3 =>
          word_v(2) := '0';
        when 4 =>
          word_v(16) := '1';
        when 5 =>
          word_v(9 downto 5) := std_logic_vector(to_unsigned(4 + random_v.pick(28), 5));
        when 6 =>
          word_v(40 + random_v.pick(24)) := '1';
        when others =>
          null;
      end case;
      return word_v;
    end function;

    impure function someRoot return Word_t is
      variable word_v : Word_t := someBits;
    begin
      word_v(0)            := '1';
      word_v(16)           := '1';
      word_v(63 downto 32) := std_logic_vector(to_unsigned(1 + random_v.pick(Tables_c), 32));
      case random_v.pick(20) is
        when 0 =>
          word_v(0) := '0';
        when 1 =>
          -- A table beyond the memory of the bench.
          word_v(63 downto 32) := std_logic_vector(to_unsigned(100 + random_v.pick(16000), 32));
        when 2 =>
          word_v(46 + random_v.pick(18)) := '1';
        when 3 | 4 | 5 | 6 | 7 =>
          -- A run, now and then one that is not aligned, or has another size.
          word_v(16)           := '0';
          word_v(2)            := '1' when random_v.chance(90) else '0';
          word_v(9 downto 5)   := "00011" when random_v.chance(90) else
                                    std_logic_vector(to_unsigned(random_v.pick(32), 5));
          word_v(63 downto 32) := std_logic_vector(to_unsigned(8 * random_v.pick(32), 32));
          if random_v.chance(15) then
            word_v(32 + random_v.pick(32)) := '1';
          end if;
        when others =>
          null;
      end case;
      return word_v;
    end function;

    procedure writeWord (index : natural; word : Word_t) is
    begin
      assert version_v + 1 < VersionsMax_c
        report "more changes than the bench remembers" severity failure;
      images_v(version_v + 1) := images_v(version_v);
      version_v := version_v + 1;
      images_v(version_v)(index) := word;
      if index >= 8 then
        Memory.write(index, word);
      else
        RootValid <= '1';
        RootIndex <= std_logic_vector(to_unsigned(index, RootBits_c));
        RootWord  <= word;
      end if;
    end procedure;

    -- The answer to a request that finds these words. By the bits of docs/card-interface.md, written
    -- down once more on purpose.
    impure function answerOf (request : Request_t; rootVersion, leafVersion : natural) return Answer_t is
      variable page_v   : natural;
      variable word_v   : Word_t;
      variable table_v  : natural;
      variable frame_v  : natural;
      variable answer_v : Answer_t := (status => 0, memory => "0000", addr => request.addr);
    begin
      if request.addr(AddrBits_c - 1 downto Inside_c) /= Base_c then
        return answer_v;
      end if;
      page_v := to_integer(unsigned(request.addr(Inside_c - 1 downto PageBits_c)));
      word_v := images_v(rootVersion)(page_v / PerRoot_c);
      if word_v(0) = '0' then
        answer_v.status := 1;
      elsif word_v(16) = '1' then
        if unsigned(word_v(63 downto 32)) >= 2 ** 14 then
          answer_v.status := 4;
          return answer_v;
        end if;
        table_v := to_integer(unsigned(word_v(45 downto 32)));
        if table_v >= MemoryWords_c / 8 then
          answer_v.status := 3;
          return answer_v;
        end if;
        if 8 * table_v + page_v mod PerRoot_c < Words_c then
          word_v := images_v(leafVersion)(8 * table_v + page_v mod PerRoot_c);
        else
          word_v := (others => '0');
        end if;
        if word_v(0) = '0' then
          answer_v.status := 1;
        elsif word_v(16) = '1' or word_v(2) = '0' or unsigned(word_v(9 downto 5)) > LeafBits_c
          or unsigned(word_v(63 downto 32)) >= 256 then
          answer_v.status := 4;
        end if;
        frame_v := to_integer(unsigned(word_v(39 downto 32)));
      else
        if word_v(2) = '0' or unsigned(word_v(9 downto 5)) /= LeafBits_c
          or unsigned(word_v(63 downto 32)) >= 256 or word_v(34 downto 32) /= "000" then
          answer_v.status := 4;
        end if;
        frame_v := to_integer(unsigned(word_v(39 downto 32))) + page_v mod PerRoot_c;
      end if;
      if answer_v.status = 0 and request.write = '1' and word_v(1) = '0' then
        answer_v.status := 2;
      end if;
      if answer_v.status = 0 then
        answer_v.memory := word_v(15 downto 12);
        answer_v.addr := (others => '0');
        answer_v.addr(PhysBits_c - 1 downto 0) :=
          std_logic_vector(to_unsigned(frame_v, 8)) & request.addr(PageBits_c - 1 downto 0);
      end if;
      return answer_v;
    end function;

    procedure checkAnswer is
      variable request_v : Request_t;
      variable answer_v  : Answer_t;
      variable given_v   : Answer_t;
      variable found_v   : boolean := false;
    begin
      check(accepted_v > answered_v, "an answer to no request");
      request_v := requests_v(answered_v mod 256);
      answered_v := answered_v + 1;
      latency_v := cycle_v - request_v.cycle;
      given_v := (to_integer(unsigned(OutStatus)), OutMemory, OutAddr);
      check_equal(OutTag, request_v.tag, "order of the answers");
      check_equal(OutWrite, request_v.write, "direction");
      check_equal(OutInWindow, request_v.addr(AddrBits_c - 1 downto Inside_c) = Base_c, "in the window");
      -- A line may have been read before the root's word, or after it.
      l_versions : for leaf in version_v downto request_v.floor loop
        for root in version_v downto request_v.floor loop
          answer_v := answerOf(request_v, root, leaf);
          found_v := answer_v = given_v;
          exit l_versions when found_v;
        end loop;
      end loop;
      if not found_v then
        answer_v := answerOf(request_v, request_v.floor, request_v.floor);
      end if;
      check(found_v, "answer to " & to_hstring(request_v.addr) & ": " & to_string(given_v.status) & " "
        & to_hstring(given_v.addr) & ", and not, for example, " & to_string(answer_v.status) & " "
        & to_hstring(answer_v.addr));
      if given_v.status /= 0 then
        faults_v := faults_v + 1;
      end if;
    end procedure;

    -- One cycle: what went through the ports at its end.
    procedure step is
      variable request_v : Request_t;
      variable page_v    : natural;
    begin
      wait until rising_edge(Clk);
      cycle_v := cycle_v + 1;
      check(RReady = '1', "the walker takes what the memory answers");
      if ArValid = '1' and ArReady = '1' then
        reads_v := reads_v + 1;
        check(ArLen = x"00" and 8 * 2 ** to_integer(unsigned(ArSize)) = DataBits_g and ArBurst = "01",
          "a read of one line");
      end if;
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
      if InvalValid = '1' and InvalReady = '1' then
        for page in to_integer(unsigned(InvalFirst)) to to_integer(unsigned(InvalLast)) loop
          floors_v(page) := version_v;
        end loop;
        drainTo_v := accepted_v;
        draining_v := true;
        changed_v := false;
        InvalValid <= '0';
      end if;
      if RootValid = '1' and RootReady = '1' then
        RootValid <= '0';
      end if;
      check(cycle_v - progress_v < 20000, "nothing goes on");
    end procedure;

    procedure ask (page : natural; offset : natural; write : std_logic := '0') is
    begin
      InValid <= '1';
      InWrite <= write;
      InAddr  <= Base_c & std_logic_vector(to_unsigned(page, RootBits_c + LeafBits_c))
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
          random_v.pick(4096));
      else
        ask(random_v.pick(Pages_c), random_v.pick(4096));
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
      InvalFirst <= std_logic_vector(to_unsigned(firstPage, RootBits_c + LeafBits_c));
      InvalLast  <= std_logic_vector(to_unsigned(lastPage, RootBits_c + LeafBits_c));
    end procedure;

    -- The same, and until it is taken.
    procedure invalidateAndWait (firstPage, lastPage : natural) is
    begin
      invalidate(firstPage, lastPage);
      step;
      while InvalValid = '1' loop
        step;
      end loop;
    end procedure;

    -- Changes a word, and says which pages an invalidation must be for.
    procedure changeSomething is
    begin
      if random_v.chance(70) then
        -- A word of a table that several words of the root may lead to: of all its pages.
        first_v := 8 + random_v.pick(8 * Tables_c);
        writeWord(first_v, someLeaf(first_v));
        first_v := 0;
        last_v := Pages_c - 1;
      else
        first_v := random_v.pick(2 ** RootBits_c);
        writeWord(first_v, someRoot);
        first_v := first_v * PerRoot_c;
        last_v := first_v + PerRoot_c - 1;
      end if;
      changed_v := true;
    end procedure;

    -- A request is made, and taken.
    procedure askAndWait (page : natural; offset : natural) is
    begin
      ask(page, offset);
      step;
      while InValid = '1' loop
        step;
      end loop;
    end procedure;

    -- Until all is answered; nothing may take longer than `cycles`.
    procedure settle (cycles : positive) is
      variable left_v : natural := cycles;
    begin
      -- What was asked for a moment ago is at the ports then.
      step;
      while answered_v /= accepted_v or InValid = '1' or draining_v loop
        step;
        left_v := left_v - 1;
        check(left_v /= 0, "a request without an answer");
      end loop;
    end procedure;

    procedure fillTables is
    begin
      for i in 0 to 2 ** RootBits_c - 1 loop
        writeWord(i, std_logic_vector(to_unsigned(i + 1, 32)) & x"00010001");
        step;
        step;
      end loop;
      for i in 8 to 8 * (Tables_c + 1) - 1 loop
        writeWord(i, std_logic_vector(to_unsigned((i * 37) mod 256, 32)) & x"00000007");
      end loop;
      -- Nobody has asked for anything yet.
      floors_v := (others => version_v);
    end procedure;

  begin
    random_v.seed(Seed_g, 4711);
    test_runner_setup(runner, runner_cfg);
    images_v(0) := (others => (others => '0'));
    for i in 1 to 4 loop
      wait until rising_edge(Clk);
    end loop;
    Rst <= '0';
    -- What the root was not told is not mapped.
    OutReady <= '1';
    ask(9, 0);
    settle(40);
    check_equal(faults_v, 1, "faults before the root is written");
    OutReady <= '0';
    fillTables;
    faults_v := 0;
    accepted_v := 0;
    answered_v := 0;
    reads_v := 0;

    while test_suite loop

      if run("random requests, changes and invalidations under stalls") then
        while accepted_v < Requests_g loop
          if InValid = '0' and random_v.chance(70) then
            askSomething;
          end if;
          if not changed_v and InvalValid = '0' and version_v < VersionsMax_c - 8 and random_v.chance(3) then
            changeSomething;
          elsif changed_v and InvalValid = '0' and RootValid = '0' and random_v.chance(10) then
            invalidate(first_v, last_v);
          elsif not changed_v and InvalValid = '0' and random_v.chance(1) then
            -- One that nobody needs, of some pages.
            first_v := random_v.pick(Pages_c);
            invalidate(first_v, first_v + random_v.pick(Pages_c - first_v));
          end if;
          OutReady <= '0' when random_v.chance(Stall_g) else '1';
          step;
        end loop;
        OutReady <= '1';
        settle(20 * Depth_g * 2 * (Latency_c + 10));
        check(faults_v > Requests_g / 20 and faults_v < Requests_g, "faults: " & to_string(faults_v));
        check(drains_v > 5, "invalidations: " & to_string(drains_v));

      elsif run("a miss takes one read, a hit two cycles, hits come each cycle") then
        OutReady <= '1';
        ask(5, 16#123#);
        settle(400);
        check(latency_v <= Latency_c + 8, "miss: " & to_string(latency_v) & " cycles");
        info("a miss of an idle walker: " & to_string(latency_v) & " cycles");
        for i in 1 to 100 loop
          ask(5, 8 * i);
          started_v := accepted_v;
          step;
          step;
          step;
          -- Taken at the first edge after it is shown, the answer is there two edges later.
          check_equal(accepted_v, started_v + 1);
          exit when i = 100;
        end loop;
        settle(10);
        check(latency_v <= 2, "hit: " & to_string(latency_v) & " cycles");
        reads_v := 0;
        started_v := cycle_v;
        ask(5, 0);
        while accepted_v < 300 loop
          step;
          ask(5, accepted_v);
        end loop;
        InValid <= '0';
        settle(20);
        check(cycle_v - started_v <= 210, "200 hits: " & to_string(cycle_v - started_v) & " cycles");
        check_equal(reads_v, 0, "reads for hits");

      elsif run("requests for one page share a walk that is under way") then
        OutReady <= '1';
        for i in 1 to Depth_g loop
          ask(9, 8 * i);
          step;
          step;
        end loop;
        settle(400);
        check_equal(reads_v, 1, "reads for one page");

      elsif run("walks overlap up to the credits") then
        OutReady <= '1';
        started_v := cycle_v;
        for i in 1 to Depth_g loop
          askAndWait((PerLine_c * i + i / 8) mod Pages_c, 8);
        end loop;
        settle(100000);
        if Walks_g >= Depth_g and Lines_g >= Depth_g then
          check(cycle_v - started_v <= Latency_c + 2 * Depth_g + 16,
            to_string(Depth_g) & " walks: " & to_string(cycle_v - started_v) & " cycles");
        end if;

      elsif run("pages of a line that is on its way or held need no read") then
        OutReady <= '1';
        for i in 0 to PerLine_c - 1 loop
          askAndWait(8 + i, 8 * i);
        end loop;
        settle(100000);
        for i in 0 to PerLine_c - 1 loop
          ask(8 + i, 8 * i);
          settle(20);
          check(latency_v <= 7, "a page of a held line: " & to_string(latency_v) & " cycles");
        end loop;
        info("a page of a held line: " & to_string(latency_v) & " cycles");
        check(reads_v = 1 or (Ahead_c and reads_v = 2), "reads for a line: " & to_string(reads_v));
        -- Of a page, as the translator and the L2 TLB hold it too.
        invalidateAndWait(8, 8);
        started_v := reads_v;
        askAndWait(8, 0);
        settle(400);
        check(reads_v > started_v, "a line that is held over an invalidation");

      elsif run("the next line of a table is read ahead, and not beyond its end") then
        OutReady <= '1';
        if Lines_g > 1 and PerLine_c > 1 and PerLine_c < 8 then
          for i in 0 to PerLine_c - 1 loop
            ask(i, 0);
            settle(400);
          end loop;
          for i in 1 to Latency_c + 20 loop
            step;
          end loop;
          ask(PerLine_c, 0);
          settle(400);
          check_equal(latency_v > Latency_c, not Ahead_c, "the next line is waited for");
          check_equal(faults_v, 0);
          -- The last line of the table.
          invalidateAndWait(0, 0);
          started_v := reads_v;
          for i in 8 - PerLine_c to 7 loop
            ask(i, 0);
            settle(400);
          end loop;
          for i in 1 to Latency_c + 20 loop
            step;
          end loop;
          check_equal(reads_v, started_v + 1, "reads of the last line");
        end if;

      elsif run("an error of a line that is read ahead concerns nobody") then
        OutReady <= '1';
        if Lines_g > 1 and PerLine_c > 1 and PerLine_c < 8 then
          Memory.spoil(8 + PerLine_c, true);
          for i in 0 to PerLine_c - 1 loop
            ask(i, 0);
            settle(400);
          end loop;
          for i in 1 to Latency_c + 20 loop
            step;
          end loop;
          check_equal(faults_v, 0, "faults");
          check_equal(reads_v = 2, Ahead_c, "reads");
          Memory.spoil(8 + PerLine_c, false);
          ask(PerLine_c, 0);
          settle(400);
          check_equal(faults_v, 0, "faults");
        end if;

      elsif run("a page that the L2 TLB holds needs no read, until it is invalidated") then
        OutReady <= '1';
        -- More than the translator holds, less than the L2 TLB does.
        for page in 0 to Entries_c + 2 loop
          ask(page, 0);
          settle(400);
        end loop;
        started_v := reads_v;
        ask(0, 8);
        settle(20);
        info("a page of the L2 TLB: " & to_string(latency_v) & " cycles");
        check(latency_v <= 4, "a page of the L2 TLB: " & to_string(latency_v) & " cycles");
        check_equal(reads_v, started_v, "reads");
        -- The translator has dropped it already.
        ask(2, 8);
        settle(20);
        check_equal(reads_v, started_v, "reads");
        ask(1, 8);
        settle(20);
        writeWord(8 + 1, x"00000061" & x"00000007");
        invalidateAndWait(1, 1);
        ask(1, 8);
        settle(400);
        check_equal(reads_v, started_v + 1, "a walk after the invalidation");
        -- On its way when it is invalidated: kept neither here nor there.
        invalidateAndWait(3, 3);
        ask(3, 8);
        for i in 1 to 30 loop
          step;
        end loop;
        writeWord(8 + 3, x"00000062" & x"00000007");
        invalidateAndWait(3, 3);
        for page in 4 to 4 + Entries_c loop
          ask(page, 0);
          settle(400);
        end loop;
        ask(3, 8);
        settle(400);

      elsif run("nothing is lost when nobody takes the answers for a while") then
        for i in 1 to 3 loop
          OutReady <= '0';
          for j in 1 to 600 loop
            if InValid = '0' then
              askSomething;
            end if;
            step;
          end loop;
          check(accepted_v - answered_v <= Depth_g + 1, "more requests wait than there are places");
          OutReady <= '1';
          settle(100000);
        end loop;
        check(accepted_v > 3 * minimum(Depth_g, 3), "requests went on");

      elsif run("a fault is not kept") then
        OutReady <= '1';
        writeWord(8 + 3, (others => '0'));
        ask(3, 64);
        settle(400);
        check_equal(faults_v, 1);
        writeWord(8 + 3, x"00000042" & x"00000007");
        floors_v := (others => version_v);
        ask(3, 64);
        settle(400);
        check_equal(faults_v, 1, "the page is there now");

      elsif run("an invalidation waits for the walk under way, whose result is not kept") then
        OutReady <= '1';
        ask(7, 8);
        step;
        step;
        -- The memory has taken the read of the word before the change.
        for i in 1 to 20 loop
          step;
        end loop;
        check_equal(reads_v, 1);
        writeWord(8 + 7, x"00000051" & x"00000007");
        invalidate(7, 7);
        -- The L2 TLB takes it in one cycle, the translator in two.
        for i in 1 to 3 loop
          step;
        end loop;
        check(draining_v, "the walk is under way");
        ask(7, 16);
        settle(800);
        check_equal(drains_v, 1);
        check_equal(reads_v, 2, "a walk for each of the two");

      end if;

    end loop;

    test_runner_cleanup(runner);
  end process;

  test_runner_watchdog(runner, 20 ms);

  i_mmu : entity work.window_mmu
    generic map (
      AddrBits_g  => AddrBits_c,
      PhysBits_g  => PhysBits_c,
      PageBits_g  => PageBits_c,
      RootBits_g  => RootBits_c,
      LeafBits_g  => LeafBits_c,
      TagBits_g   => TagBits_c,
      Entries_g   => Entries_c,
      Depth_g     => Depth_g,
      SetBits_g   => SetBits_g,
      Ways_g      => Ways_g,
      -- Of few, so that the count begins again.
      EpochBits_g => SetBits_g,
      DataBits_g  => DataBits_g,
      Walks_g     => Walks_g,
      Lines_g     => Lines_g,
      AheadFrom_g => AheadFrom_g
    )
    port map (
      Clk          => Clk,
      Rst          => Rst,
      Window_Base  => Base_c,
      Root_Valid   => RootValid,
      Root_Ready   => RootReady,
      Root_Index   => RootIndex,
      Root_Word    => RootWord,
      In_Valid     => InValid,
      In_Ready     => InReady,
      In_Addr      => InAddr,
      In_Write     => InWrite,
      In_Tag       => InTag,
      Out_Valid    => OutValid,
      Out_Ready    => OutReady,
      Out_Addr     => OutAddr,
      Out_Write    => OutWrite,
      Out_Tag      => OutTag,
      Out_InWindow => OutInWindow,
      Out_Memory   => OutMemory,
      Out_Status   => OutStatus,
      Inval_Valid  => InvalValid,
      Inval_Ready  => InvalReady,
      Inval_First  => InvalFirst,
      Inval_Last   => InvalLast,
      Inval_Done   => InvalDone,
      Axi_ArValid  => ArValid,
      Axi_ArReady  => ArReady,
      Axi_ArAddr   => ArAddr,
      Axi_ArLen    => ArLen,
      Axi_ArSize   => ArSize,
      Axi_ArBurst  => ArBurst,
      Axi_RValid   => RValid,
      Axi_RReady   => RReady,
      Axi_RData    => RData,
      Axi_RResp    => RResp,
      Event_Accept => open,
      Event_Look   => open,
      Event_Held   => open,
      Event_Drop   => open,
      Event_Walk   => open,
      Event_Found  => open,
      Event_Ahead  => open,
      Event_Resp   => open,
      Event_Walked => open
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
