-- Bench of a TLB of flexible length: a trace of the model (crates/card/src/flexible.rs), step by step; and random
-- looks, one right behind the other, beside a map of what was put in.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library std;
  use std.textio.all;

library vunit_lib;
  context vunit_lib.vunit_context;

library work;
  use work.random_pkg.all;

entity tb_flexible_tlb is
  generic (
    runner_cfg : string;
    tb_path    : string;
    Entries_g  : positive := 5;
    KeyBits_g  : positive := 8;
    RunBits_g  : positive := 4;
    Seed_g     : positive := 1
  );
end entity;

architecture sim of tb_flexible_tlb is

  constant FrameBits_c : positive := 20;
  constant Pages_c     : positive := 2 ** KeyBits_g;
  constant Period_c    : time := 4 ns;
  -- A command goes through the entries twice, and puts up to three parts of each that it is about.
  constant Longest_c   : positive := 14 * Entries_g + 8;

  constant Remove_c  : natural := 0;
  constant Protect_c : natural := 1;
  constant Insert_c  : natural := 2;

  signal Clk       : std_logic := '0';
  signal Rst       : std_logic := '1';
  signal LookValid : std_logic := '0';
  signal LookReady : std_logic;
  signal LookKey   : std_logic_vector(KeyBits_g - 1 downto 0) := (others => '0');
  signal FoundNow  : std_logic;
  signal Held      : std_logic;
  signal Writable  : std_logic;
  signal Memory    : std_logic_vector(3 downto 0);
  signal Frame     : std_logic_vector(FrameBits_c - 1 downto 0);
  signal Pages     : std_logic_vector(RunBits_g downto 0);
  signal CmdValid  : std_logic := '0';
  signal CmdReady  : std_logic;
  signal Kind      : std_logic_vector(1 downto 0) := "00";
  signal First     : std_logic_vector(KeyBits_g - 1 downto 0) := (others => '0');
  signal Bound     : std_logic_vector(KeyBits_g downto 0) := (others => '0');
  signal MayWrite  : std_logic := '0';
  signal InMemory  : std_logic_vector(3 downto 0) := "0000";
  signal FromFrame : std_logic_vector(FrameBits_c - 1 downto 0) := (others => '0');
  signal Evictions : std_logic_vector(31 downto 0);
  signal Twice     : std_logic;

begin

  Clk <= not Clk after Period_c / 2;

  p_never : process (Clk) is
  begin
    if rising_edge(Clk) and Rst = '0' then
      check_equal(Twice, '0', "two entries have one page");
    end if;
  end process;

  p_test : process is
    type Trace_t is array (0 to 11) of integer;

    -- Of a page: the frame, 0 for none; whether it may be written to.
    type Frames_t is array (0 to Pages_c - 1) of natural;

    type Flags_t is array (0 to Pages_c - 1) of boolean;

    -- Pages that were looked up in the last cycles.
    type Looks_t is array (1 to 2) of integer;

    file trace_f       : text;
    variable line_v    : line;
    variable trace_v   : Trace_t;
    variable steps_v   : natural := 0;
    variable cycles_v  : natural;
    variable random_v  : Random_t;
    variable frames_v  : Frames_t := (others => 0);
    variable writes_v  : Flags_t := (others => false);
    variable looks_v   : Looks_t := (others => -1);
    variable hits_v    : natural := 0;
    variable page_v    : natural;
    variable bound_v   : natural;
    variable frame_v   : natural;
    variable write_v   : boolean;

    -- What was looked up two cycles ago is answered now, and is what was put in last or nothing.
    procedure checkFound is
    begin
      check_equal(FoundNow, looks_v(2) >= 0, "an answer after two cycles");
      if looks_v(2) < 0 or Held = '0' then
        return;
      end if;
      hits_v := hits_v + 1;
      check(frames_v(looks_v(2)) /= 0, "page " & to_string(looks_v(2)) & " was taken out");
      check_equal(unsigned(Frame), frames_v(looks_v(2)), "frame of page " & to_string(looks_v(2)));
      check_equal(Writable, writes_v(looks_v(2)), "rights of page " & to_string(looks_v(2)));
      check(unsigned(Pages) > 0 and unsigned(Pages) <= 2 ** RunBits_g, "pages");
      for i in 0 to to_integer(unsigned(Pages)) - 1 loop
        check(frames_v(looks_v(2) + i) = frames_v(looks_v(2)) + i and writes_v(looks_v(2) + i) = writes_v(looks_v(2)),
          "the run of page " & to_string(looks_v(2)) & " goes on for " & to_string(i));
      end loop;
    end procedure;

    procedure step is
    begin
      wait until rising_edge(Clk);
      checkFound;
      looks_v(2) := looks_v(1);
      looks_v(1) := -1;
      if LookValid = '1' and LookReady = '1' then
        looks_v(1) := to_integer(unsigned(LookKey));
        LookValid <= '0';
      end if;
    end procedure;

    procedure look (page : natural) is
    begin
      LookValid <= '1';
      LookKey   <= std_logic_vector(to_unsigned(page, KeyBits_g));
      loop
        step;
        exit when looks_v(1) >= 0;
      end loop;
    end procedure;

    -- Until nothing is looked up and no command is under way; `cycles_v` is how long it took.
    procedure settle is
    begin
      cycles_v := 0;
      LookValid <= '0';
      loop
        step;
        exit when LookReady = '1' and looks_v(1) < 0 and looks_v(2) < 0;
        cycles_v := cycles_v + 1;
        check(cycles_v <= Longest_c, "a command takes no end");
      end loop;
    end procedure;

    -- What the map says afterwards holds from when it is taken.
    procedure command (what, firstPage, boundPage : natural; writes : boolean := false; frameNo : natural := 0) is
    begin
      CmdValid  <= '1';
      Kind      <= std_logic_vector(to_unsigned(what, 2));
      First     <= std_logic_vector(to_unsigned(firstPage, KeyBits_g));
      Bound     <= std_logic_vector(to_unsigned(boundPage, KeyBits_g + 1));
      MayWrite  <= '1' when writes else '0';
      FromFrame <= std_logic_vector(to_unsigned(frameNo, FrameBits_c));
      cycles_v  := 0;
      loop
        step;
        exit when CmdReady = '1' and CmdValid = '1';
        cycles_v := cycles_v + 1;
        check(cycles_v <= Longest_c, "a command is not taken");
      end loop;
      CmdValid <= '0';
      for page in firstPage to boundPage - 1 loop
        case what is
          when Protect_c =>
            writes_v(page) := false;
          when Insert_c =>
            frames_v(page) := 0 when boundPage - firstPage > 2 ** RunBits_g else frameNo + page - firstPage;
            writes_v(page) := writes;
          when others =>
            frames_v(page) := 0;
        end case;
      end loop;
    end procedure;

  begin
    random_v.seed(Seed_g, 4711);
    test_runner_setup(runner, runner_cfg);
    for i in 1 to 4 loop
      wait until rising_edge(Clk);
    end loop;
    Rst <= '0';

    while test_suite loop

      if run("the model says the same") then
        check(Entries_g = 5 and RunBits_g = 4, "sizes of the trace");
        file_open(trace_f, tb_path & "flexible_tlb.trace", read_mode);
        while not endfile(trace_f) loop
          readline(trace_f, line_v);
          for i in trace_v'range loop
            read(line_v, trace_v(i));
          end loop;
          steps_v := steps_v + 1;
          if trace_v(0) = 3 then
            look(trace_v(1));
            step;
            wait until rising_edge(Clk);
            check_equal(FoundNow, '1', "an answer, step " & to_string(steps_v));
            check_equal(Held, trace_v(6) = 1, "whether it is held, step " & to_string(steps_v));
            if trace_v(6) = 1 then
              check_equal(Writable, trace_v(7) = 1, "rights, step " & to_string(steps_v));
              check_equal(unsigned(Memory), trace_v(8), "memory, step " & to_string(steps_v));
              check_equal(unsigned(Frame), trace_v(9), "frame, step " & to_string(steps_v));
              check_equal(unsigned(Pages), trace_v(10), "pages, step " & to_string(steps_v));
            end if;
            looks_v := (others => -1);
          else
            InMemory <= std_logic_vector(to_unsigned(trace_v(4), 4));
            command(trace_v(0), trace_v(1), trace_v(2), trace_v(3) = 1, trace_v(5));
            settle;
          end if;
          check_equal(unsigned(Evictions), trace_v(11), "entries that had to go, step " & to_string(steps_v));
        end loop;
        check(steps_v >= 1000, "steps: " & to_string(steps_v));

      elsif run("random looks find what was put in last, or nothing") then
        for i in 1 to 12000 loop
          if LookValid = '0' and random_v.pick(10) /= 0 then
            LookValid <= '1';
            LookKey   <= std_logic_vector(to_unsigned(random_v.pick(Pages_c), KeyBits_g));
          end if;
          if random_v.pick(60) = 0 then
            page_v  := random_v.pick(Pages_c);
            bound_v := minimum(page_v + random_v.pick(2 ** RunBits_g + 4), Pages_c);
            -- Frames that lie as pages do, so that runs continue one another, or any.
            frame_v := 1000 + page_v when random_v.pick(3) /= 0 else 5000 + random_v.pick(1000);
            write_v := random_v.pick(3) /= 0;
            case random_v.pick(8) is
              when 0 | 1 =>
                command(Remove_c, page_v, bound_v);
              when 2 =>
                command(Protect_c, page_v, bound_v);
              when 3 =>
                -- None of its pages comes before its first.
                command(Remove_c, page_v, random_v.pick(page_v + 1));
              when others =>
                command(Insert_c, page_v, bound_v, write_v, frame_v);
            end case;
          else
            step;
          end if;
        end loop;
        check(hits_v > 200, "hits: " & to_string(hits_v));

      elsif run("a page is looked up in each cycle and answered two cycles later") then
        command(Insert_c, 3, 3 + 2 ** RunBits_g, true, 700);
        settle;
        info("a run is put in in " & to_string(cycles_v) & " cycles");
        for i in 0 to 99 loop
          LookValid <= '1';
          LookKey   <= std_logic_vector(to_unsigned(3 + i mod 2 ** RunBits_g, KeyBits_g));
          step;
          check(looks_v(1) >= 0, "one a cycle");
        end loop;
        settle;
        check(hits_v >= 99, "hits: " & to_string(hits_v));

      elsif run("a run that was taken out in part is there in part, and one that continues it is joined") then
        command(Insert_c, 0, 2 ** RunBits_g, true, 800);
        command(Remove_c, 4, 6);
        settle;
        hits_v := 0;
        for page in 0 to 2 ** RunBits_g - 1 loop
          look(page);
        end loop;
        settle;
        check_equal(hits_v, 2 ** RunBits_g - 2, "pages that are left");
        command(Insert_c, 4, 6, true, 804);
        -- Longer than an entry can be: nothing is put in.
        command(Insert_c, 40, 41 + 2 ** RunBits_g, true, 100);
        look(40);
        look(0);
        step;
        step;
        check_equal(unsigned(Pages), 2 ** RunBits_g, "one run again");
        check_equal(unsigned(Evictions), 0);

      end if;

    end loop;

    test_runner_cleanup(runner);
  end process;

  test_runner_watchdog(runner, 5 ms);

  i_tlb : entity work.flexible_tlb
    generic map (
      KeyBits_g   => KeyBits_g,
      FrameBits_g => FrameBits_c,
      RunBits_g   => RunBits_g,
      Entries_g   => Entries_g,
      Checks_g    => true
    )
    port map (
      Clk            => Clk,
      Rst            => Rst,
      Look_Valid     => LookValid,
      Look_Ready     => LookReady,
      Look_Key       => LookKey,
      Found_Valid    => FoundNow,
      Found_Held     => Held,
      Found_Writable => Writable,
      Found_Memory   => Memory,
      Found_Frame    => Frame,
      Found_Pages    => Pages,
      Cmd_Valid      => CmdValid,
      Cmd_Ready      => CmdReady,
      Cmd_Kind       => Kind,
      Cmd_First      => First,
      Cmd_Bound      => Bound,
      Cmd_Writable   => MayWrite,
      Cmd_Memory     => InMemory,
      Cmd_Frame      => FromFrame,
      Evictions      => Evictions,
      Twice          => Twice
    );

end architecture;
