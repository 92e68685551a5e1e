-- Bench of an L2 TLB over a walker that is a process of the bench: it answers in order, each walk Latency_c
-- cycles after it was asked for, with what the page is then or was when it was asked.
--
-- Every change of the pages makes a version of them; an invalidation that was taken is the floor of its
-- pages, and a request that is accepted afterwards may not be answered with anything older.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library vunit_lib;
  context vunit_lib.vunit_context;

library work;
  use work.random_pkg.all;

entity tb_l2_tlb is
  generic (
    runner_cfg : string;
    SetBits_g  : positive := 3;
    Ways_g     : positive := 4;
    Depth_g    : positive := 16;
    Epoch_g    : positive := 3;
    Stall_g    : natural := 0;
    Seed_g     : positive := 1
  );
end entity;

architecture sim of tb_l2_tlb is

  constant PhysBits_c   : positive := 20;
  constant PageBits_c   : positive := 10;
  constant WindowBits_c : positive := 7;
  constant FrameBits_c  : positive := PhysBits_c - PageBits_c;
  constant Pages_c      : positive := 2 ** WindowBits_c;
  constant Latency_c    : positive := 78;
  constant Period_c     : time := 4 ns;

  signal Clk        : std_logic := '0';
  signal Rst        : std_logic := '1';
  signal ReqValid   : std_logic := '0';
  signal ReqReady   : std_logic;
  signal ReqPage    : std_logic_vector(WindowBits_c - 1 downto 0) := (others => '0');
  signal RespValid  : std_logic;
  signal RespReady  : std_logic := '0';
  signal RespStatus : std_logic_vector(2 downto 0);
  signal RespWrites : std_logic;
  signal RespMemory : std_logic_vector(3 downto 0);
  signal RespSize   : std_logic_vector(4 downto 0);
  signal RespFrame  : std_logic_vector(FrameBits_c - 1 downto 0);
  signal WalkValid  : std_logic;
  signal WalkReady  : std_logic := '0';
  signal WalkPage   : std_logic_vector(WindowBits_c - 1 downto 0);
  signal CameValid  : std_logic := '0';
  signal CameReady  : std_logic;
  signal CameStatus : std_logic_vector(2 downto 0) := "000";
  signal CameWrites : std_logic := '0';
  signal CameMemory : std_logic_vector(3 downto 0) := "0000";
  signal CameSize   : std_logic_vector(4 downto 0) := "00000";
  signal CameFrame  : std_logic_vector(FrameBits_c - 1 downto 0) := (others => '0');
  signal InvalValid : std_logic := '0';
  signal InvalReady : std_logic;
  signal InvalFirst : std_logic_vector(WindowBits_c - 1 downto 0) := (others => '0');
  signal InvalLast  : std_logic_vector(WindowBits_c - 1 downto 0) := (others => '0');

begin

  Clk <= not Clk after Period_c / 2;

  p_test : process is
    constant VersionsMax_c : positive := 2048;

    type Page_t is record
      status : natural;
      writes : std_logic;
      frame  : natural;
      -- Of the run that it is part of.
      size   : natural;
    end record;

    type Image_t is array (0 to Pages_c - 1) of Page_t;

    type Images_t is array (0 to VersionsMax_c - 1) of Image_t;

    -- A request, or a walk: its page, the oldest version that counts, and that counts for a run; when it was asked.
    type Asked_t is record
      page  : natural;
      floor : natural;
      runs  : natural;
      cycle : natural;
    end record;

    type Askeds_t is array (0 to 255) of Asked_t;

    type Floors_t is array (0 to Pages_c - 1) of natural;

    variable images_v   : Images_t;
    variable version_v  : natural := 0;
    variable floors_v   : Floors_t := (others => 0);
    -- The version at the last invalidation, of whichever pages.
    variable runs_v     : natural := 0;
    variable requests_v : Askeds_t;
    variable accepted_v : natural := 0;
    variable answered_v : natural := 0;
    variable faults_v   : natural := 0;
    variable walks_v    : Askeds_t;
    variable asked_v    : natural := 0;
    variable given_v    : natural := 0;
    variable shown_v    : boolean := false;
    variable invals_v   : natural := 0;
    variable cycle_v    : natural := 0;
    variable progress_v : natural := 0;
    variable latency_v  : natural := 0;
    variable frame_v    : natural := 0;
    variable size_v     : natural := 0;
    variable random_v   : Random_t;
    variable before_v   : natural;
    variable started_v  : natural;
    variable page_v     : natural;
    variable changed_v  : boolean := false;

    procedure change (page : natural; status : natural; frame : natural; writes : std_logic := '1') is
    begin
      assert version_v + 1 < VersionsMax_c
        report "more changes than the bench remembers" severity failure;
      images_v(version_v + 1) := images_v(version_v);
      version_v := version_v + 1;
      images_v(version_v)(page) := (status, writes, frame, frame mod 6);
    end procedure;

    -- A run is told of as it was found after the last invalidation, or not at all.
    impure function isResponse (page, version, runs : natural) return boolean is
      constant Page_c : Page_t := images_v(version)(page);
    begin
      if Page_c.status /= 0 then
        return unsigned(RespStatus) = Page_c.status;
      end if;
      -- The memory follows from the frame here.
      return RespStatus = "000" and RespWrites = Page_c.writes and unsigned(RespFrame) = Page_c.frame
        and unsigned(RespMemory) = Page_c.frame mod 16
        and (unsigned(RespSize) = 0 or (unsigned(RespSize) = Page_c.size and version >= runs));
    end function;

    procedure checkResponse is
      variable request_v : Asked_t;
      variable found_v   : boolean := false;
    begin
      check(accepted_v > answered_v, "a response to no request");
      request_v := requests_v(answered_v mod 256);
      answered_v := answered_v + 1;
      latency_v := cycle_v - request_v.cycle;
      frame_v := to_integer(unsigned(RespFrame));
      size_v := to_integer(unsigned(RespSize));
      for version in version_v downto request_v.floor loop
        found_v := isResponse(request_v.page, version, request_v.runs);
        exit when found_v;
      end loop;
      check(found_v, "response for page " & to_string(request_v.page) & ": " & to_hstring(RespStatus) & " "
        & to_hstring(RespFrame) & " of 2**" & to_string(size_v));
      if RespStatus /= "000" then
        faults_v := faults_v + 1;
      end if;
    end procedure;

    procedure walk is
      variable walk_v : Asked_t;
      variable page_v : Page_t;
    begin
      if WalkValid = '1' and WalkReady = '1' then
        walks_v(asked_v mod 256) := (to_integer(unsigned(WalkPage)), version_v, version_v, cycle_v);
        asked_v := asked_v + 1;
      end if;
      if CameValid = '1' and CameReady = '1' then
        CameValid <= '0';
        given_v := given_v + 1;
        shown_v := false;
      end if;
      walk_v := walks_v(given_v mod 256);
      if not shown_v and given_v /= asked_v and walk_v.cycle + Latency_c - 1 <= cycle_v and
        not random_v.chance(Stall_g) then
        page_v := images_v(version_v)(walk_v.page);
        if random_v.chance(50) then
          page_v := images_v(walk_v.floor)(walk_v.page);
        end if;
        shown_v := true;
        CameValid  <= '1';
        CameStatus <= std_logic_vector(to_unsigned(page_v.status, 3));
        CameWrites <= page_v.writes;
        CameMemory <= std_logic_vector(to_unsigned(page_v.frame mod 16, 4));
        CameSize   <= std_logic_vector(to_unsigned(page_v.size, 5));
        CameFrame  <= std_logic_vector(to_unsigned(page_v.frame, FrameBits_c));
      end if;
      WalkReady <= '0' when random_v.chance(Stall_g) else '1';
    end procedure;

    procedure step is
    begin
      wait until rising_edge(Clk);
      cycle_v := cycle_v + 1;
      if RespValid = '1' and RespReady = '1' then
        checkResponse;
        progress_v := cycle_v;
      end if;
      if ReqValid = '1' and ReqReady = '1' then
        requests_v(accepted_v mod 256) := (to_integer(unsigned(ReqPage)),
                                           floors_v(to_integer(unsigned(ReqPage))), runs_v, cycle_v);
        accepted_v := accepted_v + 1;
        progress_v := cycle_v;
        ReqValid <= '0';
      end if;
      walk;
      if InvalValid = '1' and InvalReady = '1' then
        for page in to_integer(unsigned(InvalFirst)) to to_integer(unsigned(InvalLast)) loop
          floors_v(page) := version_v;
        end loop;
        runs_v := version_v;
        invals_v := invals_v + 1;
        changed_v := false;
        InvalValid <= '0';
      end if;
      check(cycle_v - progress_v < 5000, "nothing goes on");
    end procedure;

    procedure send (page : natural) is
    begin
      while ReqValid = '1' and ReqReady = '0' loop
        step;
      end loop;
      ReqValid <= '1';
      ReqPage  <= std_logic_vector(to_unsigned(page, WindowBits_c));
      step;
    end procedure;

    procedure settle is
      variable left_v : natural := 100 * Latency_c;
    begin
      step;
      while answered_v /= accepted_v or ReqValid = '1' or InvalValid = '1' loop
        step;
        left_v := left_v - 1;
        check(left_v /= 0, "a request without a response");
      end loop;
    end procedure;

    procedure get (page : natural) is
    begin
      send(page);
      settle;
    end procedure;

    procedure invalidate (firstPage, lastPage : natural) is
    begin
      InvalValid <= '1';
      InvalFirst <= std_logic_vector(to_unsigned(firstPage, WindowBits_c));
      InvalLast  <= std_logic_vector(to_unsigned(lastPage, WindowBits_c));
    end procedure;

  begin
    random_v.seed(Seed_g, 4711);
    test_runner_setup(runner, runner_cfg);
    for page in 0 to Pages_c - 1 loop
      images_v(0)(page) := (0, '1', (page * 37) mod 1024, (page * 37) mod 6);
    end loop;
    for i in 1 to 4 loop
      wait until rising_edge(Clk);
    end loop;
    Rst <= '0';

    while test_suite loop

      if run("random requests, changes and invalidations under stalls") then
        while accepted_v < 3000 loop
          if (ReqValid = '0' or ReqReady = '1') and random_v.chance(80) then
            ReqValid <= '1';
            page_v := random_v.pick(Pages_c) when random_v.chance(30) else random_v.pick(12);
            ReqPage <= std_logic_vector(to_unsigned(page_v, WindowBits_c));
          end if;
          if not changed_v and InvalValid = '0' and version_v < VersionsMax_c - 8 and random_v.pick(1000) < 6 then
            page_v := random_v.pick(12) when random_v.chance(60) else random_v.pick(Pages_c);
            started_v := 0 when random_v.chance(70) else 1 + random_v.pick(4);
            change(page_v, started_v, random_v.pick(1024), '1');
            if random_v.chance(20) then
              images_v(version_v)(page_v).writes := '0';
            end if;
            before_v := page_v;
            changed_v := true;
            if random_v.chance(40) then
              -- A run is another one because of some other of its pages, which is what is invalidated.
              images_v(version_v)(page_v) := images_v(version_v - 1)(page_v);
              images_v(version_v)(page_v).size := random_v.pick(6);
              before_v := random_v.pick(12);
            end if;
          elsif changed_v and InvalValid = '0' and random_v.chance(10) then
            invalidate(before_v - random_v.pick(minimum(3, before_v + 1)), before_v);
          end if;
          RespReady <= '0' when random_v.chance(Stall_g) else '1';
          step;
        end loop;
        RespReady <= '1';
        settle;
        check(faults_v > 10 and invals_v > 10, "faults and invalidations");
        check(2 ** SetBits_g * Ways_g < 16 or asked_v < 3 * accepted_v / 4,
          "what is held is not walked for: " & to_string(asked_v) & " walks");

      elsif run("what is held is there after two cycles, one each cycle, without a walk") then
        RespReady <= '1';
        -- As many as all sets have.
        for page in 0 to minimum(Ways_g * 2 ** SetBits_g, Pages_c) - 1 loop
          get(page);
        end loop;
        before_v := asked_v;
        check_equal(asked_v, minimum(Ways_g * 2 ** SetBits_g, Pages_c), "walks");
        get(1);
        check_equal(latency_v, 2, "cycles of a hit");
        started_v := cycle_v;
        for i in 1 to 200 loop
          send(i mod minimum(Ways_g * 2 ** SetBits_g, Pages_c));
        end loop;
        settle;
        check(Depth_g < 3 or cycle_v - started_v <= 210, to_string(cycle_v - started_v) & " cycles");
        check_equal(asked_v, before_v, "walks for what is held");

      elsif run("an invalidation drops its pages and no others, those on their way too") then
        RespReady <= '1';
        for page in 0 to 3 loop
          get(page);
        end loop;
        change(2, 0, 5);
        invalidate(2, 2);
        settle;
        before_v := asked_v;
        get(2);
        check_equal(frame_v, 5, "what it is now");
        get(3);
        get(1);
        check(2 ** SetBits_g * Ways_g < 8 or asked_v = before_v + 1, "one walk");
        -- On its way, with what it was before.
        send(9);
        for i in 1 to 6 loop
          step;
        end loop;
        walks_v((asked_v - 1) mod 256).floor := version_v;
        change(9, 0, 6);
        invalidate(9, 9);
        settle;
        before_v := asked_v;
        get(9);
        check_equal(asked_v, before_v + 1, "what was under way is not kept");
        check_equal(frame_v, 6, "what it is now");

      elsif run("a page is of its run until any invalidation, and dropped by the last of a count") then
        RespReady <= '1';
        change(4, 0, 64 + 5);
        floors_v := (others => version_v);
        for i in 1 to 2 loop
          get(4);
          check_equal(size_v, images_v(version_v)(4).size, "its run");
        end loop;
        before_v := asked_v;
        for i in 1 to 2 ** Epoch_g - 1 loop
          invalidate(90, 91);
          settle;
          get(4);
          check_equal(size_v, 0, "a single page");
        end loop;
        check_equal(asked_v, before_v, "walks for what is held");
        invalidate(90, 91);
        settle;
        get(4);
        check_equal(asked_v, before_v + 1, "all was dropped");
        check_equal(size_v, images_v(version_v)(4).size, "its run");

      elsif run("all pages are dropped by an invalidation of all") then
        RespReady <= '1';
        for round in 1 to 2 loop
          before_v := asked_v;
          for page in 20 to 27 loop
            get(page);
          end loop;
          check_equal(asked_v, before_v + 8, "walks");
          invalidate(0, Pages_c - 1);
          started_v := cycle_v;
          settle;
          get(0);
          check(cycle_v - started_v <= 2 ** SetBits_g + Latency_c + 16, "cycles of an invalidation");
        end loop;

      elsif run("faults, and what may not be written to, are not kept") then
        RespReady <= '1';
        change(4, 1, 0);
        change(5, 0, 77, '0');
        floors_v := (others => version_v);
        for i in 1 to 2 loop
          get(4);
          get(5);
        end loop;
        check_equal(asked_v, 4, "walks");

      end if;

    end loop;

    test_runner_cleanup(runner);
  end process;

  test_runner_watchdog(runner, 20 ms);

  i_l2 : entity work.l2_tlb
    generic map (
      PhysBits_g   => PhysBits_c,
      PageBits_g   => PageBits_c,
      WindowBits_g => WindowBits_c,
      SetBits_g    => SetBits_g,
      Ways_g       => Ways_g,
      Depth_g      => Depth_g,
      EpochBits_g  => Epoch_g
    )
    port map (
      Clk           => Clk,
      Rst           => Rst,
      Req_Valid     => ReqValid,
      Req_Ready     => ReqReady,
      Req_Page      => ReqPage,
      Req_Write     => '0',
      Look_Skip     => '0',
      Resp_Valid    => RespValid,
      Resp_Ready    => RespReady,
      Resp_Status   => RespStatus,
      Resp_Writable => RespWrites,
      Resp_Memory   => RespMemory,
      Resp_Size     => RespSize,
      Resp_Frame    => RespFrame,
      Walk_Valid    => WalkValid,
      Walk_Ready    => WalkReady,
      Walk_Page     => WalkPage,
      Walk_Write    => open,
      Came_Valid    => CameValid,
      Came_Ready    => CameReady,
      Came_Status   => CameStatus,
      Came_Writable => CameWrites,
      Came_Memory   => CameMemory,
      Came_Size     => CameSize,
      Came_Frame    => CameFrame,
      Inval_Valid   => InvalValid,
      Inval_Ready   => InvalReady,
      Inval_First   => InvalFirst,
      Inval_Last    => InvalLast,
      Event_Accept  => open,
      Event_Look    => open,
      Event_Held    => open
    );

end architecture;
