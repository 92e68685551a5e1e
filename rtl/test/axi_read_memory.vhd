-- An AXI4 memory for benches, of which single beats are read.
--
-- A beat is at the output Latency_g cycles after its address was taken; its words are those of the moment
-- in which the address was taken. Reads are answered in order. With Stall_g, in percent, the memory
-- takes no address or withholds an answer in so many cycles. The words are those of memory_pkg, or of table_memory_pkg,
-- whose memory an allocator writes.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;
  use ieee.math_real.all;

library work;
  use work.memory_pkg.all;
  use work.table_memory_pkg.Tables;

entity axi_read_memory is
  generic (
    AddrBits_g : positive;
    DataBits_g : positive;
    Latency_g  : positive := 71;
    Stall_g    : natural range 0 to 99 := 0;
    Seed_g     : positive := 1;
    -- Of table_memory_pkg
    OfTables_g : boolean := false
  );
  port (
    Clk     : in    std_logic;
    ArValid : in    std_logic;
    ArReady : out   std_logic;
    ArAddr  : in    std_logic_vector(AddrBits_g - 1 downto 0);
    RValid  : out   std_logic;
    RReady  : in    std_logic;
    RData   : out   std_logic_vector(DataBits_g - 1 downto 0);
    RResp   : out   std_logic_vector(1 downto 0)
  );
end entity;

architecture sim of axi_read_memory is

  constant Slots_c : positive := 128;
  constant Words_c : positive := DataBits_g / Word_t'length;

  type Read_t is record
    due  : natural;
    data : std_logic_vector(DataBits_g - 1 downto 0);
    resp : std_logic_vector(1 downto 0);
  end record;

  type Reads_t is array (0 to Slots_c - 1) of Read_t;

begin

  p_memory : process is
    variable reads_v : Reads_t;
    variable taken_v : natural := 0;
    variable given_v : natural := 0;
    variable now_v   : natural := 0;
    variable seed1_v : positive := Seed_g;
    variable seed2_v : positive := 77;
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

    impure function readFrom (index : natural) return Read_t is
      variable read_v : Read_t := (now_v + Latency_g - 1, (others => 'X'), "00");
    begin
      for i in 0 to Words_c - 1 loop
        if OfTables_g then
          read_v.data(64 * i + 63 downto 64 * i) := Tables.read(index + i);
        elsif Memory.isSpoilt(index + i) then
          read_v.resp := "10";
        else
          read_v.data(64 * i + 63 downto 64 * i) := Memory.read(index + i);
        end if;
      end loop;
      return read_v;
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
        assert unsigned(ArAddr) mod (8 * Words_c) = 0
          report "a read that is not aligned" severity failure;
        assert taken_v - given_v < Slots_c
          report "more reads than the memory of the bench has places for" severity failure;
        reads_v(taken_v mod Slots_c) := readFrom(to_integer(unsigned(ArAddr(AddrBits_g - 1 downto 3))));
        taken_v := taken_v + 1;
      end if;
      if not held_v and given_v /= taken_v then
        read_v := reads_v(given_v mod Slots_c);
        held_v := read_v.due <= now_v and not stalls;
        if held_v then
          given_v := given_v + 1;
          RData <= read_v.data;
          RResp <= read_v.resp;
        end if;
      end if;
      RValid  <= '1' when held_v else '0';
      ArReady <= '0' when stalls else '1';
    end loop;
  end process;

end architecture;
