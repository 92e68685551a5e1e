-- An AXI4 memory for benches, of which single words are read.
--
-- A word is at the output Latency_g cycles after its address was taken; it is that of the moment in
-- which the address was taken. Reads of one id are answered in order. With Stall_g, in percent, the
-- memory takes no address or withholds an answer in so many cycles, and answers of different ids
-- overtake one another.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;
  use ieee.math_real.all;

library work;
  use work.memory_pkg.all;

entity axi_read_memory is
  generic (
    AddrBits_g : positive;
    Latency_g  : positive := 71;
    Stall_g    : natural range 0 to 99 := 0;
    Seed_g     : positive := 1
  );
  port (
    Clk     : in    std_logic;
    ArValid : in    std_logic;
    ArReady : out   std_logic;
    ArId    : in    std_logic_vector(0 downto 0);
    ArAddr  : in    std_logic_vector(AddrBits_g - 1 downto 0);
    RValid  : out   std_logic;
    RReady  : in    std_logic;
    RId     : out   std_logic_vector(0 downto 0);
    RData   : out   std_logic_vector(63 downto 0);
    RResp   : out   std_logic_vector(1 downto 0)
  );
end entity;

architecture sim of axi_read_memory is

  constant Slots_c : positive := 128;

  type Read_t is record
    due  : natural;
    data : std_logic_vector(63 downto 0);
    resp : std_logic_vector(1 downto 0);
  end record;

  type Reads_t is array (0 to 1, 0 to Slots_c - 1) of Read_t;

  type Counts_t is array (0 to 1) of natural;

begin

  p_memory : process is
    variable reads_v : Reads_t;
    variable taken_v : Counts_t := (0, 0);
    variable given_v : Counts_t := (0, 0);
    variable now_v   : natural := 0;
    variable seed1_v : positive := Seed_g;
    variable seed2_v : positive := 77;
    variable id_v    : natural range 0 to 1;
    variable index_v : natural;
    variable read_v  : Read_t;
    variable held_v  : boolean := false;

    impure function stalls return boolean is
      variable x_v : real;
    begin
      if Stall_g = 0 then
        return false;
      end if;
      uniform(seed1_v, seed2_v, x_v);
      return x_v * 100.0 < real(Stall_g);
    end function;

    impure function isDue (id : natural) return boolean is
    begin
      return given_v(id) /= taken_v(id) and reads_v(id, given_v(id) mod Slots_c).due <= now_v;
    end function;

  begin
    ArReady <= '0';
    RValid  <= '0';
    loop
      wait until rising_edge(Clk);
      now_v := now_v + 1;
      if RValid = '1' and RReady = '1' then
        held_v := false;
      end if;
      if ArValid = '1' and ArReady = '1' then
        id_v := to_integer(unsigned(ArId));
        index_v := to_integer(unsigned(ArAddr(AddrBits_g - 1 downto 3)));
        assert ArAddr(2 downto 0) = "000"
          report "a read that is not aligned" severity failure;
        read_v.due  := now_v + Latency_g - 1;
        read_v.data := (others => 'X');
        read_v.resp := "10";
        if index_v < MemoryWords_c then
          read_v.data := Memory.read(index_v);
          read_v.resp := "00";
        end if;
        assert taken_v(id_v) - given_v(id_v) < Slots_c
          report "more reads than the memory of the bench has places for" severity failure;
        reads_v(id_v, taken_v(id_v) mod Slots_c) := read_v;
        taken_v(id_v) := taken_v(id_v) + 1;
      end if;
      if not held_v then
        id_v := 0;
        if isDue(1) and (not isDue(0) or stalls
                         or reads_v(1, given_v(1) mod Slots_c).due < reads_v(0, given_v(0) mod Slots_c).due) then
          id_v := 1;
        end if;
        held_v := isDue(id_v) and not stalls;
        if held_v then
          read_v := reads_v(id_v, given_v(id_v) mod Slots_c);
          given_v(id_v) := given_v(id_v) + 1;
          RId   <= std_logic_vector(to_unsigned(id_v, 1));
          RData <= read_v.data;
          RResp <= read_v.resp;
        end if;
      end if;
      RValid  <= '1' when held_v else '0';
      ArReady <= '0' when stalls else '1';
    end loop;
  end process;

end architecture;
