-- An AXI4 memory for an allocator's tables: single beats are read and written, of these the words that strobes name,
-- and each access may be told to fail. Beside the words it has those that are expected, and counts how many differ.
--
-- An access is answered Latency_g cycles after its address was taken. With Stall_g, in percent, the memory takes
-- no address or withholds an answer in so many cycles.

library ieee;
  use ieee.std_logic_1164.all;

package table_memory_pkg is

  -- Words of all pages that are looked at, and of the memory, whose other pages nobody has.
  constant TableWords_c : positive := 2 ** 18;
  constant PageWords_c  : positive := 2 ** 9;
  constant Pages_c      : positive := 2 ** 18;

  subtype TableWord_t is std_logic_vector(63 downto 0);

  -- What was never written.
  constant Unknown_c : TableWord_t := x"deadbeefdeadbeef";

  type TableMemory_t is protected

    procedure write (index : natural; word : TableWord_t);

    procedure expect (index : natural; word : TableWord_t);

    impure function read (index : natural) return TableWord_t;

    impure function expected (index : natural) return TableWord_t;

    impure function different return natural;

    -- What is there now is as it has to be.
    procedure accept_all;

    -- The accesses from this one on are errors, counted from the last call; -1: none.
    procedure fail (from : integer);

    impure function fails return boolean;

    -- A write has failed since the first one was told to.
    procedure spoil;

    impure function isSpoilt return boolean;

  end protected;

  shared variable Tables : TableMemory_t;

end package;

package body table_memory_pkg is

  type TableMemory_t is protected body

    type Words_t is array (0 to TableWords_c - 1) of TableWord_t;

    -- Where the words of a page are kept, of those that were looked at.
    type Places_t is array (0 to Pages_c - 1) of integer range -1 to TableWords_c / PageWords_c - 1;

    variable places : Places_t := (others => -1);
    variable used : natural := 0;
    variable words : Words_t := (others => Unknown_c);
    variable wanted : Words_t := (others => Unknown_c);
    variable differing : natural := 0;
    variable failing : integer := -1;
    variable accesses : natural := 0;
    variable spoilt : boolean := false;

    impure function placeOf (word_index : natural) return natural is
      constant Page_c : natural := word_index / PageWords_c;
    begin
      if places(Page_c) < 0 then
        places(Page_c) := used;
        used := used + 1;
      end if;
      return places(Page_c) * PageWords_c + word_index mod PageWords_c;
    end function;

    procedure change (index : natural; is_wanted : boolean; word : TableWord_t) is
    begin
      if words(index) /= wanted(index) then
        differing := differing - 1;
      end if;
      if is_wanted then
        wanted(index) := word;
      else
        words(index) := word;
      end if;
      if words(index) /= wanted(index) then
        differing := differing + 1;
      end if;
    end procedure;

    procedure write (index : natural; word : TableWord_t) is
    begin
      change(placeOf(index), false, word);
    end procedure;

    procedure expect (index : natural; word : TableWord_t) is
    begin
      change(placeOf(index), true, word);
    end procedure;

    impure function read (index : natural) return TableWord_t is
    begin
      return words(placeOf(index));
    end function;

    impure function expected (index : natural) return TableWord_t is
    begin
      return wanted(placeOf(index));
    end function;

    impure function different return natural is
    begin
      return differing;
    end function;

    procedure accept_all is
    begin
      wanted    := words;
      differing := 0;
    end procedure;

    procedure fail (from : integer) is
    begin
      failing := from;
      accesses := 0;
      spoilt := spoilt and from < 0;
    end procedure;

    procedure spoil is
    begin
      spoilt := true;
    end procedure;

    impure function isSpoilt return boolean is
    begin
      return spoilt;
    end function;

    impure function fails return boolean is
    begin
      accesses := accesses + 1;
      return failing >= 0 and accesses > failing;
    end function;

  end protected body;

end package body;

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;
  use ieee.math_real.all;

library work;
  use work.alloc_pkg.Beat_t;
  use work.alloc_pkg.BeatWords_c;
  use work.table_memory_pkg.all;

entity table_memory is
  generic (
    AddrBits_g : positive;
    Latency_g  : positive := 71;
    Stall_g    : natural range 0 to 99 := 0;
    Seed_g     : positive := 1
  );
  port (
    Clk     : in    std_logic;
    AwValid : in    std_logic;
    AwReady : out   std_logic;
    AwAddr  : in    std_logic_vector(AddrBits_g - 1 downto 0);
    WValid  : in    std_logic;
    WReady  : out   std_logic;
    WData   : in    Beat_t;
    WStrb   : in    std_logic_vector(Beat_t'length / 8 - 1 downto 0);
    BValid  : out   std_logic;
    BReady  : in    std_logic;
    BResp   : out   std_logic_vector(1 downto 0);
    ArValid : in    std_logic;
    ArReady : out   std_logic;
    ArAddr  : in    std_logic_vector(AddrBits_g - 1 downto 0);
    RValid  : out   std_logic;
    RReady  : in    std_logic;
    RData   : out   Beat_t;
    RResp   : out   std_logic_vector(1 downto 0)
  );
end entity;

architecture sim of table_memory is

begin

  p_memory : process is
    constant Slots_c : positive := 256;

    type Access_t is record
      due  : natural;
      data : Beat_t;
      resp : std_logic_vector(1 downto 0);
    end record;

    type Accesses_t is array (0 to Slots_c - 1) of Access_t;

    type Indices_t is array (0 to Slots_c - 1) of natural;

    type Beats_t is array (0 to Slots_c - 1) of Beat_t;

    type Masks_t is array (0 to Slots_c - 1) of std_logic_vector(BeatWords_c - 1 downto 0);

    variable reads_v  : Accesses_t;
    variable writes_v : Accesses_t;
    variable addrs_v  : Indices_t;
    variable words_v  : Beats_t;
    variable masks_v  : Masks_t;
    -- Addresses that were taken, words, writes that were done, responses; reads that were taken and answered.
    variable aws_v    : natural := 0;
    variable ws_v     : natural := 0;
    variable done_v   : natural := 0;
    variable bs_v     : natural := 0;
    variable ars_v    : natural := 0;
    variable rs_v     : natural := 0;
    variable now_v    : natural := 0;
    variable seed1_v  : positive := Seed_g;
    variable seed2_v  : positive := 55;

    impure function stalls return boolean is
      variable x_v : real;
    begin
      if Stall_g = 0 then
        return false;
      end if;
      uniform(seed1_v, seed2_v, x_v);
      return x_v * 100.0 < real(Stall_g);
    end function;

    impure function resp return std_logic_vector is
    begin
      if Tables.fails then
        return "10";
      end if;
      return "00";
    end function;

    impure function indexOf (addr : std_logic_vector) return natural is
    begin
      assert unsigned(addr(5 downto 0)) = 0
        report "an address that is not aligned" severity failure;
      return to_integer(unsigned(addr)) / 8;
    end function;

    impure function beatAt (index : natural) return Beat_t is
      variable beat_v : Beat_t;
    begin
      for i in 0 to BeatWords_c - 1 loop
        beat_v(64 * i + 63 downto 64 * i) := Tables.read(index + i);
      end loop;
      return beat_v;
    end function;

  begin
    AwReady <= '0';
    WReady  <= '0';
    ArReady <= '0';
    BValid  <= '0';
    RValid  <= '0';
    loop
      wait until rising_edge(Clk);
      now_v := now_v + 1;
      if AwValid = '1' and AwReady = '1' then
        addrs_v(aws_v mod Slots_c) := indexOf(AwAddr);
        aws_v := aws_v + 1;
      end if;
      if WValid = '1' and WReady = '1' then
        words_v(ws_v mod Slots_c) := WData;
        for i in 0 to BeatWords_c - 1 loop
          assert WStrb(8 * i + 7 downto 8 * i) = x"ff" or WStrb(8 * i + 7 downto 8 * i) = x"00"
            report "a part of a word" severity failure;
          masks_v(ws_v mod Slots_c)(i) := WStrb(8 * i);
        end loop;
        ws_v := ws_v + 1;
      end if;
      if done_v < aws_v and done_v < ws_v then
        writes_v(done_v mod Slots_c) := (now_v + Latency_g - 1, (others => '0'), resp);
        if writes_v(done_v mod Slots_c).resp = "00" then
          for i in 0 to BeatWords_c - 1 loop
            if masks_v(done_v mod Slots_c)(i) = '1' then
              Tables.write(addrs_v(done_v mod Slots_c) + i, words_v(done_v mod Slots_c)(64 * i + 63 downto 64 * i));
            end if;
          end loop;
        else
          Tables.spoil;
        end if;
        done_v := done_v + 1;
      end if;
      if BValid = '1' and BReady = '1' then
        BValid <= '0';
      end if;
      if (BValid = '0' or BReady = '1') and bs_v < done_v then
        if writes_v(bs_v mod Slots_c).due <= now_v and not stalls then
          BValid <= '1';
          BResp  <= writes_v(bs_v mod Slots_c).resp;
          bs_v := bs_v + 1;
        end if;
      end if;
      if ArValid = '1' and ArReady = '1' then
        reads_v(ars_v mod Slots_c) := (now_v + Latency_g - 1, beatAt(indexOf(ArAddr)), resp);
        ars_v := ars_v + 1;
      end if;
      if RValid = '1' and RReady = '1' then
        RValid <= '0';
      end if;
      if (RValid = '0' or RReady = '1') and rs_v < ars_v then
        if reads_v(rs_v mod Slots_c).due <= now_v and not stalls then
          RValid <= '1';
          RData  <= reads_v(rs_v mod Slots_c).data;
          RResp  <= reads_v(rs_v mod Slots_c).resp;
          rs_v := rs_v + 1;
        end if;
      end if;
      AwReady <= '0' when stalls or aws_v - bs_v > Slots_c - 2 else '1';
      WReady  <= '0' when stalls or ws_v - bs_v > Slots_c - 2 else '1';
      ArReady <= '0' when stalls or ars_v - rs_v > Slots_c - 2 else '1';
    end loop;
  end process;

end architecture;
