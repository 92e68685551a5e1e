-- Bench of the arbiters of readers and writers without ids: all ask at once, and memories answer them in any order.
--
-- Each reader gets its own bursts' beats, each writer its own bursts' responses, in the order of its requests; beats of
-- writes come in the order of addresses. Nobody is passed by more often than there are others.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library vunit_lib;
  context vunit_lib.vunit_context;

library work;
  use work.random_pkg.all;
  use work.window_pkg.all;

entity tb_bus_arbiters is
  generic (
    runner_cfg : string;
    -- Readers, and writers.
    Sides_g        : positive := 3;
    Depth_g        : positive := 3;
    HasResponses_g : boolean  := true;
    Stall_g        : natural  := 30;
    Seed_g         : positive := 1
  );
end entity;

architecture sim of tb_bus_arbiters is

  constant AddrBits_c : positive := 32;
  constant DataBits_c : positive := 32;
  constant IdBits_c   : positive := bitsOf(Sides_g);
  constant Period_c   : time := 4 ns;
  constant Reader_c   : natural := 0;
  constant Writer_c   : natural := 1;

  subtype Direction_t is natural range Reader_c to Writer_c;

  subtype Side_t is natural range 0 to Sides_g - 1;

  subtype Flags_t is std_logic_vector(Sides_g - 1 downto 0);

  type Flags2_t is array (Direction_t) of Flags_t;

  type Addrs_t is array (Direction_t) of std_logic_vector(AddrBits_c - 1 downto 0);

  type AllAddrs_t is array (Direction_t) of std_logic_vector(Sides_g * AddrBits_c - 1 downto 0);

  type AllBeats_t is array (Direction_t) of std_logic_vector(Sides_g * 8 - 1 downto 0);

  type Bytes_t is array (Direction_t) of std_logic_vector(7 downto 0);

  type Threes_t is array (Direction_t) of std_logic_vector(2 downto 0);

  type Ids_t is array (Direction_t) of std_logic_vector(IdBits_c - 1 downto 0);

  signal Clk        : std_logic := '0';
  signal Rst        : std_logic := '1';
  signal ReqValid   : Flags2_t := (others => (others => '0'));
  signal ReqReady   : Flags2_t;
  signal ReqAddr    : AllAddrs_t := (others => (others => '0'));
  signal ReqBeats   : AllBeats_t := (others => (others => '0'));
  signal ReadValid  : Flags_t;
  signal ReadReady  : Flags_t := (others => '0');
  signal ReadData   : std_logic_vector(DataBits_c - 1 downto 0);
  signal ReadLast   : std_logic;
  signal ReadError  : std_logic;
  signal WriteValid : Flags_t := (others => '0');
  signal WriteReady : Flags_t;
  signal WriteData  : std_logic_vector(Sides_g * DataBits_c - 1 downto 0) := (others => '0');
  signal WriteStrb  : std_logic_vector(Sides_g * DataBits_c / 8 - 1 downto 0) := (others => '0');
  signal WriteLast  : Flags_t := (others => '0');
  signal RespValid  : Flags_t;
  signal RespReady  : Flags_t := (others => '0');
  signal RespError  : std_logic;
  -- Of the memory
  signal AValid     : std_logic_vector(1 downto 0);
  signal AReady     : std_logic_vector(1 downto 0) := "00";
  signal AAddr      : Addrs_t;
  signal AId        : Ids_t;
  signal ALen       : Bytes_t;
  signal ASize      : Threes_t;
  signal RValid     : std_logic := '0';
  signal RReady     : std_logic;
  signal RId        : std_logic_vector(IdBits_c - 1 downto 0) := (others => '0');
  signal RData      : std_logic_vector(DataBits_c - 1 downto 0) := (others => '0');
  signal RResp      : std_logic_vector(1 downto 0) := "00";
  signal RLast      : std_logic := '0';
  signal WValid     : std_logic;
  signal WReady     : std_logic := '0';
  signal WData      : std_logic_vector(DataBits_c - 1 downto 0);
  signal WStrb      : std_logic_vector(DataBits_c / 8 - 1 downto 0);
  signal WLast      : std_logic;
  signal BValid     : std_logic := '0';
  signal BReady     : std_logic;
  signal BId        : std_logic_vector(IdBits_c - 1 downto 0) := (others => '0');
  signal BResp      : std_logic_vector(1 downto 0) := "00";

begin

  Clk <= not Clk after Period_c / 2;

  p_test : process is
    -- A burst: its beats, and how many have been sent by the writer or the memory, and have come.
    type Burst_t is record
      beats : natural;
      sent  : natural;
      came  : natural;
    end record;

    type Bursts_t is array (0 to 63) of Burst_t;

    type Queue_t is record
      bursts  : Bursts_t;
      -- So many were offered, taken by the arbiter, came to the memory, were begun by the writer, are over.
      offered : natural;
      taken   : natural;
      arrived : natural;
      begun   : natural;
      over     : natural;
      -- The memory has answered so many writes; others were taken since it asks.
      answered : natural;
      passed   : natural;
    end record;

    type Queues_t is array (Direction_t, Side_t) of Queue_t;

    type Order_t is array (0 to 255) of Side_t;

    variable q_v      : Queues_t := (others => (others => ((others => (0, 0, 0)), 0, 0, 0, 0, 0, 0, 0)));
    -- Writers in the order of their addresses: so many were shown, and that whose beats come.
    variable order_v  : Order_t;
    variable shown_v  : natural := 0;
    variable coming_v : natural := 0;
    variable done_v   : natural := 0;
    variable idle_v   : natural := 0;
    variable random_v : Random_t;
    variable i        : natural;

    -- What a beat has for data; every seventh burst is an error.
    function dataOf (side, burst, beat : natural) return std_logic_vector is
    begin
      return std_logic_vector(to_unsigned(side * 2 ** 20 + (burst mod 4096) * 2 ** 8 + beat, DataBits_c));
    end function;

    function isError (burst : natural) return std_logic is
    begin
      if burst mod 7 = 6 then
        return '1';
      end if;
      return '0';
    end function;

    procedure offer is
    begin
      for d in Direction_t loop
        for side in Side_t loop
          if ReqValid(d)(side) = '1' and ReqReady(d)(side) = '1' then
            ReqValid(d)(side) <= '0';
            q_v(d, side).taken  := q_v(d, side).taken + 1;
            q_v(d, side).passed := 0;
            if d = Writer_c then
              order_v(shown_v mod 256) := side;
              shown_v := shown_v + 1;
            end if;
            for other in Side_t loop
              if other /= side and ReqValid(d)(other) = '1' then
                q_v(d, other).passed := q_v(d, other).passed + 1;
                check(q_v(d, other).passed < Sides_g, "nobody is passed by twice");
              end if;
            end loop;
          end if;
        end loop;
        for side in Side_t loop
          if (ReqValid(d)(side) = '0' or ReqReady(d)(side) = '1') and q_v(d, side).offered - q_v(d, side).over < 60
            and random_v.chance(60) then
            i := q_v(d, side).offered;
            q_v(d, side).bursts(i mod 64) := (1 + random_v.pick(4), 0, 0);
            ReqValid(d)(side) <= '1';
            ReqAddr(d)((side + 1) * AddrBits_c - 1 downto side * AddrBits_c) <= dataOf(side, i, 0);
            ReqBeats(d)(side * 8 + 7 downto side * 8) <=
              std_logic_vector(to_unsigned(q_v(d, side).bursts(i mod 64).beats, 8));
            q_v(d, side).offered := i + 1;
          end if;
        end loop;
      end loop;
    end procedure;

    procedure addresses is
    begin
      for d in Direction_t loop
        if AValid(d) = '1' and AReady(d) = '1' then
          i := to_integer(unsigned(AId(d)));
          check(AAddr(d) = dataOf(i, q_v(d, i).arrived, 0), "an address of its own, in order");
          check(unsigned(ALen(d)) = q_v(d, i).bursts(q_v(d, i).arrived mod 64).beats - 1 and ASize(d) = "010",
            "a length");
          q_v(d, i).arrived := q_v(d, i).arrived + 1;
        end if;
        AReady(d) <= '0' when random_v.chance(Stall_g) else '1';
      end loop;
    end procedure;

    procedure reads is
      variable first_v : natural;
      variable burst_v : Burst_t;
    begin
      for side in Side_t loop
        if ReadValid(side) = '1' and ReadReady(side) = '1' then
          i := q_v(Reader_c, side).over;
          burst_v := q_v(Reader_c, side).bursts(i mod 64);
          check(i < q_v(Reader_c, side).arrived, "a beat for nobody");
          check(ReadData = dataOf(side, i, burst_v.came) and ReadError = isError(i), "a beat of another burst");
          check((ReadLast = '1') = (burst_v.came = burst_v.beats - 1), "the last beat");
          q_v(Reader_c, side).bursts(i mod 64).came := burst_v.came + 1;
          if ReadLast = '1' then
            q_v(Reader_c, side).over := i + 1;
            done_v := done_v + 1;
            idle_v := 0;
          end if;
        end if;
      end loop;
      if RValid = '0' or RReady = '1' then
        RValid <= '0';
        first_v := random_v.pick(Sides_g);
        for n in Side_t loop
          i := (first_v + n) mod Sides_g;
          if q_v(Reader_c, i).begun < q_v(Reader_c, i).arrived and not random_v.chance(Stall_g) then
            burst_v := q_v(Reader_c, i).bursts(q_v(Reader_c, i).begun mod 64);
            RValid <= '1';
            RId    <= std_logic_vector(to_unsigned(i, IdBits_c));
            RData  <= dataOf(i, q_v(Reader_c, i).begun, burst_v.sent);
            RResp  <= isError(q_v(Reader_c, i).begun) & '0';
            RLast  <= '0';
            q_v(Reader_c, i).bursts(q_v(Reader_c, i).begun mod 64).sent := burst_v.sent + 1;
            if burst_v.sent = burst_v.beats - 1 then
              RLast <= '1';
              q_v(Reader_c, i).begun := q_v(Reader_c, i).begun + 1;
            end if;
            exit;
          end if;
        end loop;
      end if;
      for side in Side_t loop
        ReadReady(side) <= '0' when random_v.chance(Stall_g) else '1';
      end loop;
    end procedure;

    procedure writes is
      variable burst_v : Burst_t;
      variable first_v : natural;
      variable side_v  : Side_t;
    begin
      if WValid = '1' and WReady = '1' then
        check(coming_v < shown_v, "a beat before its address");
        side_v := order_v(coming_v mod 256);
        i := to_integer(unsigned(WData(19 downto 8)));
        burst_v := q_v(Writer_c, side_v).bursts(i mod 64);
        check(WData = dataOf(side_v, i, burst_v.came) and WStrb = std_logic_vector(to_unsigned(burst_v.came + 1, 4)),
          "a beat that is not next");
        check((WLast = '1') = (burst_v.came = burst_v.beats - 1), "the last beat");
        q_v(Writer_c, side_v).bursts(i mod 64).came := burst_v.came + 1;
        if WLast = '1' then
          coming_v := coming_v + 1;
        end if;
      end if;
      WReady <= '0' when random_v.chance(Stall_g) else '1';
      for side in Side_t loop
        if WriteValid(side) = '1' and WriteReady(side) = '1' then
          i := q_v(Writer_c, side).begun;
          q_v(Writer_c, side).bursts(i mod 64).sent := q_v(Writer_c, side).bursts(i mod 64).sent + 1;
          if WriteLast(side) = '1' then
            q_v(Writer_c, side).begun := i + 1;
          end if;
        end if;
        if WriteValid(side) = '0' or WriteReady(side) = '1' then
          i := q_v(Writer_c, side).begun;
          burst_v := q_v(Writer_c, side).bursts(i mod 64);
          WriteValid(side) <= '0';
          if i < q_v(Writer_c, side).offered and not random_v.chance(Stall_g) then
            WriteValid(side) <= '1';
            WriteData((side + 1) * DataBits_c - 1 downto side * DataBits_c) <= dataOf(side, i, burst_v.sent);
            WriteStrb((side + 1) * 4 - 1 downto side * 4) <= std_logic_vector(to_unsigned(burst_v.sent + 1, 4));
            WriteLast(side) <= '1' when burst_v.sent = burst_v.beats - 1 else '0';
          end if;
        end if;
        if RespValid(side) = '1' and RespReady(side) = '1' then
          check(HasResponses_g, "no responses");
          i := q_v(Writer_c, side).over;
          check(RespError = isError(i), "a response of another burst");
          q_v(Writer_c, side).over := i + 1;
          done_v := done_v + 1;
          idle_v := 0;
        end if;
        RespReady(side) <= '0' when random_v.chance(Stall_g) else '1';
      end loop;
      if BValid = '1' and BReady = '1' and not HasResponses_g then
        i := to_integer(unsigned(BId));
        q_v(Writer_c, i).over := q_v(Writer_c, i).over + 1;
        done_v := done_v + 1;
        idle_v := 0;
      end if;
      if BValid = '0' or BReady = '1' then
        BValid <= '0';
        first_v := random_v.pick(Sides_g);
        for n in Side_t loop
          side_v := (first_v + n) mod Sides_g;
          -- The next one, behind that which is answered in this cycle.
          i := q_v(Writer_c, side_v).answered;
          if i < q_v(Writer_c, side_v).arrived and not random_v.chance(Stall_g) then
            burst_v := q_v(Writer_c, side_v).bursts(i mod 64);
            if burst_v.came = burst_v.beats then
              BValid <= '1';
              BId    <= std_logic_vector(to_unsigned(side_v, IdBits_c));
              BResp  <= isError(i) & '0';
              q_v(Writer_c, side_v).answered := i + 1;
              exit;
            end if;
          end if;
        end loop;
      end if;
    end procedure;

  begin
    random_v.seed(Seed_g, 5);
    test_runner_setup(runner, runner_cfg);
    for i in 1 to 4 loop
      wait until rising_edge(Clk);
    end loop;
    Rst <= '0';

    while test_suite loop

      if run("random bursts of all, answered in any order, under stalls") then
        while done_v < 2000 loop
          wait until rising_edge(Clk);
          idle_v := idle_v + 1;
          check(idle_v < 500, "somebody is answered");
          offer;
          addresses;
          reads;
          writes;
        end loop;
        for side in Side_t loop
          check(q_v(Reader_c, side).over > 100 and q_v(Writer_c, side).over > 100, "all are served");
        end loop;
      end if;

    end loop;

    test_runner_cleanup(runner);
  end process;

  test_runner_watchdog(runner, 10 ms);

  i_read : entity work.bus_read_arbiter
    generic map (
      Readers_g  => Sides_g,
      AddrBits_g => AddrBits_c,
      DataBits_g => DataBits_c
    )
    port map (
      Clk         => Clk,
      Rst         => Rst,
      Req_Valid   => ReqValid(Reader_c),
      Req_Ready   => ReqReady(Reader_c),
      Req_Addr    => ReqAddr(Reader_c),
      Req_Beats   => ReqBeats(Reader_c),
      Data_Valid  => ReadValid,
      Data_Ready  => ReadReady,
      Data        => ReadData,
      Data_Last   => ReadLast,
      Data_Error  => ReadError,
      Axi_ArValid => AValid(Reader_c),
      Axi_ArReady => AReady(Reader_c),
      Axi_ArAddr  => AAddr(Reader_c),
      Axi_ArId    => AId(Reader_c),
      Axi_ArLen   => ALen(Reader_c),
      Axi_ArSize  => ASize(Reader_c),
      Axi_ArBurst => open,
      Axi_RValid  => RValid,
      Axi_RReady  => RReady,
      Axi_RId     => RId,
      Axi_RData   => RData,
      Axi_RResp   => RResp,
      Axi_RLast   => RLast
    );

  i_write : entity work.bus_write_arbiter
    generic map (
      Writers_g      => Sides_g,
      AddrBits_g     => AddrBits_c,
      DataBits_g     => DataBits_c,
      Depth_g        => Depth_g,
      HasResponses_g => HasResponses_g
    )
    port map (
      Clk         => Clk,
      Rst         => Rst,
      Req_Valid   => ReqValid(Writer_c),
      Req_Ready   => ReqReady(Writer_c),
      Req_Addr    => ReqAddr(Writer_c),
      Req_Beats   => ReqBeats(Writer_c),
      Data_Valid  => WriteValid,
      Data_Ready  => WriteReady,
      Data        => WriteData,
      Data_Strobe => WriteStrb,
      Data_Last   => WriteLast,
      Resp_Valid  => RespValid,
      Resp_Ready  => RespReady,
      Resp_Error  => RespError,
      Axi_AwValid => AValid(Writer_c),
      Axi_AwReady => AReady(Writer_c),
      Axi_AwAddr  => AAddr(Writer_c),
      Axi_AwId    => AId(Writer_c),
      Axi_AwLen   => ALen(Writer_c),
      Axi_AwSize  => ASize(Writer_c),
      Axi_AwBurst => open,
      Axi_WValid  => WValid,
      Axi_WReady  => WReady,
      Axi_WData   => WData,
      Axi_WStrb   => WStrb,
      Axi_WLast   => WLast,
      Axi_BValid  => BValid,
      Axi_BReady  => BReady,
      Axi_BId     => BId,
      Axi_BResp   => BResp
    );

end architecture;
