-- Bench of the allocator: it does what the model did, as the model's traces say (tests/allocator_trace.rs in
-- crates/card/src/window/alloc): every status, address and frame, every invalidation, every word of memory
-- after each operation. And how long operations take, and that no access that fails makes it hang or do harm.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;
  use ieee.math_real.all;

library std;
  use std.textio.all;

library vunit_lib;
  context vunit_lib.vunit_context;

library work;
  use work.alloc_pkg.all;
  use work.bit_pkg.all;
  use work.window_pkg.all;
  use work.table_memory_pkg.all;
  use work.random_pkg.all;

entity tb_allocator is
  generic (
    runner_cfg  : string;
    tb_path     : string;
    -- The trace's name, "none" for the tests that follow none, and its sizes.
    Trace_g     : string := "small";
    PageBits_g  : positive := 9;
    RootBits_g  : positive := 3;
    LeafBits_g  : positive := 5;
    FrameBits_g : positive := 7;
    Frames_g    : positive := 100;
    -- Of the tables' memory: its number, and frames of the others.
    Memory_g    : natural := 0;
    Others_g    : string := "";
    Latency_g   : positive := 71;
    Stall_g     : natural := 0;
    Seed_g      : positive := 1
  );
end entity;

architecture sim of tb_allocator is

  constant AddrBits_c   : positive := 48;
  constant WindowBits_c : positive := RootBits_g + LeafBits_g;
  constant BaseLow_c    : positive := PageBits_g + WindowBits_c;
  constant Window_c     : natural := 5;
  -- Whoever waits longer waits for ever, in cycles.
  constant Longest_c    : natural := 80000;
  constant Period_c     : time := 4 ns;
  constant Invals_c     : positive := 10000;
  constant Requesters_c : positive := 3;
  constant CmdBits_c    : positive := 72 + AddrBits_c;
  constant RespBits_c   : positive := 4 + AddrBits_c;

  type Pages_t is record
    first : natural;
    last  : natural;
  end record;

  -- Walks that will touch, of a trace; in the place behind them there is none.
  constant Walks_c      : positive := 8;
  constant TicketBits_c : positive := 24;

  -- Of as many allocations as may be dying.
  type Addrs_t is array (0 to 3) of std_logic_vector(AddrBits_c - 1 downto 0);

  type Walk_t is record
    seen   : std_logic;
    word   : std_logic_vector(63 downto 0);
    ticket : std_logic_vector(TicketBits_c - 1 downto 0);
  end record;

  constant NoWalk_c : Walk_t := ('0', (others => '0'), (others => '0'));

  type Walks_t is array (0 to Walks_c) of Walk_t;

  type Pages_All_t is array (0 to Invals_c - 1) of Pages_t;

  signal Clk         : std_logic := '0';
  signal Rst         : std_logic := '1';
  signal Now         : natural := 0;
  signal Base        : std_logic_vector(AddrBits_c - 1 downto BaseLow_c);
  signal Pause       : std_logic := '1';
  signal Busy        : std_logic;
  signal StepDone    : std_logic;
  signal Broken      : std_logic;
  signal CountWhich  : AllocStatus_t := (others => '0');
  signal Count       : std_logic_vector(31 downto 0);
  -- Requesters, of which Who commands; what they command is the same for all.
  signal Who         : natural range 0 to Requesters_c - 1 := 0;
  signal ReqValid    : std_logic_vector(Requesters_c - 1 downto 0) := (others => '0');
  signal ReqReady    : std_logic_vector(Requesters_c - 1 downto 0);
  signal ReqCmds     : std_logic_vector(Requesters_c * CmdBits_c - 1 downto 0);
  signal OutValid    : std_logic_vector(Requesters_c - 1 downto 0);
  signal OutReady    : std_logic_vector(Requesters_c - 1 downto 0) := (others => '0');
  signal OutResp     : std_logic_vector(RespBits_c - 1 downto 0);
  signal CmdValid    : std_logic;
  signal CmdReady    : std_logic;
  signal Cmd         : std_logic_vector(CmdBits_c - 1 downto 0);
  signal RespIn      : std_logic_vector(RespBits_c - 1 downto 0);
  signal CmdWhat     : AllocCommand_t := AllocMalloc_c;
  signal CmdBytes    : std_logic_vector(63 downto 0) := (others => '0');
  signal CmdAddr     : std_logic_vector(AddrBits_c - 1 downto 0) := (others => '0');
  signal CmdMemory   : std_logic_vector(3 downto 0) := (others => '0');
  signal CmdWritable : std_logic := '0';
  signal CmdLazy     : std_logic := '0';
  signal RespValid   : std_logic;
  signal RespReady   : std_logic;
  signal RespStatus  : AllocStatus_t;
  signal RespAddr    : std_logic_vector(AddrBits_c - 1 downto 0);
  signal TouchValid  : std_logic := '0';
  signal TouchReady  : std_logic;
  signal TouchPage   : std_logic_vector(WindowBits_c - 1 downto 0) := (others => '0');
  signal TouchWrite  : std_logic := '0';
  signal TouchSeen   : std_logic := '0';
  signal TouchWord   : std_logic_vector(63 downto 0) := (others => '0');
  signal TouchTicket : std_logic_vector(TicketBits_c - 1 downto 0) := (others => '0');
  signal Ticket      : std_logic_vector(TicketBits_c - 1 downto 0);
  signal FoundValid  : std_logic;
  signal FoundReady  : std_logic := '0';
  signal FoundStatus : Status_t;
  signal FoundWrites : std_logic;
  signal FoundMemory : std_logic_vector(3 downto 0);
  signal FoundSize   : std_logic_vector(4 downto 0);
  signal FoundFrame  : std_logic_vector(FrameBits_g - 1 downto 0);
  signal GatePage    : std_logic_vector(WindowBits_c - 1 downto 0) := (others => '0');
  signal GateClosed  : std_logic;
  signal RootValid   : std_logic;
  signal RootReady   : std_logic := '0';
  signal RootIndex   : std_logic_vector(RootBits_g - 1 downto 0);
  signal RootWord    : std_logic_vector(63 downto 0);
  signal InvalValid  : std_logic;
  signal InvalReady  : std_logic := '0';
  signal InvalFirst  : std_logic_vector(WindowBits_c - 1 downto 0);
  signal InvalLast   : std_logic_vector(WindowBits_c - 1 downto 0);
  signal InvalDone   : std_logic := '0';
  -- Invalidations that were taken, with their pages, that were done, and that may be done.
  signal Taken       : natural := 0;
  signal Invals      : Pages_All_t;
  signal Done        : natural := 0;
  signal Allowed     : natural := 0;
  signal AwValid     : std_logic;
  signal AwReady     : std_logic;
  signal AwAddr      : std_logic_vector(39 downto 0);
  signal WValid      : std_logic;
  signal WReady      : std_logic;
  signal WData       : Beat_t;
  signal WStrb       : std_logic_vector(Beat_t'length / 8 - 1 downto 0);
  signal BValid      : std_logic;
  signal BReady      : std_logic;
  signal BResp       : std_logic_vector(1 downto 0);
  signal ArValid     : std_logic;
  signal ArReady     : std_logic;
  signal ArAddr      : std_logic_vector(39 downto 0);
  signal RValid      : std_logic;
  signal RReady      : std_logic;
  signal RData       : Beat_t;
  signal RResp       : std_logic_vector(1 downto 0);
  -- Words that were read.
  signal Reads       : natural := 0;
  -- Frames that are free, as the allocator counts them.
  signal FramesFree  : std_logic_vector(FrameBits_g downto 0);

begin

  FramesFree <= << signal .tb_allocator.i_allocator.FramesFree : std_logic_vector(FrameBits_g downto 0) >>;

  Clk  <= not Clk after Period_c / 2;
  Now  <= Now + 1 when rising_edge(Clk);
  Reads <= Reads + 1 when rising_edge(Clk) and ArValid = '1' and ArReady = '1';
  Base <= std_logic_vector(to_unsigned(Window_c, Base'length));

  -- What the sweep gives back was in use.
  p_gives : process (Clk) is
    alias Giving_a is << signal .tb_allocator.i_allocator.SweepGiving : std_logic >>;
    alias Given_a is << signal .tb_allocator.i_allocator.i_frames.AnswerValid : std_logic >>;
    alias Ok_a is << signal .tb_allocator.i_allocator.i_frames.AnswerOk : std_logic >>;
  begin
    if rising_edge(Clk) then
      check(Giving_a /= '1' or Given_a /= '1' or Ok_a = '1', "the sweep gives back a frame that is not in use");
    end if;
  end process;

  -- Who asks for frames has all answers of another memory.
  p_asks : process (Clk) is
    alias Valid_a is << signal .tb_allocator.i_allocator.i_frames.StoreValid : std_logic >>;
    alias Ready_a is << signal .tb_allocator.i_allocator.i_frames.StoreReady : std_logic >>;
    alias Memory_a is << signal .tb_allocator.i_allocator.i_frames.StoreMemory : std_logic_vector(3 downto 0) >>;
    alias Given_a is << signal .tb_allocator.i_allocator.i_frames.AnswerValid : std_logic >>;
    variable under_way_v : natural := 0;
    variable memory_v    : std_logic_vector(3 downto 0);
  begin
    if rising_edge(Clk) then
      if Given_a = '1' and under_way_v /= 0 then
        under_way_v := under_way_v - 1;
      end if;
      if Valid_a = '1' then
        check(under_way_v = 0 or Memory_a = memory_v, "a memory is asked before another one has answered");
      end if;
      if Valid_a = '1' and Ready_a = '1' then
        under_way_v := under_way_v + 1;
        memory_v    := Memory_a;
      end if;
      if Rst = '1' then
        under_way_v := 0;
      end if;
    end if;
  end process;

  -- Root and translators.
  p_others : process is
    variable seed1_v : positive := Seed_g;
    variable seed2_v : positive := 11;
    variable wait_v  : natural := 0;

    impure function stalls return boolean is
      variable x_v : real;
    begin
      uniform(seed1_v, seed2_v, x_v);
      return x_v * 100.0 < real(Stall_g);
    end function;

  begin
    wait until rising_edge(Clk);
    if RootValid = '1' and RootReady = '1' then
      Tables.write(to_integer(unsigned(RootIndex)), RootWord);
    end if;
    RootReady <= '0' when stalls else '1';
    InvalDone <= '0';
    if InvalValid = '1' and InvalReady = '1' then
      Invals(Taken) <= (to_integer(unsigned(InvalFirst)), to_integer(unsigned(InvalLast)));
      Taken      <= Taken + 1;
      InvalReady <= '0';
    elsif Taken = Done then
      InvalReady <= '0' when stalls else '1';
    elsif Taken /= Done and Done < Allowed and InvalDone = '0' and not stalls then
      InvalDone <= '1';
      Done      <= Done + 1;
    end if;
  end process;

  p_test : process is
    variable random_v   : Random_t;
    file trace_f        : text;
    variable line_v     : line;
    variable what_v     : character;
    variable count_v    : natural := 0;
    variable expected_v : Pages_All_t;
    -- Invalidations so far; those behind one that is not done; one is not done; and those compared.
    variable invals_v   : natural := 0;
    variable behind_v   : natural := 0;
    variable drains_v   : boolean := false;
    -- The pages that are dying, of the one that is not done.
    variable gated_v    : Pages_t;
    variable checked_v  : natural := 0;
    variable a_v        : unsigned(63 downto 0);
    variable b_v        : unsigned(63 downto 0);
    variable c_v        : unsigned(63 downto 0);
    variable d_v        : unsigned(63 downto 0);
    variable e_v        : unsigned(63 downto 0);
    variable f_v        : unsigned(63 downto 0);
    variable g_v        : unsigned(63 downto 0);
    variable start_v    : natural;
    variable status_v   : AllocStatus_t;
    variable addr_v     : std_logic_vector(AddrBits_c - 1 downto 0);
    variable first_v    : std_logic_vector(AddrBits_c - 1 downto 0);
    variable cycles_v   : natural;
    variable steps_v    : natural;
    variable reads_v    : natural;
    variable walks_v    : Walks_t := (others => NoWalk_c);
    variable frame_v    : std_logic_vector(FrameBits_g - 1 downto 0);

    function oneHot (index : natural) return std_logic_vector is
      variable bits_v : std_logic_vector(Requesters_c - 1 downto 0) := (others => '0');
    begin
      bits_v(index) := '1';
      return bits_v;
    end function;

    procedure tick is
    begin
      wait until rising_edge(Clk);
    end procedure;

    -- The next number of the line.
    procedure number (value : out unsigned(63 downto 0)) is
      variable char_v  : character;
      variable good_v  : boolean := true;
      variable value_v : unsigned(63 downto 0) := (others => '0');
    begin
      read(line_v, char_v, good_v);
      check(good_v and char_v = ' ', "a number in line " & to_string(count_v));
      loop
        exit when line_v'length = 0;
        exit when line_v(line_v'low) = ' ';
        read(line_v, char_v, good_v);
        value_v := shift_left(value_v, 4);
        if char_v >= 'a' then
          value_v := value_v + (character'pos(char_v) - character'pos('a') + 10);
        else
          value_v := value_v + (character'pos(char_v) - character'pos('0'));
        end if;
      end loop;
      value := value_v;
    end procedure;

    procedure reset is
    begin
      for i in 0 to 2 ** RootBits_g - 1 loop
        Tables.write(i, (63 downto 0 => '0'));
        Tables.expect(i, (63 downto 0 => '0'));
      end loop;
      Rst   <= '1';
      Pause <= '1';
      for i in 1 to 4 loop
        tick;
      end loop;
      Rst <= '0';
      -- The stores are cleared.
      loop
        tick;
        exit when Busy = '0';
      end loop;
    end procedure;

    -- A command is taken.
    procedure command (
      what   : AllocCommand_t;
      bytes  : unsigned(63 downto 0);
      addr   : std_logic_vector;
      memory : natural;
      flags  : std_logic_vector(1 downto 0)
    ) is
      constant Limit_c : natural := Now + Longest_c;
    begin
      CmdWhat     <= what;
      CmdBytes    <= std_logic_vector(bytes);
      CmdAddr     <= addr;
      CmdMemory   <= std_logic_vector(to_unsigned(memory, 4));
      CmdWritable <= flags(0);
      CmdLazy     <= flags(1);
      Who <= random_v.pick(Requesters_c);
      wait for 0 ns;
      ReqValid(Who) <= '1';
      loop
        check(Now < Limit_c, "a command is not taken, line " & to_string(count_v));
        tick;
        exit when ReqReady(Who) = '1';
      end loop;
      ReqValid <= (others => '0');
      start_v := Now;
    end procedure;

    procedure answer (status : out AllocStatus_t; addr : out std_logic_vector) is
      constant Limit_c : natural := Now + Longest_c;
    begin
      loop
        check(Now < Limit_c, "no answer, line " & to_string(count_v));
        OutReady(Who) <= '1' when random_v.pick(100) >= Stall_g else '0';
        tick;
        check((OutValid and not oneHot(Who)) = (OutValid'range => '0'), "an answer for another");
        exit when OutValid(Who) = '1' and OutReady(Who) = '1';
      end loop;
      OutReady <= (others => '0');
      status := OutResp(RespBits_c - 1 downto AddrBits_c);
      addr   := OutResp(AddrBits_c - 1 downto 0);
      cycles_v := Now - start_v;
    end procedure;

    -- The place of a page's word, in words.
    impure function wordOf (page : natural) return natural is
      constant Directory_c : unsigned(63 downto 0) := unsigned(Tables.read(page / 2 ** LeafBits_g));
    begin
      return to_integer(Directory_c(63 downto NumberLow_c)) * 2 ** LeafBits_g + page mod 2 ** LeafBits_g;
    end function;

    -- A walk that begins now, and reads the word of its page at once.
    impure function walk (index : natural) return Walk_t is
    begin
      return ('1', Tables.read(index), Ticket);
    end function;

    procedure beginTouch (page : natural; writes : std_logic; walk : Walk_t := NoWalk_c) is
    begin
      TouchPage  <= std_logic_vector(to_unsigned(page, WindowBits_c));
      TouchWrite  <= writes;
      TouchSeen   <= walk.seen;
      TouchWord   <= walk.word;
      TouchTicket <= walk.ticket;
      TouchValid  <= '1';
      start_v     := Now;
      loop
        check(Now < start_v + Longest_c, "a touch is not taken");
        tick;
        exit when TouchReady = '1';
      end loop;
      TouchValid <= '0';
      start_v := Now;
      reads_v := Reads;
    end procedure;

    procedure endTouch is
    begin
      loop
        check(Now < start_v + Longest_c, "a touch is not answered");
        FoundReady <= '1' when random_v.pick(100) >= Stall_g else '0';
        tick;
        exit when FoundValid = '1' and FoundReady = '1';
      end loop;
      FoundReady <= '0';
      cycles_v := Now - start_v;
      reads_v  := Reads - reads_v;
    end procedure;

    procedure touch (page : natural; writes : std_logic; walk : Walk_t := NoWalk_c) is
    begin
      beginTouch(page, writes, walk);
      endTouch;
    end procedure;

    procedure invalidation (drains : boolean) is
    begin
      number(a_v);
      number(b_v);
      expected_v(invals_v) := (to_integer(a_v), to_integer(b_v));
      invals_v := invals_v + 1;
      if drains then
        number(c_v);
        gated_v  := (to_integer(c_v), to_integer(b_v));
        drains_v := true;
      elsif drains_v then
        behind_v := behind_v + 1;
      else
        Allowed <= invals_v;
      end if;
    end procedure;

    -- Everything that was begun is done: the same words are in memory, and the same pages were invalidated.
    procedure settle is
      constant Limit_c : natural := Now + Longest_c;
    begin
      loop
        check(Now < Limit_c, "an invalidation is not begun, line " & to_string(count_v));
        exit when Taken = invals_v - behind_v and (drains_v or Done = invals_v);
        tick;
      end loop;
      for i in 1 to 3 loop
        tick;
      end loop;
      loop
        check(Now < Limit_c, "it is not done, line " & to_string(count_v));
        exit when Busy = '0';
        tick;
      end loop;
      for i in checked_v to Taken - 1 loop
        check(Invals(i) = expected_v(i), "pages " & to_string(Invals(i).first) & " to " & to_string(Invals(i).last)
          & " are invalidated, of " & to_string(expected_v(i).first) & " to " & to_string(expected_v(i).last)
          & ", line " & to_string(count_v));
      end loop;
      checked_v := Taken;
      if Tables.different /= 0 then
        for i in 0 to 2 ** 16 - 1 loop
          if Tables.read(i) /= Tables.expected(i) then
            info("word " & to_hstring(to_unsigned(8 * i, 32)) & " is " & to_hstring(Tables.read(i))
              & ", not " & to_hstring(Tables.expected(i)));
          end if;
        end loop;
      end if;
      check_equal(Tables.different, 0, "other words, line " & to_string(count_v));
      check_equal(Broken, '0', "broken");
    end procedure;

    -- Walks of a page are answered with *not mapped*.
    procedure isGated (page : natural) is
    begin
      GatePage <= std_logic_vector(to_unsigned(page, WindowBits_c));
      tick;
      wait for 0 ns;
      check_equal(GateClosed, '1', "the gate to page " & to_string(page) & ", line " & to_string(count_v));
    end procedure;

    -- An invalidation is done, and those behind it.
    procedure letGo is
    begin
      isGated(gated_v.first);
      isGated(gated_v.last);
      drains_v := false;
      behind_v := 0;
      Allowed  <= invals_v;
    end procedure;

    procedure background is
      constant Begun_c : natural := Now;
    begin
      Pause <= '0';
      loop
        tick;
        exit when StepDone = '1';
        check(Now - Begun_c < Longest_c, "a step of the background is not done");
      end loop;
      Pause <= '1';
    end procedure;

    procedure follow is
    begin
      readline(trace_f, line_v);
      count_v := count_v + 1;
      read(line_v, what_v);
      if what_v /= 'v' and what_v /= 'i' and what_v /= 'w' and what_v /= 'z' then
        settle;
      end if;
      case what_v is
        when 'm' =>
          number(a_v);
          number(b_v);
          number(c_v);
          number(d_v);
          number(e_v);
          command(AllocMalloc_c, a_v, (AddrBits_c - 1 downto 0 => '1'), to_integer(b_v),
            std_logic_vector(c_v(1 downto 0)));
          answer(status_v, addr_v);
          check_equal(unsigned(status_v), to_integer(d_v), "status, line " & to_string(count_v));
          check(unsigned(addr_v) = e_v, "address " & to_hstring(addr_v) & ", line " & to_string(count_v));
        when 'f' | 'F' =>
          number(a_v);
          command(AllocFree_c, (others => '1'), std_logic_vector(a_v(AddrBits_c - 1 downto 0)), 9, "11");
          if what_v = 'f' then
            number(d_v);
            answer(status_v, addr_v);
            check_equal(unsigned(status_v), to_integer(d_v), "status, line " & to_string(count_v));
          end if;
        when 'r' | 'R' =>
          number(a_v);
          number(b_v);
          number(c_v);
          command(AllocRealloc_c, b_v, std_logic_vector(a_v(AddrBits_c - 1 downto 0)), 9, c_v(0) & '0');
          if what_v = 'r' then
            number(d_v);
            number(e_v);
            answer(status_v, addr_v);
            check_equal(unsigned(status_v), to_integer(d_v), "status, line " & to_string(count_v));
            check(unsigned(addr_v) = e_v, "address " & to_hstring(addr_v) & ", line " & to_string(count_v));
          end if;
        when 'h' =>
          -- It waits for steps that follow.
          number(a_v);
          number(b_v);
          number(c_v);
          command(AllocRealloc_c, b_v, std_logic_vector(a_v(AddrBits_c - 1 downto 0)), 9, c_v(0) & '0');
        when 'a' =>
          number(d_v);
          number(e_v);
          answer(status_v, addr_v);
          check_equal(unsigned(status_v), to_integer(d_v), "status, line " & to_string(count_v));
          check(unsigned(addr_v) = e_v, "address " & to_hstring(addr_v) & ", line " & to_string(count_v));
        when 'd' =>
          number(d_v);
          number(e_v);
          check_equal(RespValid, '0', "answered too early, line " & to_string(count_v));
          letGo;
          answer(status_v, addr_v);
          check_equal(unsigned(status_v), to_integer(d_v), "status, line " & to_string(count_v));
          check(unsigned(addr_v) = e_v, "address " & to_hstring(addr_v) & ", line " & to_string(count_v));
        when 'e' =>
          letGo;
        when 'b' =>
          background;
        when 't' =>
          number(a_v);
          number(b_v);
          number(c_v);
          number(d_v);
          number(e_v);
          number(f_v);
          number(g_v);
          touch(to_integer(a_v), b_v(0), walks_v(to_integer(f_v)));
          check_equal(reads_v, to_integer(g_v), "reads, line " & to_string(count_v));
          check_equal(unsigned(FoundStatus), to_integer(c_v), "status, line " & to_string(count_v));
          if c_v = 0 then
            check_equal(unsigned(FoundFrame), to_integer(d_v), "frame, line " & to_string(count_v));
            check_equal(FoundWrites, e_v(0), "rights, line " & to_string(count_v));
            check_equal(unsigned(FoundSize), to_integer(e_v(12 downto 8)), "size, line " & to_string(count_v));
            check_equal(unsigned(FoundMemory), to_integer(e_v(4 downto 1)), "memory, line " & to_string(count_v));
          end if;
        when 'k' =>
          number(a_v);
          number(b_v);
          walks_v(to_integer(a_v)) := walk(to_integer(b_v) / 8);
          if b_v = 0 then
            walks_v(to_integer(a_v)).seen := '0';
          end if;
        when 'v' =>
          invalidation(false);
        when 'i' =>
          invalidation(true);
        when 'w' =>
          number(a_v);
          number(b_v);
          Tables.expect(to_integer(a_v) / 8, std_logic_vector(b_v));
        when 'z' =>
          number(a_v);
          number(b_v);
          for i in to_integer(a_v) / 8 to to_integer(b_v) / 8 loop
            Tables.expect(i, (63 downto 0 => '0'));
          end loop;
        when others =>
          check(false, "line " & to_string(count_v) & " of the trace");
      end case;
    end procedure;

    -- Steps of the background, until there is nothing to do.
    procedure rest (steps : natural) is
    begin
      for i in 1 to steps loop
        background;
        loop
          tick;
          exit when Busy = '0' and Taken = Done;
        end loop;
      end loop;
    end procedure;

    -- What was freed is swept: how long it takes until its pages are no more dying, and all is quiet.
    procedure sweep (page : natural) is
    begin
      GatePage <= std_logic_vector(to_unsigned(page, WindowBits_c));
      Pause    <= '0';
      start_v  := Now;
      tick;
      check_equal(GateClosed, '1', "what is swept is dying");
      loop
        tick;
        exit when GateClosed = '0' and Busy = '0';
      end loop;
      cycles_v := Now - start_v;
      Pause    <= '1';
    end procedure;

    -- A malloc of so many pages, and a free; how long it took.
    procedure malloc (pages : positive; lazy : std_logic; memory : natural := 0) is
    begin
      command(AllocMalloc_c, shift_left(to_unsigned(pages, 64), PageBits_g), (AddrBits_c - 1 downto 0 => '0'), memory,
        lazy & '1');
      answer(status_v, addr_v);
      cycles_v := Now - start_v;
    end procedure;

    procedure free (addr : std_logic_vector) is
    begin
      command(AllocFree_c, (others => '0'), addr, 0, "00");
      answer(status_v, addr_v);
    end procedure;

    -- A realloc to so many pages.
    procedure realloc (addr : std_logic_vector; pages : natural; lazy : std_logic) is
      constant Addr_c : std_logic_vector(AddrBits_c - 1 downto 0) := addr;
    begin
      command(AllocRealloc_c, shift_left(to_unsigned(pages, 64), PageBits_g), Addr_c, 0, lazy & '0');
      answer(status_v, addr_v);
      cycles_v := Now - start_v;
    end procedure;

    -- How often there was this status, or an error of memory.
    procedure counted (which : AllocStatus_t; times : natural) is
    begin
      CountWhich <= which;
      for i in 1 to 3 loop
        tick;
      end loop;
      check_equal(unsigned(Count), times, "count of " & to_hstring(which));
    end procedure;

    -- The command that has ended was refused, as so many with this status before, and nothing has changed.
    procedure refused (what : string; status : AllocStatus_t; times : positive) is
    begin
      check_equal(status_v, status, what);
      check_equal(unsigned(addr_v), 0, what);
      counted(status, times);
      for i in 1 to 2 * Latency_g + 20 loop
        tick;
      end loop;
      check(Taken = Done and Busy = '0' and Broken = '0', what & ": something has come of it");
      check_equal(Tables.different, 0, what & ": other words");
    end procedure;

    procedure inTime (what : string; limit : positive) is
    begin
      check_equal(unsigned(status_v), 0, what);
      check(cycles_v <= limit, what & ": " & to_string(cycles_v) & " cycles");
      info(what & ": " & to_string(cycles_v) & " cycles");
      -- Its invalidation is shown two cycles later.
      for i in 1 to 3 loop
        tick;
      end loop;
      loop
        tick;
        exit when Busy = '0' and Taken = Done;
      end loop;
    end procedure;

    -- The first page of the allocation that was given last.
    impure function pageOf (addr : std_logic_vector(AddrBits_c - 1 downto 0)) return natural is
    begin
      return to_integer(unsigned(addr(BaseLow_c - 1 downto PageBits_g)));
    end function;

    -- Accesses fail from one on. Whoever is answered with an error may ask again when they do no more,
    -- unless a word was to be written.
    procedure survive (from : natural) is
      variable failed_v : natural := 0;
      variable large_v  : std_logic_vector(AddrBits_c - 1 downto 0);

      procedure again is
      begin
        if unsigned(status_v) = 0 then
          check(Broken = '0' and not Tables.isSpoilt, "ends well, although a word was not written");
        else
          check_equal(status_v, AllocBusError_c, "status");
          failed_v := failed_v + 1;
        end if;
      end procedure;

    begin
      Tables.fail(from);
      for i in 1 to 3 loop
        malloc(2, '0');
        again;
        if Broken = '0' and unsigned(status_v) = 0 then
          first_v := addr_v;
        end if;
      end loop;
      malloc(3, '1');
      again;
      if unsigned(status_v) = 0 then
        touch(to_integer(unsigned(addr_v(BaseLow_c - 1 downto PageBits_g))), '1');
        check(FoundStatus = StatusOk_c or FoundStatus = StatusBusError_c, "a touch");
        failed_v := failed_v + 1 when FoundStatus /= StatusOk_c;
      end if;
      malloc(2 ** LeafBits_g + 3, '0');
      again;
      if unsigned(status_v) = 0 then
        large_v := addr_v;
        -- Words of its table are cut, then those of its run go to a table.
        realloc(large_v, 2 ** LeafBits_g + 1, '0');
        again;
        realloc(large_v, 2 ** LeafBits_g - 3, '0');
        again;
        free(large_v);
        again;
        -- It is swept: no more than four may be dying.
        Pause <= '0';
        for i in 1 to 1500 loop
          tick;
        end loop;
        Pause <= '1';
      end if;
      if failed_v = 0 then
        for pages in 3 downto 1 loop
          realloc(first_v, pages, '0');
          again;
          if unsigned(status_v) = 0 then
            first_v := addr_v;
          end if;
        end loop;
      end if;
      free(first_v);
      if failed_v = 0 then
        again;
      end if;
      -- Whether the sweep fails or not, the next command is answered.
      Pause <= '0';
      for i in 1 to 500 loop
        tick;
      end loop;
      Pause <= '1';
      Tables.fail(-1);
      malloc(1, '0');
      check((unsigned(status_v) /= 0) = (Broken = '1'), "what is broken does no more, and else all is well");
      check(Broken = '1' or not Tables.isSpoilt, "a word was not written, and nobody knows");
      check(status_v = AllocOk_c or status_v = AllocBusError_c, "status");
    end procedure;

    -- The same of what makes allocations larger: a small one becomes large; it gets a page, and a region, where it
    -- is; it goes elsewhere. How many of them ended with an error.
    procedure surviveGrowth (from : natural; failed : out natural) is
      variable failed_v : natural := 0;

      procedure grow (pages : positive) is
      begin
        realloc(first_v, pages, '0');
        if unsigned(status_v) = 0 then
          check(Broken = '0' and not Tables.isSpoilt, "ends well, although a word was not written");
          first_v := addr_v;
        else
          check_equal(status_v, AllocBusError_c, "status");
          failed_v := failed_v + 1;
        end if;
      end procedure;

    begin
      malloc(3, '0');
      first_v := addr_v;
      malloc(1, '1');
      Tables.fail(from);
      grow(2 ** LeafBits_g + 2);
      grow(2 ** LeafBits_g + 3);
      grow(2 ** (LeafBits_g + 1));
      malloc(2 ** LeafBits_g, '1');
      grow(2 ** (LeafBits_g + 1) + 1);
      Pause <= '0';
      for i in 1 to 500 loop
        tick;
      end loop;
      Pause <= '1';
      Tables.fail(-1);
      malloc(1, '0');
      check((unsigned(status_v) /= 0) = (Broken = '1'), "what is broken does no more, and else all is well");
      check(Broken = '1' or not Tables.isSpoilt, "a word was not written, and nobody knows");
      failed := failed_v;
    end procedure;

    -- A walk that begins so many cycles from now, and reads later.
    procedure race (page : natural; cycle : natural; later : natural; walk : out Walk_t) is
      variable walk_v : Walk_t := NoWalk_c;
    begin
      for i in 1 to cycle loop
        tick;
      end loop;
      walk_v.ticket := Ticket;
      for i in 1 to later loop
        tick;
      end loop;
      walk_v.seen := '1';
      walk_v.word := Tables.read(wordOf(page));
      walk := walk_v;
    end procedure;

    -- The page has that frame, and its word says so.
    procedure hasFrame (page : natural; frame : std_logic_vector) is
      constant Word_c : std_logic_vector(63 downto 0) := Tables.read(wordOf(page));
    begin
      check_equal(FoundStatus, StatusOk_c, "a page that has a frame");
      check_equal(unsigned(FoundFrame), unsigned(frame), "another frame");
      check_equal(unsigned(Word_c(NumberLow_c + FrameBits_g - 1 downto NumberLow_c)), unsigned(frame), "in the word");
    end procedure;

    -- A page is touched, and meanwhile a walk of it begins.
    procedure touchRacing (page : natural; cycle : natural; later : natural) is
    begin
      beginTouch(page, '1', walk(wordOf(page)));
      race(page, cycle, later, walks_v(0));
      endTouch;
      frame_v := FoundFrame;
      touch(page, '1', walks_v(0));
      hasFrame(page, frame_v);
    end procedure;

    -- A page is allocated with a frame, and meanwhile a walk of it begins.
    procedure mallocRacing (page : natural; cycle : natural; later : natural) is
    begin
      command(AllocMalloc_c, to_unsigned(1, 64), (AddrBits_c - 1 downto 0 => '0'), 0, "01");
      race(page, cycle, later, walks_v(0));
      answer(status_v, addr_v);
      check_equal(unsigned(status_v), 0, "malloc");
      check_equal(unsigned(addr_v(BaseLow_c - 1 downto PageBits_g)), page, "the same place");
      touch(page, '1', walks_v(0));
      hasFrame(page, Tables.read(wordOf(page))(NumberLow_c + FrameBits_g - 1 downto NumberLow_c));
    end procedure;

    -- The background does all that there is to do.
    procedure settleDown is
    begin
      Pause <= '0';
      for i in 1 to 4 * Latency_g + 200 loop
        tick;
      end loop;
      loop
        exit when Busy = '0' and Taken = Done;
        tick;
      end loop;
      Pause <= '1';
    end procedure;

    -- A large allocation was cut, and what it has lost is not swept: a realloc to more pages waits for that. It is
    -- answered if memory fails meanwhile, too.
    procedure growthWaits (fails : boolean) is
    begin
      malloc(2 ** LeafBits_g + 12, '0');
      first_v := addr_v;
      realloc(first_v, 2 ** LeafBits_g + 4, '0');
      check_equal(status_v, AllocOk_c, "a cut");
      command(AllocRealloc_c, shift_left(to_unsigned(2 ** LeafBits_g + 20, 64), PageBits_g), first_v, 0, "00");
      for i in 1 to 300 loop
        tick;
        check(OutValid = "000", "grows into what is dying");
      end loop;
      if fails then
        Tables.fail(0);
      end if;
      Pause <= '0';
      answer(status_v, addr_v);
      Pause <= '1';
      Tables.fail(-1);
      check(status_v = AllocBusError_c or not fails, "an answer with an error");
      check(status_v = AllocOk_c or fails, "an answer");
      check_equal(Broken = '1', fails, "broken");
      if not fails then
        touch(pageOf(first_v) + 2 ** LeafBits_g + 19, '1');
        check_equal(FoundStatus, StatusOk_c, "the last page");
        free(first_v);
        settleDown;
      end if;
    end procedure;

    -- Of two allocations, each with a run of 64 frames, eight change places. When one of them is swept nobody gets
    -- those of the other, though they lie in the midst of its run.
    procedure comesBack is
      variable one_v   : natural;
      variable other_v : natural;
      variable word_v  : std_logic_vector(63 downto 0);
      variable page_v  : natural;
      variable older_v : std_logic_vector(AddrBits_c - 1 downto 0);
    begin
      malloc(64, '0');
      first_v := addr_v;
      one_v   := wordOf(to_integer(unsigned(addr_v(BaseLow_c - 1 downto PageBits_g))));
      malloc(64, '0');
      other_v := wordOf(to_integer(unsigned(addr_v(BaseLow_c - 1 downto PageBits_g))));
      for i in 8 to 15 loop
        word_v := Tables.read(one_v + i);
        Tables.write(one_v + i, Tables.read(other_v + i));
        Tables.write(other_v + i, word_v);
      end loop;
      free(first_v);
      settleDown;
      loop
        malloc(64, '0');
        exit when unsigned(status_v) /= 0;
        older_v := first_v;
        first_v := addr_v;
        page_v := to_integer(unsigned(addr_v(BaseLow_c - 1 downto PageBits_g)));
        for given in 0 to 63 loop
          for kept in 8 to 15 loop
            check(Tables.read(wordOf(page_v) + given)(63 downto NumberLow_c) /=
              Tables.read(other_v + kept)(63 downto NumberLow_c), "a frame is given twice");
          end loop;
        end loop;
      end loop;
      check_equal(status_v, AllocNoFrames_c, "until there are no frames");
      -- So few are free that those that come back are given first, in their order: two of them to tables that are to
      -- be ready.
      word_v := Tables.read(wordOf(page_v) + 2);
      free(first_v);
      settleDown;
      free(older_v);
      settleDown;
      malloc(1, '0');
      page_v := to_integer(unsigned(addr_v(BaseLow_c - 1 downto PageBits_g)));
      check(Tables.read(wordOf(page_v))(63 downto NumberLow_c) = word_v(63 downto NumberLow_c),
        "a frame that did not come back first");
    end procedure;

    -- A free, whose mark is visible in time.
    procedure freed (what : string; addr : std_logic_vector) is
      constant Taken_c : natural := Taken;
    begin
      command(AllocFree_c, (others => '0'), addr, 0, "00");
      loop
        tick;
        exit when Taken /= Taken_c;
      end loop;
      cycles_v := Now - start_v;
      info(what & ", mark visible: " & to_string(cycles_v) & " cycles");
      check(cycles_v <= 170, what & ", mark visible: " & to_string(cycles_v) & " cycles");
      answer(status_v, addr_v);
      inTime(what, 180);
    end procedure;

    -- The root maps so many pages of the allocation that was given last, which are whole regions, and its end or not.
    procedure checkRuns (pages : positive; ends : boolean := true) is
      constant First_c : natural := to_integer(unsigned(addr_v(BaseLow_c - 1 downto PageBits_g))) / 2 ** LeafBits_g;
      constant Count_c : positive := pages / 2 ** LeafBits_g;
      variable word_v  : std_logic_vector(63 downto 0);
    begin
      for region in First_c to First_c + Count_c - 1 loop
        word_v := Tables.read(region);
        check(word_v(ValidBit_c) = '1' and word_v(TableBit_c) = '0', "a run");
        check_equal(unsigned(word_v(SizeLow_c + SizeBits_c - 1 downto SizeLow_c)), LeafBits_g, "its size");
        check_equal(word_v(FirstBit_c) = '1', region = First_c, "the first");
        check_equal(word_v(LastBit_c) = '1', ends and region = First_c + Count_c - 1, "the last");
      end loop;
    end procedure;

    -- The words of so many pages change their frames: no two pages behind each other have frames that are, or lie in
    -- one word of bits.
    procedure scatter (page : natural; pages : positive) is
      type Words_t is array (0 to pages - 1) of std_logic_vector(63 downto 0);

      constant Place_c : natural := wordOf(page);
      -- It has no divisor but 1 with any count of pages that is asked for here.
      constant Step_c  : positive := 73;
      variable words_v : Words_t;
      variable word_v  : std_logic_vector(63 downto 0);
    begin
      for i in words_v'range loop
        words_v(i) := Tables.read(Place_c + i);
      end loop;
      for i in words_v'range loop
        word_v := words_v(i);
        word_v(63 downto NumberLow_c) := words_v(i * Step_c mod pages)(63 downto NumberLow_c);
        Tables.write(Place_c + i, word_v);
      end loop;
    end procedure;

    -- So many pages are freed and swept, from the first step's begin until nothing is left to do. Their frames all
    -- come back: there are as many again.
    procedure swept (pages : positive; is_scattered : boolean; limit : natural := 0) is
      -- A page a cycle, behind the words of the first step, which are read and written by the beat.
      constant Scattered_c : positive := 220 + 2 * minimum(pages, 512) / 8 + pages;
      variable page_v  : natural;
      variable place_v : natural;
      variable free_v  : unsigned(FrameBits_g downto 0);
    begin
      settleDown;
      free_v := unsigned(FramesFree);
      malloc(pages, '0');
      check_equal(status_v, AllocOk_c, "malloc");
      -- A table is ready again.
      settleDown;
      page_v  := pageOf(addr_v);
      place_v := wordOf(page_v);
      if is_scattered then
        scatter(page_v, pages);
      end if;
      free(addr_v);
      sweep(page_v);
      if is_scattered then
        inTime("sweep of " & to_string(pages) & " pages, scattered frames", Scattered_c);
      else
        inTime("sweep of " & to_string(pages) & " pages, frames lie as they do", limit);
      end if;
      for i in 0 to pages - 1 loop
        check(unsigned(Tables.read(place_v + i)) = 0, "a word that is not swept");
      end loop;
      settleDown;
      check_equal(unsigned(FramesFree), free_v, "frames that are free again");
    end procedure;

    -- An allocation of so many pages, which begins so far behind a beat, moves: in time, but for so many cycles more,
    -- with its frames.
    procedure moved (pages : positive; behind : natural) is
      type Words_t is array (0 to pages - 1) of std_logic_vector(63 downto 0);

      variable words_v : Words_t;
      variable old_v   : natural;
      variable word_v  : std_logic_vector(63 downto 0);
      variable run_v   : positive;
      variable new_v   : std_logic_vector(addr_v'range);
    begin
      for i in 1 to behind loop
        malloc(1, '0');
      end loop;
      -- It grows in place, as it would be aligned else, until another is in its way.
      malloc(1, '0');
      realloc(addr_v, pages, '0');
      check_equal(status_v, AllocOk_c, "in place");
      first_v := addr_v;
      old_v   := pageOf(addr_v);
      check_equal(old_v mod BeatWords_c, behind, "its place");
      malloc(1, '0');
      check_equal(pageOf(addr_v), old_v + pages, "in its way");
      settleDown;
      for i in words_v'range loop
        words_v(i) := Tables.read(wordOf(old_v) + i);
      end loop;
      realloc(first_v, pages + 1, '0');
      check(addr_v /= first_v, "elsewhere");
      inTime("realloc, " & to_string(pages) & " pages move, from " & to_string(behind) & " behind a beat to its begin",
        400 + pages / 7);
      new_v := addr_v;
      check_equal(pageOf(new_v) mod BeatWords_c, 0, "its new place");
      malloc(1, '0');
      check_equal(pageOf(addr_v), pageOf(new_v) + pages + 1, "a page behind it, at once");
      for i in words_v'range loop
        word_v := Tables.read(wordOf(pageOf(new_v)) + i);
        check(word_v(63 downto NumberLow_c) = words_v(i)(63 downto NumberLow_c), "the frame of page " & to_string(i));
        -- A run that is told is one: its frames lie as its pages do.
        run_v := 2 ** to_integer(unsigned(word_v(SizeLow_c + SizeBits_c - 1 downto SizeLow_c)));
        check_equal(to_integer(unsigned(word_v(62 downto NumberLow_c))) mod run_v, i mod run_v,
          "the run of page " & to_string(i));
      end loop;
      settleDown;
    end procedure;

    -- Of a region whose first two pages are in use, and which is not the open one, all others are given out.
    procedure fillsRegion (first : natural) is
    begin
      malloc(2 ** LeafBits_g - 2, '1');
      check_equal(status_v, AllocOk_c, "all other pages of a region");
      check_equal(pageOf(addr_v), first + 2, "behind those in use");
    end procedure;

    -- Pages behind a cut: of nine steps, none of which begins with a beat, or with a run.
    procedure sweptBehindCut is
      constant Free_c  : unsigned(FrameBits_g downto 0) := unsigned(FramesFree);
      constant Pages_c : positive := 4160;
      constant Stays_c : positive := 12;
    begin
      malloc(Pages_c, '0');
      settleDown;
      realloc(addr_v, Stays_c, '0');
      sweep(pageOf(addr_v) + Stays_c);
      inTime("sweep of " & to_string(Pages_c - Stays_c) & " pages behind a cut", 3000);
      settleDown;
      -- But for the table's, as those that are ready are others.
      check_equal(unsigned(FramesFree), Free_c - Stays_c - 2 ** (LeafBits_g + 3 - PageBits_g), "frames that are free");
    end procedure;

    -- Large allocations get more pages, and a small one becomes large.
    procedure largeGrows is
      constant Region_c : positive := 2 ** LeafBits_g;
      constant Moves_c  : positive := Region_c - 1;

      type Roots_t is array (0 to 3) of std_logic_vector(63 downto 0);

      variable roots_v  : Roots_t;
    begin
      malloc(Region_c + 1000, '0');
      first_v := addr_v;
      settleDown;
      realloc(first_v, Region_c + 1001, '0');
      check_equal(unsigned(addr_v), unsigned(first_v), "in place");
      inTime("realloc of a large one, a page more, in place", 200);
      realloc(first_v, Region_c + 1002, '0');
      inTime("realloc of a large one, a page more, before the mark of the last one is taken away", 400);
      realloc(first_v, 4 * Region_c, '0');
      check_equal(unsigned(addr_v), unsigned(first_v), "in place");
      inTime("realloc of a large one to two regions more, in place", 2000);
      -- In its way.
      malloc(1, '0');
      settleDown;
      for i in roots_v'range loop
        roots_v(i) := Tables.read(pageOf(first_v) / Region_c + i);
        check_equal(roots_v(i)(ValidBit_c), '1', "the root leads to region " & to_string(i));
      end loop;
      realloc(first_v, 4 * Region_c + 1, '0');
      check(addr_v /= first_v, "elsewhere");
      for i in roots_v'range loop
        check(Tables.read(pageOf(addr_v) / Region_c + i)(63 downto NumberLow_c) = roots_v(i)(63 downto NumberLow_c),
          "what region " & to_string(i) & " has goes along");
      end loop;
      inTime("realloc of a large one, " & to_string(4 * Region_c) & " pages move", 400 + 4 * Region_c / 7);
      reset;
      rest(2);
      malloc(Moves_c, '0');
      first_v := addr_v;
      malloc(1, '0');
      settleDown;
      realloc(first_v, Region_c, '0');
      check(addr_v /= first_v, "elsewhere");
      inTime("realloc of a small one, " & to_string(Moves_c) & " pages move, to a large one", 400 + Moves_c / 7);
      settleDown;
    end procedure;

    -- A large allocation of so many regions, none of which has a run, as no frames of one lie as its pages do: those
    -- that are free lie behind each other, or every second one.
    procedure leafWords (regions : positive; is_scattered : boolean; limit : positive) is
      -- As many as make no large allocation.
      constant Pages_c : positive := 2 ** LeafBits_g - 1;

      type Frees_t is array (0 to 2 * regions - 1) of std_logic_vector(AddrBits_c - 1 downto 0);

      variable all_v   : Frees_t;
      variable one_v   : natural;
      variable other_v : natural;

      -- The frames of two words.
      procedure changePlaces (one : natural; other : natural) is
        constant One_c   : std_logic_vector(63 downto 0) := Tables.read(one);
        constant Other_c : std_logic_vector(63 downto 0) := Tables.read(other);
      begin
        Tables.write(one, Other_c(63 downto NumberLow_c) & One_c(NumberLow_c - 1 downto 0));
        Tables.write(other, One_c(63 downto NumberLow_c) & Other_c(NumberLow_c - 1 downto 0));
      end procedure;

    begin
      for i in all_v'range loop
        malloc(Pages_c, '0');
        check_equal(status_v, AllocOk_c, "half of the frames");
        all_v(i) := addr_v;
        settleDown;
      end loop;
      for i in 0 to regions - 1 loop
        one_v   := wordOf(pageOf(all_v(2 * i)));
        other_v := wordOf(pageOf(all_v(2 * i + 1)));
        if is_scattered then
          for page in 0 to Pages_c / 2 - 1 loop
            changePlaces(one_v + 2 * page, other_v + 2 * page + 1);
          end loop;
        end if;
        free(all_v(2 * i));
        sweep(pageOf(all_v(2 * i)));
        settleDown;
      end loop;
      malloc(regions * 2 ** LeafBits_g, '0');
      if is_scattered then
        inTime("malloc of regions of scattered frames, by words: " & to_string(regions), limit);
      else
        inTime("malloc of regions of contiguous frames, by words: " & to_string(regions), limit);
      end if;
      for i in 0 to regions - 1 loop
        check_equal(Tables.read(pageOf(addr_v) / 2 ** LeafBits_g + i)(TableBit_c), '1', "a table");
      end loop;
    end procedure;

    -- A page is touched in some cycle of a sweep: its frame is nobody else's.
    procedure touchSweeping (cycle : natural) is
      variable lazy_v  : natural;
      variable page_v  : natural;
      variable given_v : Addrs_t;
    begin
      malloc(1, '1');
      first_v := addr_v;
      lazy_v  := pageOf(addr_v);
      malloc(30, '0');
      page_v := pageOf(addr_v);
      settleDown;
      scatter(page_v, 30);
      free(addr_v);
      Pause <= '0';
      for i in 1 to cycle loop
        tick;
      end loop;
      touch(lazy_v, '1');
      frame_v := FoundFrame;
      settleDown;
      hasFrame(lazy_v, frame_v);
      for i in given_v'range loop
        malloc(20, '0');
        exit when status_v /= AllocOk_c;
        given_v(i) := addr_v;
        steps_v    := i;
        for page in pageOf(addr_v) to pageOf(addr_v) + 19 loop
          check(Tables.read(wordOf(page))(63 downto NumberLow_c) /= Tables.read(wordOf(lazy_v))(63 downto NumberLow_c),
            "a frame of two pages");
        end loop;
      end loop;
      for i in 0 to steps_v loop
        free(given_v(i));
        settleDown;
      end loop;
      free(first_v);
      settleDown;
    end procedure;

    -- Every input that is bad, one after the other.
    procedure refuseAll is
      constant Pages_c : natural := 2 ** WindowBits_c;
      constant Page_c   : natural := 2 ** PageBits_g;
      variable from_v   : unsigned(AddrBits_c - 1 downto 0);
      variable other_v  : std_logic_vector(AddrBits_c - 1 downto 0);

      procedure freeAt (offset : integer) is
      begin
        free(std_logic_vector(unsigned(signed(from_v) + offset)));
      end procedure;

    begin
      malloc(3, '0');
      first_v := addr_v;
      from_v  := unsigned(addr_v);
      malloc(2, '1');
      free(addr_v);
      settleDown;
      Tables.accept_all;
      counted(AllocOk_c, 3);
      command(AllocMalloc_c, to_unsigned(0, 64), first_v, 0, "01");
      answer(status_v, addr_v);
      refused("a malloc of nothing", AllocZeroSize_c, 1);
      realloc(first_v, 0, '0');
      refused("a realloc to nothing", AllocZeroSize_c, 2);
      command(AllocMalloc_c, (63 downto 0 => '1'), first_v, 0, "01");
      answer(status_v, addr_v);
      refused("bytes that overflow", AllocTooLarge_c, 1);
      malloc(Pages_c + 1, '1');
      refused("a page more than the window has", AllocTooLarge_c, 2);
      realloc(first_v, Pages_c + 1, '1');
      refused("a realloc to a page more than the window has", AllocTooLarge_c, 3);
      command(AllocMalloc_c, to_unsigned(1, 64), first_v, 1, "01");
      answer(status_v, addr_v);
      refused("a memory that there is not", AllocUnknownMemory_c, 1);
      malloc(Pages_c, '1');
      refused("more than is free in the window", AllocNoSpace_c, 1);
      malloc(Frames_g, '0');
      refused("as many pages as frames, of which tables have some", AllocNoFrames_c, 1);
      realloc(first_v, Frames_g, '0');
      refused("a realloc to as many pages as frames", AllocNoFrames_c, 2);
      freeAt(3 * Page_c);
      refused("a free of what was freed and swept", AllocNotAllocated_c, 1);
      freeAt(5 * Page_c);
      refused("a free of what nobody ever had", AllocNotAllocated_c, 2);
      freeAt((Pages_c - 1) * Page_c);
      refused("a free in a region that nobody has", AllocNotAllocated_c, 3);
      freeAt(Pages_c * Page_c);
      refused("a free behind the window", AllocNotAllocated_c, 4);
      freeAt(-Page_c);
      refused("a free before the window", AllocNotAllocated_c, 5);
      freeAt(1);
      refused("a free of a byte that is not the first", AllocInside_c, 1);
      freeAt(Page_c);
      refused("a free of a page that is not the first", AllocInside_c, 2);
      realloc(std_logic_vector(from_v + Page_c), 4, '0');
      refused("a realloc of a page that is not the first", AllocInside_c, 3);
      Tables.fail(0);
      free(first_v);
      Tables.fail(-1);
      refused("a free whose word cannot be read", AllocBusError_c, 1);
      counted(AllocReadsFailed_c, 1);
      counted(AllocWritesFailed_c, 0);
      -- Twice, before the sweep and behind it.
      free(first_v);
      check_equal(status_v, AllocOk_c, "a free");
      Tables.accept_all;
      free(first_v);
      refused("a free of what was freed", AllocNotAllocated_c, 6);
      realloc(first_v, 4, '0');
      refused("a realloc of what was freed", AllocNotAllocated_c, 7);
      settleDown;
      counted(AllocOk_c, 4);
      -- One of two regions, which does not fill the second one.
      malloc(2 ** LeafBits_g + 8, '1');
      check_equal(status_v, AllocOk_c, "a large malloc");
      first_v := addr_v;
      from_v  := unsigned(addr_v);
      Tables.accept_all;
      malloc(Pages_c - 2 ** (LeafBits_g + 1) + 1, '1');
      refused("as many regions as are empty, and one more", AllocNoSpace_c, 2);
      freeAt(1);
      refused("a free of a byte of a large one", AllocInside_c, 4);
      freeAt(Page_c);
      refused("a free of a page of a large one", AllocInside_c, 5);
      freeAt(2 ** LeafBits_g * Page_c);
      refused("a free of a region of a large one", AllocInside_c, 6);
      realloc(std_logic_vector(from_v + Page_c), 4, '1');
      refused("a realloc of a page of a large one", AllocInside_c, 7);
      realloc(first_v, 0, '1');
      refused("a realloc of a large one to nothing", AllocZeroSize_c, 3);
      realloc(first_v, Pages_c + 1, '1');
      refused("a realloc of a large one to more than the window has", AllocTooLarge_c, 4);
      freeAt((2 ** LeafBits_g + 8) * Page_c);
      refused("a free of the page behind a large one", AllocNotAllocated_c, 8);
      -- With one page behind it there are fewer regions in a row.
      malloc(1, '1');
      other_v := addr_v;
      settleDown;
      Tables.accept_all;
      realloc(first_v, Pages_c - 2 ** (LeafBits_g + 1), '1');
      refused("a realloc of a large one to more regions than are empty in a row", AllocNoSpace_c, 3);
      realloc(other_v, Pages_c - 2 ** (LeafBits_g + 1), '1');
      refused("a realloc of a small one to as many", AllocNoSpace_c, 4);
      realloc(first_v, 2 ** LeafBits_g + 8 + Frames_g, '0');
      refused("a realloc of a large one to more pages by all frames", AllocNoFrames_c, 3);
      realloc(first_v, Pages_c - 2 ** (LeafBits_g + 1), '0');
      refused("a realloc of a large one for which there is neither", AllocNoFrames_c, 4);
      free(other_v);
      check_equal(status_v, AllocOk_c, "a free of the small one");
      settleDown;
      free(first_v);
      check_equal(status_v, AllocOk_c, "a free of a large one");
      Tables.accept_all;
      free(first_v);
      refused("a free of a large one that was freed", AllocNotAllocated_c, 9);
      freeAt(2 ** LeafBits_g * Page_c);
      refused("a free of a region of it", AllocNotAllocated_c, 10);
      settleDown;
      free(first_v);
      refused("a free of what was swept", AllocNotAllocated_c, 11);
      counted(AllocOk_c, 8);
    end procedure;

    -- As many pages as frames are free, of which two tables are needed: two runs and a table of 32 pages were taken.
    procedure planFails is
    begin
      rest(2);
      malloc(98, '0');
      check_equal(status_v, AllocNoFrames_c, "a frame too few, with the table");
      for times in 1 to 2 loop
        malloc(97, '0');
        check_equal(status_v, AllocOk_c, "all that was taken has come back");
        free(addr_v);
        settleDown;
      end loop;
    end procedure;

    -- No table is ready: that of the second region is zeroed, and nobody has the page behind the last one.
    procedure lastRegion is
      variable page_v : natural;
    begin
      malloc(40, '0');
      check_equal(status_v, AllocOk_c, "a region and a quarter");
      page_v := pageOf(addr_v);
      checkRuns(32, false);
      for page in page_v + 40 to page_v + 63 loop
        check(unsigned(Tables.read(wordOf(page))) = 0, "a word behind the last page");
      end loop;
      touch(page_v + 39, '1');
      check_equal(FoundStatus, StatusOk_c, "the last page");
      touch(page_v + 40, '1');
      check_equal(FoundStatus, StatusNotMapped_c, "the page behind it");
      free(addr_v);
      settleDown;
    end procedure;

    -- The last frame becomes that of a table, and there is none for the page: the table is there for the next touch.
    procedure tableComesBack is
      variable page_v : natural;
    begin
      malloc(96, '1');
      page_v := pageOf(addr_v);
      touch(page_v, '1');
      check_equal(FoundStatus, StatusOk_c, "a first touch");
      malloc(1, '0');
      first_v := addr_v;
      malloc(64, '0');
      checkRuns(64);
      malloc(31, '0');
      check_equal(status_v, AllocOk_c, "all frames but one");
      touch(page_v + 32, '1');
      check_equal(FoundStatus, StatusNoFrame_c, "a frame for the table alone");
      free(first_v);
      settleDown;
      touch(page_v + 32, '1');
      check_equal(FoundStatus, StatusOk_c, "a frame for the page");
    end procedure;

    -- There is no table that could take the place of a run of which a part is to go, until a page comes back.
    procedure splitFails is
      variable lazy_v  : natural;
      variable large_v : std_logic_vector(AddrBits_c - 1 downto 0);
    begin
      rest(2);
      malloc(64, '0');
      large_v := addr_v;
      checkRuns(64);
      malloc(160, '1');
      lazy_v := pageOf(addr_v);
      for region in 0 to 4 loop
        touch(lazy_v + 32 * region, '1');
        check_equal(FoundStatus, StatusOk_c, "a first touch, and a table");
      end loop;
      loop
        malloc(1, '0');
        exit when unsigned(status_v) /= 0;
        first_v := addr_v;
      end loop;
      check_equal(status_v, AllocNoFrames_c, "until there are no frames");
      Tables.accept_all;
      realloc(large_v, 40, '0');
      refused("a realloc that splits a run", AllocNoFrames_c, 2);
      free(first_v);
      settleDown;
      realloc(large_v, 40, '0');
      check_equal(status_v, AllocOk_c, "a realloc that splits a run");
      touch(pageOf(large_v) + 39, '1');
      check_equal(FoundStatus, StatusOk_c, "the last page");
      check_equal(unsigned(FoundSize), 3, "its run ends with it");
      touch(pageOf(large_v) + 40, '1');
      check_equal(FoundStatus, StatusNotMapped_c, "the page behind it");
    end procedure;

    -- Of what a large allocation would have got all comes back where it is refused: a run, and the table of its last
    -- region, which has none. Then it gets what it can.
    procedure growthFails is
      variable free_v : unsigned(FrameBits_g downto 0);
      variable lazy_v : natural;
    begin
      rest(2);
      malloc(32, '1');
      lazy_v := pageOf(addr_v);
      malloc(40, '1');
      first_v := addr_v;
      -- One of the ready tables is taken.
      touch(pageOf(first_v), '1');
      Tables.accept_all;
      free_v := unsigned(FramesFree);
      -- Tables for two regions, of which one has to be made, runs for those between them, and a frame too few.
      realloc(first_v, 40 + to_integer(free_v), '0');
      refused("a realloc by all frames, and for a table too", AllocNoFrames_c, 1);
      free_v := free_v - 1;
      check_equal(unsigned(FramesFree), free_v, "frames that are free, but for that of a table that is ready now");
      touch(pageOf(first_v) + 40, '1');
      check_equal(FoundStatus, StatusNotMapped_c, "the page behind the last one");
      touch(pageOf(first_v) + 39, '1');
      check_equal(FoundStatus, StatusOk_c, "the last one");
      check_equal(Tables.read(pageOf(first_v) / 32 + 1)(TableBit_c), '1', "it gets a table, as there is none");
      free_v := free_v - 1;
      realloc(first_v, 40 + 30, '0');
      check_equal(status_v, AllocOk_c, "a realloc");
      check_equal(unsigned(FramesFree), free_v - 30, "frames for its pages; tables were ready");
      -- No table is to be had without a frame, and the last region has words already.
      touch(lazy_v, '1');
      check_equal(FoundStatus, StatusOk_c, "a page and a table");
      free_v := unsigned(FramesFree);
      realloc(first_v, 40 + 30 + to_integer(free_v), '0');
      check_equal(status_v, AllocNoFrames_c, "a realloc by all frames again");
      check_equal(unsigned(FramesFree), free_v - 1, "frames that are free, and that of a table that is ready now");
      touch(pageOf(first_v) + 39, '1');
      check_equal(FoundStatus, StatusOk_c, "a page of before");
      touch(pageOf(first_v) + 69, '1');
      check_equal(FoundStatus, StatusOk_c, "the last page");
      touch(pageOf(first_v) + 70, '1');
      check_equal(FoundStatus, StatusNotMapped_c, "the page behind it");
    end procedure;

    -- The last region of the window is one of a large allocation, and the first ones are empty: it goes there.
    procedure growsAtEnd is
      variable large_v : std_logic_vector(AddrBits_c - 1 downto 0);
    begin
      malloc(192, '1');
      first_v := addr_v;
      malloc(64, '1');
      large_v := addr_v;
      free(first_v);
      settleDown;
      realloc(large_v, 96, '1');
      check_equal(status_v, AllocOk_c, "a realloc");
      check_equal(pageOf(addr_v), 0, "its place");
      touch(95, '1');
      check_equal(FoundStatus, StatusOk_c, "the last page");
    end procedure;

    -- A touch meanwhile gets none of the frames that are promised to a large allocation that moves.
    procedure framesArePromised is
      variable lazy_v : natural;
    begin
      malloc(1, '1');
      lazy_v := pageOf(addr_v);
      malloc(64, '0');
      first_v := addr_v;
      settleDown;
      -- In its way.
      malloc(32, '1');
      Allowed <= Done;
      -- One region more, of which the words need all frames that there are.
      command(AllocRealloc_c, shift_left(to_unsigned(64, 64) + unsigned(FramesFree), PageBits_g), first_v, 0, "00");
      for i in 1 to 300 loop
        tick;
      end loop;
      touch(lazy_v, '1');
      check_equal(FoundStatus, StatusNoFrame_c, "a frame that is promised");
      Allowed <= 1000000;
      answer(status_v, addr_v);
      check_equal(status_v, AllocOk_c, "a realloc");
      check(addr_v /= first_v, "elsewhere");
      check_equal(unsigned(FramesFree), 0, "frames that are free");
      settleDown;
    end procedure;

    -- A large allocation was freed before another one was cut within a region: both are swept one behind the other.
    procedure sweptInARow is
      variable large_v : std_logic_vector(AddrBits_c - 1 downto 0);
    begin
      rest(2);
      malloc(40, '1');
      first_v := addr_v;
      malloc(72, '0');
      large_v := addr_v;
      check_equal(status_v, AllocOk_c, "a large malloc");
      free(first_v);
      realloc(large_v, 50, '0');
      check_equal(status_v, AllocOk_c, "a cut");
      settleDown;
      for page in pageOf(large_v) + 50 to pageOf(large_v) + 63 loop
        check(unsigned(Tables.read(wordOf(page))) = 0, "a word behind the cut");
      end loop;
      touch(pageOf(large_v) + 49, '1');
      check_equal(FoundStatus, StatusOk_c, "the last page");
      free(large_v);
      settleDown;
      malloc(97, '0');
      check_equal(status_v, AllocOk_c, "all frames but those of tables have come back");
    end procedure;

    -- The last page of a large allocation that fills its last region has the mark when it is touched, and no other one.
    procedure lastTouched is
      constant Pages_c : positive := 2 ** (LeafBits_g + 1);
      variable word_v  : std_logic_vector(63 downto 0);
    begin
      malloc(Pages_c, '1');
      check_equal(status_v, AllocOk_c, "a large malloc");
      for back in 1 to 2 loop
        touch(pageOf(addr_v) + Pages_c - back, '1');
        check_equal(FoundStatus, StatusOk_c, "a touch");
        word_v := Tables.read(wordOf(pageOf(addr_v) + Pages_c - back));
        check_equal(word_v(LastBit_c) = '1', back = 1, "the last");
      end loop;
    end procedure;

    -- A realloc in place takes room in its region, also where a large allocation was made before.
    procedure roomIsCounted is
    begin
      malloc(1, '1');
      first_v := addr_v;
      malloc(40, '1');
      realloc(first_v, 30, '1');
      check_equal(status_v, AllocOk_c, "a realloc in place");
      malloc(4, '1');
      check_equal(status_v, AllocOk_c, "a malloc of more than is left there");
    end procedure;

    -- Of a large allocation fewer pages: a word of its last region cannot be read, and nothing has changed.
    procedure failShrink is
    begin
      malloc(2 ** LeafBits_g + 12, '0');
      first_v := addr_v;
      settleDown;
      Tables.accept_all;
      Tables.fail(0);
      realloc(first_v, 2 ** LeafBits_g + 4, '0');
      Tables.fail(-1);
      refused("a cut whose words cannot be read", AllocBusError_c, 1);
      realloc(first_v, 2 ** LeafBits_g + 4, '0');
      check_equal(status_v, AllocOk_c, "a cut");
      free(first_v);
      settleDown;
    end procedure;

    -- A page is touched for the first time, and gets a frame of its allocation's memory, or is told why not.
    procedure touchIn (memory : natural; page : natural; what : string; status : Status_t := StatusOk_c) is
    begin
      touch(page, '1');
      check_equal(FoundStatus, status, what);
      if status = StatusOk_c then
        check_equal(unsigned(FoundMemory), memory, what & ": its memory");
      end if;
    end procedure;

    -- One memory is full after the other: it refuses, and those that are not go on. Tables are in the second one.
    procedure memoriesFill is
      variable full_v  : std_logic_vector(AddrBits_c - 1 downto 0);
      variable none_v  : natural;
      variable large_v : natural;
      variable grows_v : std_logic_vector(AddrBits_c - 1 downto 0);
    begin
      rest(2);
      malloc(48, '0', 0);
      check_equal(status_v, AllocOk_c, "all of the first one");
      full_v := addr_v;
      malloc(1, '1', 0);
      none_v := pageOf(addr_v);
      malloc(1, '0', 2);
      check_equal(status_v, AllocOk_c, "a page of the third one");
      grows_v := addr_v;
      touchIn(2, pageOf(grows_v), "a page of the third one");
      malloc(96, '1', 2);
      large_v := pageOf(addr_v);
      check_equal(status_v, AllocOk_c, "as many pages as it has frames, which they get later");
      Tables.accept_all;
      malloc(1, '0', 0);
      refused("a page of a full memory", AllocNoFrames_c, 1);
      malloc(96, '0', 2);
      refused("more pages than the third one has", AllocNoFrames_c, 2);
      malloc(1, '0', 3);
      refused("a fourth memory", AllocUnknownMemory_c, 1);
      malloc(1, '1', 15);
      refused("a memory of the largest number", AllocUnknownMemory_c, 2);
      touchIn(0, none_v, "a first touch of a full memory", StatusNoFrame_c);
      touchIn(2, large_v, "one of the third one, and a table");
      -- Now those of the tables; then a page of them comes back, of which two tables are made.
      loop
        malloc(1, '0', 1);
        exit when unsigned(status_v) /= 0;
        first_v := addr_v;
      end loop;
      check_equal(status_v, AllocNoFrames_c, "until the second one is full too");
      free(first_v);
      settleDown;
      malloc(1, '0', 1);
      check_equal(status_v, AllocNoFrames_c, "its last frame is for tables");
      touchIn(2, large_v + 32, "the third one has frames, and a table is ready");
      touchIn(2, large_v + 64, "another one");
      realloc(grows_v, 2, '0');
      check_equal(status_v, AllocOk_c, "a page more in place, of the memory that its allocation has");
      touchIn(2, pageOf(addr_v) + 1, "the page that it got");
      malloc(32, '1', 2);
      check_equal(status_v, AllocOk_c, "a region more, whose pages have no words yet");
      touchIn(2, pageOf(addr_v), "no table is to be had", StatusNoFrame_c);
      -- Those that come back do so to their memory.
      free(full_v);
      settleDown;
      touchIn(0, none_v, "the first one has frames again");
      malloc(1, '0', 1);
      check_equal(status_v, AllocNoFrames_c, "the second one has none");
    end procedure;

    -- Frames of one memory are promised: the others' are not.
    procedure promisesAreOfOne is
      variable one_v   : natural;
      variable other_v : natural;
    begin
      malloc(1, '1', 0);
      other_v := pageOf(addr_v);
      malloc(1, '1', 2);
      one_v := pageOf(addr_v);
      malloc(12, '0', 2);
      malloc(64, '0', 2);
      first_v := addr_v;
      settleDown;
      -- In its way.
      malloc(32, '1', 2);
      -- The first one has fewer frames than will be promised.
      malloc(30, '0', 0);
      check_equal(status_v, AllocOk_c, "pages of the first one");
      Allowed <= Done;
      command(AllocRealloc_c, shift_left(to_unsigned(64 + 20, 64), PageBits_g), first_v, 0, "00");
      for i in 1 to 300 loop
        tick;
      end loop;
      touchIn(2, one_v, "a frame that is promised", StatusNoFrame_c);
      touchIn(0, other_v, "one of another memory");
      Allowed <= 1000000;
      answer(status_v, addr_v);
      check_equal(status_v, AllocOk_c, "a realloc");
      check(addr_v /= first_v, "elsewhere");
      touchIn(2, one_v, "there is none any more", StatusNoFrame_c);
      touchIn(2, pageOf(addr_v) + 83, "the last page");
    end procedure;

    -- Few frames are free of one memory, and many of the others: those that come back to it are given first, in their
    -- order.
    procedure fewAreOfOne is
      variable last_v : std_logic_vector(AddrBits_c - 1 downto 0);
      variable lazy_v : natural;
      variable back_v : natural;
    begin
      malloc(1, '0', 2);
      last_v := addr_v;
      malloc(8, '0', 2);
      first_v := addr_v;
      back_v := to_integer(unsigned(Tables.read(wordOf(pageOf(addr_v)))(63 downto NumberLow_c)));
      malloc(9, '1', 2);
      lazy_v := pageOf(addr_v);
      malloc(96 - 9, '0', 2);
      check_equal(status_v, AllocOk_c, "all of the third one");
      free(first_v);
      settleDown;
      for i in 0 to 3 loop
        touchIn(2, lazy_v + 2 * i, "a frame of those that came back");
        check_equal(unsigned(FoundFrame), back_v + i, "the next one");
      end loop;
      free(last_v);
      settleDown;
      touchIn(2, lazy_v + 8, "a frame");
      check_equal(unsigned(FoundFrame), back_v + 4, "of those that came back first");
    end procedure;

    -- Somebody writes into the first word of an allocation that it has so many pages behind that one.
    procedure claims (page : natural; more : natural) is
      variable word_v : std_logic_vector(63 downto 0) := Tables.read(wordOf(page));
    begin
      word_v(PagesLow_c + PagesBits_c - 1 downto PagesLow_c) := std_logic_vector(to_unsigned(more, PagesBits_c));
      Tables.write(wordOf(page), word_v);
      GatePage <= std_logic_vector(to_unsigned(page, WindowBits_c));
      tick;
    end procedure;

    -- A ticket tells of sixteen touches, and of a word only if the walk has seen one.
    procedure ticketsGrowOld is
      variable old_v : Walk_t;
      variable page_v : natural;
    begin
      malloc(19, '1');
      page_v := to_integer(unsigned(addr_v(BaseLow_c - 1 downto PageBits_g)));
      touch(page_v + 18, '1', ('0', (others => '0'), Ticket));
      check(FoundStatus = StatusOk_c and reads_v = 1, "a walk that has seen nothing");
      old_v := walk(wordOf(page_v));
      for i in 0 to 17 loop
        touch(page_v + i, '1', walk(wordOf(page_v + i)));
        check(FoundStatus = StatusOk_c and reads_v = 0, "a new ticket");
        if i = 0 then
          frame_v := FoundFrame;
        end if;
        touch(page_v, '1', old_v);
        check((reads_v = 1) = (i >= 16), "reads for a ticket, touches since: " & to_string(i + 1));
        hasFrame(page_v, frame_v);
      end loop;
      free(addr_v);
      settleDown;
    end procedure;

    -- A touch, and a free, whose read fails, or whose write, or none of them.
    procedure failOne (from : natural) is
    begin
      malloc(3, '1');
      Tables.fail(from);
      touch(to_integer(unsigned(addr_v(BaseLow_c - 1 downto PageBits_g))), '1');
      check((FoundStatus = StatusOk_c) = (from = 2), "a touch");
      check(FoundStatus = StatusOk_c or FoundStatus = StatusBusError_c, "a touch");
      check((Broken = '1') = (from = 1), "a touch, and all that follows");
      if Broken = '0' then
        Tables.fail(from);
        free(addr_v);
        check((status_v = AllocOk_c) = (from = 2), "a free");
        check(status_v = AllocOk_c or status_v = AllocBusError_c, "a free");
      else
        free(addr_v);
        check_equal(status_v, AllocBusError_c, "a free of what is broken");
      end if;
      Tables.fail(-1);
    end procedure;

    -- As many ranges are dying as there may be, and none is swept, as memory has failed: a command is answered.
    procedure failFull is
      variable pages_v : Addrs_t;
    begin
      for i in pages_v'range loop
        malloc(1, '0');
        pages_v(i) := addr_v;
      end loop;
      malloc(1, '1');
      first_v := addr_v;
      for i in pages_v'range loop
        free(pages_v(i));
        check_equal(status_v, AllocOk_c, "a free");
      end loop;
      Tables.fail(1);
      touch(to_integer(unsigned(first_v(BaseLow_c - 1 downto PageBits_g))), '1');
      check_equal(Broken, '1', "a page's word was not written");
      malloc(1, '0');
      check_equal(status_v, AllocBusError_c, "a malloc of what is broken");
      Tables.fail(-1);
    end procedure;

    -- Fewer pages: a word cannot be read, and nothing has changed.
    procedure failCut (from : natural) is
      variable page_v : natural;
    begin
      malloc(14, '0');
      page_v := to_integer(unsigned(addr_v(BaseLow_c - 1 downto PageBits_g)));
      for i in 0 to 13 loop
        Tables.expect(wordOf(page_v) + i, Tables.read(wordOf(page_v) + i));
      end loop;
      Tables.fail(from);
      realloc(addr_v, 12, '0');
      check_equal(status_v, AllocBusError_c, "a realloc");
      check_equal(Broken, '0', "nothing was written");
      Tables.fail(-1);
      for i in 0 to 13 loop
        check(Tables.read(wordOf(page_v) + i) = Tables.expected(wordOf(page_v) + i), "another word");
      end loop;
      GatePage <= std_logic_vector(to_unsigned(page_v + 13, WindowBits_c));
      tick;
      check_equal(GateClosed, '0', "nothing is dying");
      free(Base & std_logic_vector(to_unsigned(page_v, WindowBits_c)) & (PageBits_g - 1 downto 0 => '0'));
      check_equal(status_v, AllocOk_c, "all of it");
      settleDown;
    end procedure;

  begin
    random_v.seed(Seed_g, 99);
    test_runner_setup(runner, runner_cfg);
    while test_suite loop
      reset;
      Allowed <= 1000000 when Trace_g = "none" else 0;

      if run("the model does the same") then
        file_open(trace_f, tb_path & "allocator_" & Trace_g & ".trace", read_mode);
        while not endfile(trace_f) loop
          follow;
        end loop;
        settle;
        check(count_v > 1000 and invals_v > 100, "lines: " & to_string(count_v));
        info(to_string(Now) & " cycles");

      elsif run("operations take few cycles") then
        -- Two tables become ready.
        rest(2);
        malloc(1, '0');
        inTime("malloc, the first in an empty space", 150);
        malloc(1, '0');
        inTime("malloc", 150);
        first_v := addr_v;
        malloc(64, '0');
        inTime("malloc, 64 pages, contiguous frames", 200);
        malloc(5, '1');
        inTime("malloc, lazy", 150);
        touch(to_integer(unsigned(addr_v(BaseLow_c - 1 downto PageBits_g))) + 2, '1');
        check(FoundStatus = StatusOk_c, "a touch");
        inTime("first touch, the word is read again", 170);
        steps_v := to_integer(unsigned(addr_v(BaseLow_c - 1 downto PageBits_g)));
        for i in 3 to 4 loop
          touch(steps_v + i, '1', walk(wordOf(steps_v + i)));
          check(FoundStatus = StatusOk_c and reads_v = 0, "a touch with a ticket");
          inTime("first touch with a ticket", 100);
        end loop;
        steps_v := Taken;
        command(AllocFree_c, (others => '0'), first_v, 0, "00");
        loop
          tick;
          exit when Taken /= steps_v;
        end loop;
        cycles_v := Now - start_v;
        info("free, mark visible: " & to_string(cycles_v) & " cycles");
        check(cycles_v <= 170, "free, mark visible: " & to_string(cycles_v) & " cycles");
        answer(status_v, addr_v);
        inTime("free", 180);
        start_v := Now;
        rest(2);
        cycles_v := Now - start_v;
        inTime("sweep of one page", 320);
        -- The last of those that were given has free pages behind it; with one before it is as it was.
        malloc(1, '0');
        first_v := addr_v;
        malloc(64, '0');
        inTime("malloc, 64 pages, behind others", 300);
        realloc(addr_v, 65, '0');
        check(addr_v /= first_v, "in place");
        inTime("realloc, one page more, in place", 200);
        realloc(addr_v, 66, '0');
        inTime("realloc, one page more, in place, before the mark of the last one is taken away", 400);
        rest(2);
        realloc(first_v, 2, '0');
        check(addr_v /= first_v, "elsewhere");
        inTime("realloc, one page moves", 400);
        settleDown;
        malloc(64, '0');
        first_v := addr_v;
        malloc(64, '0');
        settleDown;
        realloc(first_v, 65, '0');
        check(addr_v /= first_v, "elsewhere");
        inTime("realloc, 64 pages move", 400 + 64 / 7);
        realloc(addr_v, 60, '0');
        inTime("realloc, five pages fewer", 320);

      elsif run("operations on many pages take as many cycles") then
        rest(2);
        -- Both fill a region.
        malloc(400, '0');
        first_v := addr_v;
        malloc(112, '0');
        settleDown;
        realloc(first_v, 401, '0');
        check(addr_v /= first_v, "elsewhere");
        inTime("realloc, 400 pages move", 400 + 400 / 7);
        reset;
        rest(2);
        moved(400, 5);
        reset;
        rest(2);
        swept(400, false, 400);
        swept(64, true);
        swept(400, true);

      elsif run("operations of the sweep give back what the words name") then
        comesBack;

      elsif run("a space that is nearly full has a page in few cycles") then
        rest(2);
        -- Of both regions the last page is free: no search is longer, however what is in use is shared out.
        for region in 0 to 1 loop
          malloc(2 ** LeafBits_g - 1, '1');
          check_equal(status_v, AllocOk_c, "a region but for a page");
        end loop;
        rest(1);
        malloc(1, '0');
        inTime("malloc, the last page of the open region", 600);
        malloc(1, '0');
        inTime("malloc, the last page of another region", 600);
        malloc(1, '0');
        check_equal(status_v, AllocNoSpace_c, "a full window");

      elsif run("a space that is nearly full has places where its bitmaps are still written") then
        rest(2);
        malloc(1, '0');
        first_v := addr_v;
        malloc(1, '0');
        check_equal(pageOf(addr_v), pageOf(first_v) + 1, "the page behind it, at once");
        malloc(2 ** LeafBits_g - 3, '1');
        settleDown;
        free(first_v);
        -- The sweep's invalidation is done while words of a new region are written, behind the malloc's own.
        Allowed <= Done;
        Pause   <= '0';
        loop
          tick;
          exit when Taken /= Done;
        end loop;
        Pause <= '1';
        command(AllocMalloc_c, shift_left(to_unsigned(2, 64), PageBits_g), (AddrBits_c - 1 downto 0 => '0'), 0, "01");
        for i in 1 to 2 * Latency_g loop
          tick;
        end loop;
        Allowed <= 1000000;
        answer(status_v, addr_v);
        fillsRegion(pageOf(addr_v));
        reset;
        rest(2);
        malloc(2 ** LeafBits_g - 1, '1');
        first_v := addr_v;
        malloc(2, '0');
        steps_v := pageOf(addr_v);
        -- The background writes the bitmap at once.
        rest(1);
        free(first_v);
        settleDown;
        check_equal(steps_v, pageOf(first_v) + 2 ** LeafBits_g, "a region of its own");
        fillsRegion(steps_v);

      elsif run("large allocations take few cycles") then
        rest(2);
        malloc(65536, '0');
        inTime("malloc, 65,536 pages, by the root", 300);
        first_v := addr_v;
        checkRuns(65536);
        freed("free, 65,536 pages", first_v);
        start_v := Now;
        -- A step for each of the eight regions, and one to leave them.
        rest(9);
        cycles_v := Now - start_v;
        inTime("sweep of 65,536 pages, by the root", 65536 / 8);
        -- The last region has a table, of which 1024 words are in use: two steps of the sweep.
        malloc(8192 + 1024, '0');
        inTime("malloc of a region, and 1024 pages more", 2000);
        steps_v := wordOf(pageOf(addr_v) + 8192);
        first_v := addr_v;
        realloc(first_v, 8192 + 1000, '0');
        inTime("realloc of it to 24 pages fewer, up to the answer", 420);
        realloc(first_v, 5000, '0');
        inTime("realloc of it to 5000 pages, whose run gets a table, up to the answer", 8192 / 8 + 420);
        -- Both sweeps, which leave a region, and that of the rest.
        free(first_v);
        rest(18);
        for i in 0 to 1023 loop
          check(unsigned(Tables.read(steps_v + i)) = 0, "a word that is not swept");
        end loop;

        reset;
        rest(2);
        moved(8000, 0);
        reset;
        rest(2);
        moved(8000, 3);
        reset;
        rest(2);
        swept(4096, true);
        swept(4096, false, 2500);
        sweptBehindCut;
        reset;
        rest(2);
        largeGrows;

      elsif run("words of two regions take a cycle for eight pages") then
        rest(2);
        leafWords(2, false, 2400);

      elsif run("words of two regions take a cycle for each page whose frame is scattered") then
        -- vunit: .long
        rest(2);
        leafWords(2, true, 70000 / 4);

      elsif run("words of eight regions take a cycle for eight pages") then
        -- vunit: .long
        rest(2);
        leafWords(8, false, 9000);

      elsif run("words of eight regions take a cycle for each page whose frame is scattered") then
        -- vunit: .long
        rest(2);
        leafWords(8, true, 70000);

      elsif run("commands while the stores are cleared are refused") then
        Rst <= '1';
        tick;
        Rst <= '0';
        malloc(1, '0');
        check_equal(status_v, AllocInitialising_c);
        counted(AllocInitialising_c, 1);
        loop
          tick;
          exit when Busy = '0';
        end loop;
        malloc(1, '0');
        check_equal(status_v, AllocOk_c);

      elsif run("what is refused is counted, and changes nothing") then
        refuseAll;

      elsif run("what large allocations take comes back") then
        -- While no table has been zeroed.
        lastRegion;
        reset;
        planFails;
        reset;
        tableComesBack;
        reset;
        splitFails;
        reset;
        growthFails;
        reset;
        framesArePromised;
        reset;
        growsAtEnd;
        reset;
        roomIsCounted;
        reset;
        sweptInARow;
        reset;
        lastTouched;

      elsif run("memories are full by themselves") then
        memoriesFill;
        reset;
        promisesAreOfOne;
        reset;
        fewAreOfOne;

      elsif run("requesters are served in turn") then
        malloc(1, '1');
        first_v  := addr_v;
        CmdBytes <= std_logic_vector(shift_left(to_unsigned(1, 64), PageBits_g));
        ReqValid <= (others => '1');
        OutReady <= (others => '1');
        for i in 1 to 12 loop
          steps_v := (Who + i) mod Requesters_c;
          loop
            tick;
            exit when OutValid /= (OutValid'range => '0');
          end loop;
          check(OutValid = oneHot(steps_v), "answer " & to_string(i) & " is for " & to_string(OutValid));
          check_equal(unsigned(OutResp(RespBits_c - 1 downto AddrBits_c)), 0, "status");
          -- Places are given one behind the other.
          check(unsigned(OutResp(AddrBits_c - 1 downto 0)) = unsigned(first_v) + i * 2 ** PageBits_g, "address");
        end loop;
        OutReady <= (others => '0');

      elsif run("a touch is answered while an invalidation is under way") then
        malloc(1, '1');
        first_v := addr_v;
        malloc(4, '1');
        free(first_v);
        rest(1);
        first_v := addr_v;
        malloc(4, '1');
        -- From here on the sweep's invalidation is not done, as an access of before waits for a page.
        Allowed <= Done;
        steps_v := to_integer(unsigned(addr_v(BaseLow_c - 1 downto PageBits_g)));
        for i in 1 to 2 loop
          background;
          exit when InvalValid = '1' or Taken /= Done;
        end loop;
        for i in 1 to 20 loop
          tick;
        end loop;
        command(AllocMalloc_c, to_unsigned(1, 64), first_v, 0, "01");
        for i in 1 to 400 loop
          tick;
          check(OutValid = "000", "a malloc is answered before its pages were told");
        end loop;
        for i in 0 to 3 loop
          touch(steps_v + i, '1');
          check(FoundStatus = StatusOk_c, "a touch");
        end loop;
        Allowed <= 1000000;
        answer(status_v, addr_v);
        check_equal(unsigned(status_v), 0, "the malloc");
        loop
          tick;
          exit when Busy = '0' and Taken = Done;
        end loop;

      elsif run("a walk that raced a change gets what is now") then
        ticketsGrowOld;
        -- Whatever cycle of the change it took its ticket in, and however later it read.
        for cycle in 0 to 2 * Latency_g + 40 loop
          malloc(1, '1');
          steps_v := to_integer(unsigned(addr_v(BaseLow_c - 1 downto PageBits_g)));
          touchRacing(steps_v, cycle, random_v.pick(10));
          -- The same place, with a frame from the beginning: a walk of before has seen that it was free.
          free(addr_v);
          settleDown;
          mallocRacing(steps_v, cycle, random_v.pick(10));
          free(addr_v);
          settleDown;
        end loop;

      elsif run("a page that is touched while frames come back has one of its own") then
        for cycle in 0 to 40 loop
          touchSweeping(2 * cycle);
        end loop;

      elsif run("a first word that somebody else has changed is refused") then
        malloc(1, '1');
        malloc(3, '0');
        first_v := addr_v;
        steps_v := to_integer(unsigned(addr_v(BaseLow_c - 1 downto PageBits_g)));
        -- One page beyond the region, and a region beyond it.
        claims(steps_v, 2 ** LeafBits_g - steps_v mod 2 ** LeafBits_g);
        free(first_v);
        check_equal(status_v, AllocBadEntry_c, "a page beyond the region");
        claims(steps_v, 2 ** LeafBits_g);
        free(first_v);
        check_equal(status_v, AllocBadEntry_c, "a region more");
        claims(steps_v, 2);
        check(Taken = Done and GateClosed = '0', "nothing is freed");
        free(first_v);
        check_equal(status_v, AllocOk_c, "its own pages");
        settleDown;

      elsif run("an access that fails harms nobody") then
        growthWaits(false);
        growthWaits(true);
        reset;
        failShrink;
        reset;
        -- The first word, and two beats of those that stay.
        for from in 0 to 2 loop
          failCut(from);
        end loop;
        for from in 0 to 59 loop
          survive(4 * from + random_v.pick(4));
          reset;
        end loop;
        for from in 0 to 2 loop
          failOne(from);
          reset;
        end loop;
        -- From each access on, until there are no more.
        steps_v := 0;
        loop
          surviveGrowth(steps_v, cycles_v);
          reset;
          exit when cycles_v = 0;
          steps_v := steps_v + 1;
        end loop;
        check(steps_v > 30, "accesses: " & to_string(steps_v));
        failFull;
        reset;
      end if;

    end loop;
    test_runner_cleanup(runner);
  end process;

  test_runner_watchdog(runner, 2 ms);

  i_memory : entity work.table_memory
    generic map (
      AddrBits_g => 40,
      Latency_g  => Latency_g,
      Stall_g    => Stall_g,
      Seed_g     => Seed_g
    )
    port map (
      Clk     => Clk,
      AwValid => AwValid,
      AwReady => AwReady,
      AwAddr  => AwAddr,
      WValid  => WValid,
      WReady  => WReady,
      WData   => WData,
      WStrb   => WStrb,
      BValid  => BValid,
      BReady  => BReady,
      BResp   => BResp,
      ArValid => ArValid,
      ArReady => ArReady,
      ArAddr  => ArAddr,
      RValid  => RValid,
      RReady  => RReady,
      RData   => RData,
      RResp   => RResp
    );

  g_commands : for i in 0 to Requesters_c - 1 generate
    ReqCmds(CmdBits_c * (i + 1) - 1 downto CmdBits_c * i) <=
      CmdWhat & CmdBytes & CmdAddr & CmdMemory & CmdWritable & CmdLazy;
  end generate;

  RespIn  <= RespStatus & RespAddr;

  i_arbiter : entity work.command_arbiter
    generic map (
      Requesters_g => Requesters_c,
      CmdBits_g    => CmdBits_c,
      RespBits_g   => RespBits_c
    )
    port map (
      Clk        => Clk,
      Rst        => Rst,
      In_Valid   => ReqValid,
      In_Ready   => ReqReady,
      In_Cmd     => ReqCmds,
      Out_Valid  => OutValid,
      Out_Ready  => OutReady,
      Out_Resp   => OutResp,
      Cmd_Valid  => CmdValid,
      Cmd_Ready  => CmdReady,
      Cmd        => Cmd,
      Resp_Valid => RespValid,
      Resp_Ready => RespReady,
      Resp       => RespIn
    );

  i_allocator : entity work.allocator
    generic map (
      AddrBits_g  => AddrBits_c,
      PageBits_g  => PageBits_g,
      RootBits_g  => RootBits_g,
      LeafBits_g  => LeafBits_g,
      FrameBits_g => FrameBits_g,
      Frames_g    => Frames_g,
      Memory_g    => Memory_g,
      Others_g    => Others_g
    )
    port map (
      Clk            => Clk,
      Rst            => Rst,
      Window_Base    => Base,
      Pause          => Pause,
      Busy           => Busy,
      Step_Done      => StepDone,
      Broken         => Broken,
      Count_Which    => CountWhich,
      Count_Value    => Count,
      Cmd_Valid      => CmdValid,
      Cmd_Ready      => CmdReady,
      Cmd_What       => Cmd(CmdBits_c - 1 downto CmdBits_c - 2),
      Cmd_Bytes      => Cmd(CmdBits_c - 3 downto CmdBits_c - 66),
      Cmd_Addr       => Cmd(CmdBits_c - 67 downto 6),
      Cmd_Memory     => Cmd(5 downto 2),
      Cmd_Writable   => Cmd(1),
      Cmd_Lazy       => Cmd(0),
      Resp_Valid     => RespValid,
      Resp_Ready     => RespReady,
      Resp_Status    => RespStatus,
      Resp_Addr      => RespAddr,
      Touch_Valid    => TouchValid,
      Touch_Ready    => TouchReady,
      Touch_Page     => TouchPage,
      Touch_Write    => TouchWrite,
      Touch_Seen     => TouchSeen,
      Touch_Word     => TouchWord,
      Touch_Ticket   => TouchTicket,
      Ticket         => Ticket,
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
      Axi_AwValid    => AwValid,
      Axi_AwReady    => AwReady,
      Axi_AwAddr     => AwAddr,
      Axi_WValid     => WValid,
      Axi_WReady     => WReady,
      Axi_WData      => WData,
      Axi_WStrb      => WStrb,
      Axi_BValid     => BValid,
      Axi_BReady     => BReady,
      Axi_BResp      => BResp,
      Axi_ArValid    => ArValid,
      Axi_ArReady    => ArReady,
      Axi_ArAddr     => ArAddr,
      Axi_RValid     => RValid,
      Axi_RReady     => RReady,
      Axi_RData      => RData,
      Axi_RResp      => RResp
    );

end architecture;
