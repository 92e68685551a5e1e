-- Bench of the frame store: random requests, compared with what crates/card/src/window says of them.
--
-- What it gives is worked out from one bit a frame, written down once more on purpose: the hint, the list
-- while few are free, the next run behind where the last search for that size ended. A trace of the model
-- itself (tests/frames_trace.rs there) is followed too, for a memory of the trace's size. Half of the requests
-- do not wait for the response of the one before.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library std;
  use std.textio.all;

library vunit_lib;
  context vunit_lib.vunit_context;

library work;
  use work.random_pkg.all;

entity tb_frame_store is
  generic (
    runner_cfg   : string;
    tb_path      : string;
    FrameBits_g  : positive := 7;
    Frames_g     : positive := 100;
    WordBits_g   : positive := 3;
    MiddleBits_g : positive := 1;
    List_g       : positive := 5;
    Stall_g      : natural := 0;
    Requests_g   : positive := 5000;
    Seed_g       : positive := 1
  );
end entity;

architecture sim of tb_frame_store is

  constant Fixed_c  : natural := Frames_g / 10;
  -- No frame count here has it as a divisor.
  constant Step_c : positive := 37;
  constant Few_c    : natural := Frames_g / 16;
  -- Cycles for a summary that is begun, and for the first one.
  constant Begins_c : natural := 4 * (Frames_g / 2 ** (2 * WordBits_g) + 2) + 8;
  constant Period_c : time := 4 ns;

  signal Clk       : std_logic := '0';
  signal Rst       : std_logic := '1';
  signal Promised  : natural range 0 to 2 ** FrameBits_g := 0;
  signal Free      : std_logic_vector(FrameBits_g downto 0);
  signal OpValid   : std_logic := '0';
  signal OpReady   : std_logic;
  signal OpGive    : std_logic := '0';
  signal OpSize    : natural range 0 to 31 := 0;
  signal OpHasHint : std_logic := '0';
  signal OpFirst   : natural range 0 to 2 ** FrameBits_g - 1 := 0;
  signal RespValid : std_logic;
  signal RespReady : std_logic := '0';
  signal RespOk    : std_logic;
  signal RespFirst : std_logic_vector(FrameBits_g - 1 downto 0);

begin

  Clk <= not Clk after Period_c / 2;

  p_test : process is
    type Flags_t is array (0 to Frames_g - 1) of boolean;

    type Numbers_t is array (natural range <>) of natural;

    variable used_v    : Flags_t;
    variable free_v    : natural;
    variable roving_v  : Numbers_t(0 to 31) := (others => 0);
    variable list_v    : Numbers_t(0 to List_g - 1);
    variable listed_v  : natural := 0;
    variable random_v  : Random_t;
    variable cycles_v  : natural;
    variable taken_v   : natural := 0;
    variable refused_v : natural := 0;
    -- The frame that was given last.
    variable last_v    : natural := 0;
    variable many_v    : natural;
    variable first_v   : natural;
    variable size_v    : natural;
    -- Frames that were given and not come back, for a while.
    variable wants_v   : boolean := true;

    type Expected_t is record
      ok    : boolean;
      first : natural;
    end record;

    type ExpectedMany_t is array (0 to 7) of Expected_t;

    -- Responses that are to come.
    variable expected_v : ExpectedMany_t;
    variable asked_v    : natural := 0;
    variable answered_v : natural := 0;
    variable accepted_v : boolean := false;
    -- Cycles since the last response.
    variable idle_v     : natural := 0;
    -- Percent of the requests after which nobody waits for the response.
    variable hurry_v    : natural := 0;

    type Trace_t is array (0 to 5) of integer;

    file trace_f       : text;
    variable line_v    : line;
    variable trace_v   : Trace_t;
    variable give_v    : std_logic;

    impure function isAll (first, count : natural; value : boolean) return boolean is
    begin
      if first + count > Frames_g then
        return false;
      end if;
      for i in first to first + count - 1 loop
        if used_v(i) /= value then
          return false;
        end if;
      end loop;
      return true;
    end function;

    -- The first aligned free run from `from` on; Frames_g if there is none.
    impure function find (size, from : natural) return natural is
      variable first_v : natural := from;
    begin
      while first_v < Frames_g loop
        if first_v mod 2 ** size = 0 and isAll(first_v, 2 ** size, false) then
          return first_v;
        end if;
        first_v := first_v + 1;
      end loop;
      return Frames_g;
    end function;

    procedure look (size : natural; hasHint : boolean; hint : natural; first : out natural) is
      variable found_v : natural;
    begin
      if hasHint and hint mod 2 ** size = 0 and isAll(hint, 2 ** size, false) then
        first := hint;
        return;
      end if;
      while size = 0 and free_v < Few_c and listed_v > 0 loop
        found_v := list_v(0);
        for i in 1 to List_g - 1 loop
          list_v(i - 1) := list_v(i);
        end loop;
        listed_v := listed_v - 1;
        if not used_v(found_v) then
          first := found_v;
          return;
        end if;
      end loop;
      found_v := find(size, roving_v(size));
      if found_v = Frames_g then
        found_v := find(size, 0);
      end if;
      first := found_v;
      if found_v < Frames_g then
        roving_v(size) := (found_v + 2 ** size) mod Frames_g;
      end if;
    end procedure;

    -- One cycle: what went through the ports at its end.
    procedure step is
      variable this_v : Expected_t;
    begin
      wait until rising_edge(Clk);
      cycles_v := cycles_v + 1;
      idle_v := idle_v + 1;
      check(idle_v < 10000, "no answer");
      if RespValid = '1' and RespReady = '1' then
        check(answered_v < asked_v, "an answer to no request");
        this_v := expected_v(answered_v mod 8);
        answered_v := answered_v + 1;
        idle_v := 0;
        check_equal(RespOk, this_v.ok, "answer " & to_string(answered_v));
        if this_v.ok then
          check_equal(unsigned(RespFirst), this_v.first, "the run of answer " & to_string(answered_v));
        end if;
      end if;
      accepted_v := OpValid = '1' and OpReady = '1';
      if accepted_v then
        OpValid  <= '0';
      end if;
      RespReady <= '0' when random_v.pick(100) < Stall_g else '1';
    end procedure;

    procedure settle is
    begin
      while answered_v /= asked_v loop
        step;
      end loop;
    end procedure;

    -- Cycles are counted from when the request is accepted.
    procedure ask (give : std_logic; size : natural; hasHint : boolean; first : natural; expected : Expected_t) is
    begin
      expected_v(asked_v mod 8) := expected;
      asked_v := asked_v + 1;
      idle_v := 0;
      OpValid   <= '1';
      OpGive    <= give;
      OpSize    <= size;
      OpHasHint <= '1' when hasHint else '0';
      OpFirst   <= first;
      loop
        step;
        exit when accepted_v;
      end loop;
      if hurry_v = 0 then
        cycles_v := 0;
      end if;
      if random_v.pick(100) >= hurry_v then
        settle;
      end if;
    end procedure;

    procedure take (size : natural; hasHint : boolean; hint : natural) is
      variable found_v : natural := Frames_g;
    begin
      if size <= FrameBits_g and free_v >= Promised and free_v - Promised >= 2 ** size then
        look(size, hasHint, hint, found_v);
      end if;
      if found_v < Frames_g then
        for i in found_v to found_v + 2 ** size - 1 loop
          used_v(i) := true;
        end loop;
        free_v := free_v - 2 ** size;
        taken_v := taken_v + 1;
      else
        refused_v := refused_v + 1;
      end if;
      last_v := found_v;
      ask('0', size, hasHint, hint, (found_v < Frames_g, found_v));
    end procedure;

    procedure give (size, first : natural) is
      variable good_v : boolean := false;
    begin
      if size <= FrameBits_g then
        good_v := first mod 2 ** size = 0 and isAll(first, 2 ** size, true);
      end if;
      if good_v then
        for i in first to first + 2 ** size - 1 loop
          used_v(i) := false;
        end loop;
        free_v := free_v + 2 ** size;
        if size = 0 and free_v < Few_c and listed_v < List_g then
          list_v(listed_v) := first;
          listed_v := listed_v + 1;
        end if;
      end if;
      ask('1', size, false, first, (good_v, first));
    end procedure;

    -- Every third frame is free, and no other.
    procedure scatter is
    begin
      for i in 1 to free_v loop
        take(0, false, 0);
      end loop;
      for i in Fixed_c to Frames_g - 1 loop
        if i mod 3 = 0 then
          give(0, i);
        end if;
      end loop;
    end procedure;

    impure function someSize return natural is
    begin
      case random_v.pick(10) is
        when 0 to 4 =>
          return 0;
        when 5 =>
          return random_v.pick(32);
        when others =>
          return random_v.pick(FrameBits_g + 1);
      end case;
    end function;

  begin
    random_v.seed(Seed_g, 99);
    test_runner_setup(runner, runner_cfg);
    for i in used_v'range loop
      used_v(i) := i < Fixed_c;
    end loop;
    free_v := Frames_g - Fixed_c;
    for i in 1 to 4 loop
      wait until rising_edge(Clk);
    end loop;
    Rst <= '0';

    while test_suite loop

      if run("random requests give what the model gives") then
        hurry_v := 50;
        for i in 1 to Requests_g loop
          -- It goes through full and empty.
          if free_v = 0 then
            wants_v := false;
          elsif free_v > Frames_g / 2 or random_v.pick(50) = 0 then
            wants_v := true;
          end if;
          Promised <= random_v.pick(Frames_g) when random_v.pick(20) = 0 else 0;
          wait for 0 ns;
          size_v := someSize;
          first_v := random_v.pick(2 ** FrameBits_g);
          if random_v.pick(100) < 75 and size_v <= FrameBits_g then
            first_v := first_v - first_v mod 2 ** size_v;
          end if;
          if random_v.pick(100) < 30 xor wants_v then
            -- The one behind the last one is hinted at as well.
            if random_v.pick(2) = 0 then
              first_v := (last_v + 1) mod 2 ** FrameBits_g;
            end if;
            take(size_v, random_v.pick(3) = 0, first_v);
          else
            Promised <= 0;
            give(size_v, first_v);
          end if;
          if random_v.pick(10) = 0 then
            settle;
            check_equal(unsigned(Free), free_v, "free frames");
          end if;
        end loop;
        settle;
        check(taken_v > Requests_g / 20 and refused_v > Requests_g / 100,
          to_string(taken_v) & " given, " & to_string(refused_v) & " refused");

      elsif run("frames are given in few cycles") then
        take(0, true, Frames_g - 1);
        check(cycles_v <= 5 or Stall_g > 0, "hinted at: " & to_string(cycles_v));
        take(0, false, 0);
        check(cycles_v <= 7 or Stall_g > 0, "the next: " & to_string(cycles_v));
        for i in 1 to 3 loop
          take(0, false, 0);
          check(cycles_v <= 2 or Stall_g > 0, "the one after: " & to_string(cycles_v));
        end loop;
        give(0, Frames_g - 1);
        check(cycles_v <= 6 or Stall_g > 0, "comes back: " & to_string(cycles_v));

      elsif run("scattered frames are given one a cycle") then
        for hinted in 0 to 1 loop
          scatter;
          take(0, false, 0);
          -- As long as no frame comes from the list.
          many_v := maximum(free_v, Few_c) - Few_c;
          settle;
          cycles_v := 0;
          hurry_v := 100;
          for i in 1 to many_v loop
            take(0, hinted = 1, (last_v + 1) mod 2 ** FrameBits_g);
          end loop;
          hurry_v := 0;
          settle;
          check(cycles_v <= many_v + Begins_c or Stall_g > 0,
            to_string(many_v) & " in " & to_string(cycles_v) & " cycles");
          info(to_string(many_v) & " scattered frames in " & to_string(cycles_v) & " cycles");
        end loop;

      elsif run("frames come back one a cycle, wherever they are") then
        many_v := free_v;
        for i in 1 to many_v loop
          take(0, false, 0);
        end loop;
        cycles_v := 0;
        hurry_v  := 100;
        -- Each frame of the memory once: its first ones are always in use, as all others are; and each of them again,
        -- two behind the first time.
        for i in 0 to Frames_g + 1 loop
          give(0, i * Step_c mod Frames_g);
          give(0, maximum(i - 2, 0) * Step_c mod Frames_g);
        end loop;
        hurry_v := 0;
        settle;
        check(cycles_v <= 2 * Frames_g + 10 or Stall_g > 0, "come back in " & to_string(cycles_v) & " cycles");
        info(to_string(2 * Frames_g + 4) & " frames came back in " & to_string(cycles_v) & " cycles");
        check_equal(unsigned(Free), Frames_g, "free frames");

      elsif run("a full memory gives each frame once, and then none") then
        for i in 1 to Frames_g - Fixed_c loop
          take(0, false, 0);
        end loop;
        check_equal(taken_v, Frames_g - Fixed_c);
        take(0, false, 0);
        check_equal(refused_v, 1);
        give(0, 3);
        take(0, true, 5);
        check_equal(last_v, 3, "the one that came back");

      elsif run("the model says the same") then
        check(Frames_g = 100 and Fixed_c = 10 and List_g = 64, "the trace is of another size");
        file_open(trace_f, tb_path & "frame_store.trace", read_mode);
        while not endfile(trace_f) loop
          readline(trace_f, line_v);
          for i in trace_v'range loop
            read(line_v, trace_v(i));
          end loop;
          -- Gives back, size, hint, promised; whether, and which.
          Promised <= trace_v(3);
          hurry_v := 50;
          give_v := '1' when trace_v(0) = 1 else '0';
          ask(give_v, trace_v(1), trace_v(2) >= 0, maximum(trace_v(2), 0), (trace_v(4) = 1, maximum(trace_v(5), 0)));
          taken_v := taken_v + 1;
        end loop;
        settle;
        check(taken_v >= 1000, "requests: " & to_string(taken_v));

      end if;

    end loop;

    test_runner_cleanup(runner);
  end process;

  test_runner_watchdog(runner, 40 ms);

  i_store : entity work.frame_store
    generic map (
      FrameBits_g  => FrameBits_g,
      Frames_g     => Frames_g,
      WordBits_g   => WordBits_g,
      MiddleBits_g => MiddleBits_g,
      List_g       => List_g
    )
    port map (
      Clk        => Clk,
      Rst        => Rst,
      Fixed      => std_logic_vector(to_unsigned(Fixed_c, FrameBits_g)),
      Promised   => std_logic_vector(to_unsigned(Promised, FrameBits_g + 1)),
      Free       => Free,
      Op_Valid   => OpValid,
      Op_Ready   => OpReady,
      Op_Give    => OpGive,
      Op_Size    => std_logic_vector(to_unsigned(OpSize, 5)),
      Op_HasHint => OpHasHint,
      Op_Next    => '0',
      Op_First   => std_logic_vector(to_unsigned(OpFirst, FrameBits_g)),
      Resp_Valid => RespValid,
      Resp_Ready => RespReady,
      Resp_Ok    => RespOk,
      Resp_First => RespFirst
    );

end architecture;
