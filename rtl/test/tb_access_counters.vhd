-- Bench of the access counters: a trace of the model (crates/card/tests/counters_trace.rs), step by step; and random
-- accesses and clearings one right behind the other, of which it is known who must be told and who must not.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library std;
  use std.textio.all;

library vunit_lib;
  context vunit_lib.vunit_context;

library work;
  use work.random_pkg.all;

entity tb_access_counters is
  generic (
    runner_cfg : string;
    tb_path    : string;
    Groups_g   : positive := 5;
    Stall_g    : natural := 0;
    Seed_g     : positive := 1
  );
end entity;

architecture sim of tb_access_counters is

  constant SpaceBits_c : positive := 2;
  constant PageBits_c  : positive := 10;
  constant GroupBits_c : positive := 4;
  constant TimesBits_c : positive := 3;
  constant CountBits_c : positive := 16;
  constant Period_c    : time := 4 ns;
  -- An access, and one more look where entries have to go first.
  constant Steps_c     : positive := 10;

  signal Clk         : std_logic := '0';
  signal Rst         : std_logic := '1';
  signal AccessValid : std_logic := '0';
  signal AccessReady : std_logic;
  signal Space       : natural range 0 to 2 ** SpaceBits_c - 1 := 0;
  signal Page        : natural range 0 to 2 ** PageBits_c - 1 := 0;
  signal Times       : natural range 0 to 2 ** TimesBits_c - 1 := 0;
  signal ClearValid  : std_logic := '0';
  signal ClearReady  : std_logic;
  signal ClearAll    : std_logic := '0';
  signal LastPage    : natural range 0 to 2 ** PageBits_c - 1 := 0;
  signal Threshold   : natural range 0 to 2 ** CountBits_c - 1 := 9;
  signal NoticeValid : std_logic;
  signal NoticeReady : std_logic := '0';
  signal NoticeSpace : std_logic_vector(SpaceBits_c - 1 downto 0);
  signal NoticeGroup : std_logic_vector(PageBits_c - GroupBits_c - 1 downto 0);
  signal NoticeCount : std_logic_vector(CountBits_c - 1 downto 0);
  signal Forgotten   : std_logic_vector(31 downto 0);

begin

  Clk <= not Clk after Period_c / 2;

  p_test : process is
    type Trace_t is array (0 to 8) of integer;

    type Numbers_t is array (0 to 2 ** (SpaceBits_c + PageBits_c - GroupBits_c) - 1) of natural;

    type Flags_t is array (Numbers_t'range) of boolean;

    file trace_f      : text;
    variable line_v   : line;
    variable trace_v  : Trace_t;
    variable steps_v  : natural := 0;
    variable cycles_v : natural;
    variable random_v : Random_t;
    -- Of each group: its count, as far as it was counted, and whether it was told.
    variable counts_v : Numbers_t := (others => 0);
    variable told_v   : Flags_t := (others => false);
    variable index_v  : natural;
    variable found_v  : natural := 0;
    variable first_v  : natural;
    variable last_v   : natural;

    procedure access_page (space_no, page_no, count : natural) is
    begin
      Space       <= space_no;
      Page        <= page_no;
      Times       <= count;
      AccessValid <= '1';
      cycles_v := 0;
      loop
        wait until rising_edge(Clk);
        exit when AccessReady = '1';
        cycles_v := cycles_v + 1;
        check(cycles_v < 4 * Groups_g + 20, "an access is not taken");
      end loop;
      AccessValid <= '0';
    end procedure;

    procedure clear (all_groups : std_logic; space_no, first, last : natural) is
    begin
      Space      <= space_no;
      Page       <= first;
      LastPage   <= last;
      ClearAll   <= all_groups;
      ClearValid <= '1';
      wait until rising_edge(Clk) and ClearReady = '1' for 100 * Period_c;
      check_equal(ClearReady, '1', "nothing is cleared");
      ClearValid <= '0';
    end procedure;

    procedure rest (cycles : natural) is
    begin
      for i in 1 to cycles loop
        wait until rising_edge(Clk);
      end loop;
    end procedure;

    -- The notice that is shown is taken: its group has reached the threshold, and was not told before.
    procedure take is
    begin
      if NoticeValid = '1' then
        index_v := to_integer(unsigned(NoticeSpace)) * 2 ** (PageBits_c - GroupBits_c) +
          to_integer(unsigned(NoticeGroup));
        check(not told_v(index_v), "told twice: group " & to_string(index_v));
        check(unsigned(NoticeCount) >= Threshold, "told too early: " & to_string(index_v));
        check(unsigned(NoticeCount) <= counts_v(index_v), "more than there were: " & to_string(index_v));
        told_v(index_v) := true;
        found_v         := found_v + 1;
        NoticeReady     <= '1';
        wait until rising_edge(Clk);
        NoticeReady     <= '0';
        wait for 1 ps;
      end if;
    end procedure;

  begin
    random_v.seed(Seed_g, 99);
    test_runner_setup(runner, runner_cfg);
    rest(4);
    Rst <= '0';

    while test_suite loop

      if run("the model says the same") then
        check_equal(Groups_g, 5, "groups of the trace");
        file_open(trace_f, tb_path & "access_counters.trace", read_mode);
        while not endfile(trace_f) loop
          readline(trace_f, line_v);
          for i in trace_v'range loop
            read(line_v, trace_v(i));
          end loop;
          case trace_v(0) is
            when 0 =>
              access_page(trace_v(1), trace_v(2), trace_v(3));
              rest(Steps_c);
            when 1 =>
              clear('0', trace_v(1), trace_v(2), trace_v(3));
              rest(3 * Groups_g + 2);
            when 2 =>
              Threshold <= trace_v(1);
              clear('1', 0, 0, 0);
              rest(2);
            when others =>
              NoticeReady <= '1';
              rest(1);
              NoticeReady <= '0';
              rest(1);
          end case;
          steps_v := steps_v + 1;
          check_equal(NoticeValid, trace_v(4) = 1, "step " & to_string(steps_v));
          if trace_v(4) = 1 then
            check_equal(unsigned(NoticeSpace), trace_v(5), "space, step " & to_string(steps_v));
            check_equal(unsigned(NoticeGroup), trace_v(6), "group, step " & to_string(steps_v));
            check_equal(unsigned(NoticeCount), trace_v(7), "count, step " & to_string(steps_v));
          end if;
          check_equal(unsigned(Forgotten), trace_v(8), "forgotten, step " & to_string(steps_v));
        end loop;
        check(steps_v >= 1000, "steps: " & to_string(steps_v));

      elsif run("random accesses close together are told of once, and only when they are enough") then
        -- As many groups as are counted, so that none is forgotten.
        for i in 1 to 4000 loop
          case random_v.pick(40) is
            when 0 =>
              first_v := random_v.pick(Groups_g);
              last_v  := first_v + random_v.pick(3);
              clear('0', first_v mod 2, 16 * (first_v / 2) + random_v.pick(16), 16 * (last_v / 2) + 15);
              -- What was shown before may be of these groups.
              rest(3 * Groups_g + 2);
              while NoticeValid = '1' and random_v.pick(2) = 0 loop
                take;
              end loop;
              if NoticeValid = '0' then
                for g in first_v / 2 to last_v / 2 loop
                  index_v := (first_v mod 2) * 2 ** (PageBits_c - GroupBits_c) + g;
                  counts_v(index_v) := 0;
                  told_v(index_v)   := false;
                end loop;
              else
                -- It cannot be said which of the two it is: everything begins anew.
                rest(1);
                clear('1', 0, 0, 0);
                rest(2);
                NoticeReady <= '1';
                rest(1);
                NoticeReady <= '0';
                counts_v := (others => 0);
                told_v   := (others => false);
              end if;
            when others =>
              first_v := random_v.pick(Groups_g);
              index_v := (first_v mod 2) * 2 ** (PageBits_c - GroupBits_c) + first_v / 2;
              last_v  := random_v.pick(2 ** TimesBits_c);
              access_page(first_v mod 2, 16 * (first_v / 2) + random_v.pick(16), last_v);
              counts_v(index_v) := counts_v(index_v) + last_v;
          end case;
          wait for 1 ps;
          if random_v.pick(100) >= Stall_g then
            take;
          end if;
        end loop;
        rest(Steps_c);
        for i in 0 to Groups_g loop
          rest(2);
          take;
        end loop;
        for i in counts_v'range loop
          check_equal(told_v(i), counts_v(i) >= Threshold, "group " & to_string(i));
        end loop;
        check(found_v > 20, "told: " & to_string(found_v));
        check_equal(unsigned(Forgotten), 0, "forgotten");

      elsif run("an access is taken every other cycle") then
        access_page(0, 0, 1);
        for i in 1 to 50 loop
          access_page(0, random_v.pick(16 * Groups_g), 1);
          check(cycles_v <= 1, "it has to wait: " & to_string(cycles_v));
        end loop;

      elsif run("a count stays at its largest value") then
        Threshold <= 2 ** CountBits_c - 1;
        clear('1', 0, 0, 0);
        for i in 1 to 2 ** CountBits_c / 7 loop
          access_page(1, 3, 7);
        end loop;
        rest(Steps_c);
        check_equal(NoticeValid, '0', "told too early");
        access_page(1, 3, 7);
        rest(Steps_c);
        check_equal(NoticeValid, '1', "it has passed its largest value");
        check_equal(unsigned(NoticeCount), 2 ** CountBits_c - 1);

      end if;

    end loop;

    test_runner_cleanup(runner);
  end process;

  test_runner_watchdog(runner, 40 ms);

  i_counters : entity work.access_counters
    generic map (
      SpaceBits_g => SpaceBits_c,
      PageBits_g  => PageBits_c,
      GroupBits_g => GroupBits_c,
      TimesBits_g => TimesBits_c,
      CountBits_g => CountBits_c,
      Groups_g    => Groups_g
    )
    port map (
      Clk          => Clk,
      Rst          => Rst,
      Access_Valid => AccessValid,
      Access_Ready => AccessReady,
      Access_Space => std_logic_vector(to_unsigned(Space, SpaceBits_c)),
      Access_Page  => std_logic_vector(to_unsigned(Page, PageBits_c)),
      Access_Times => std_logic_vector(to_unsigned(Times, TimesBits_c)),
      Clear_Valid  => ClearValid,
      Clear_Ready  => ClearReady,
      Clear_All    => ClearAll,
      Clear_Space  => std_logic_vector(to_unsigned(Space, SpaceBits_c)),
      Clear_First  => std_logic_vector(to_unsigned(Page, PageBits_c)),
      Clear_Last   => std_logic_vector(to_unsigned(LastPage, PageBits_c)),
      Threshold    => std_logic_vector(to_unsigned(Threshold, CountBits_c)),
      Notice_Valid => NoticeValid,
      Notice_Ready => NoticeReady,
      Notice_Space => NoticeSpace,
      Notice_Group => NoticeGroup,
      Notice_Count => NoticeCount,
      Forgotten    => Forgotten
    );

end architecture;
