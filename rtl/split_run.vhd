-- The words of a region's run, written into a table that takes its place: the pages up to one stay with their
-- allocation, those behind it go later. By beats of eight, but for those that have a mark.
--
-- No word that stays tells of a run beyond the last one, and those behind it tell of none.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.alloc_pkg.all;
  use work.index_pkg.all;
  use work.window_pkg.all;

entity split_run is
  generic (
    LeafBits_g  : positive;
    FrameBits_g : positive
  );
  port (
    Clk          : in    std_logic;
    Rst          : in    std_logic;
    -- All words of a region, whose first frame is that.
    Start        : in    std_logic;
    Frame        : in    std_logic_vector(FrameBits_g - 1 downto 0);
    -- These stand until it is done: the last page that stays, whether the first one begins the allocation, its rights
    -- and memory.
    Last         : in    std_logic_vector(LeafBits_g - 1 downto 0);
    Begins       : in    std_logic;
    Writable     : in    std_logic;
    Memory       : in    std_logic_vector(MemoryBits_c - 1 downto 0);
    -- For one cycle: the last word was written in the cycle before, if not yet visible.
    Done         : out   std_logic;
    -- One word, or those of its beat, whose frames lie behind each other.
    Write_Valid  : out   std_logic;
    Write_Ready  : in    std_logic;
    Write_Within : out   std_logic_vector(LeafBits_g - 1 downto 0);
    Write_Many   : out   std_logic;
    Write_Word   : out   TableWord_t
  );
end entity;

architecture rtl of split_run is

  subtype Within_t is unsigned(LeafBits_g - 1 downto 0);

  signal Running : std_logic;
  -- Of all of the region's frames the same bits.
  signal Base    : unsigned(FrameBits_g - 1 downto 0);
  signal At      : Within_t;
  signal NextAt  : Within_t;
  -- The run that the word tells of.
  signal Size    : unsigned(LaneSizeBits_c - 1 downto 0);
  -- The beat has the allocation's first word; it has one that is not as its others.
  signal IsHead  : std_logic;
  signal IsAlone : std_logic;
  signal IsOver  : std_logic;
  signal Ends    : std_logic;

  function beatOf (place : Within_t) return unsigned is
  begin
    return place(LeafBits_g - 1 downto BeatShift_c);
  end function;

  function sizeAt (place : Within_t; last_one : Within_t) return unsigned is
    constant Row_c : positive := minimum(RunLong_c, LeafBits_g);
  begin
    if shift_right(place, Row_c) < shift_right(last_one, Row_c) then
      return to_unsigned(Row_c, LaneSizeBits_c);
    elsif place > last_one then
      return to_unsigned(0, LaneSizeBits_c);
    end if;
    return sizeBefore(resize(place, RunLong_c), resize(last_one, RunLong_c));
  end function;

begin

  IsHead  <= Begins and not isAny(std_logic_vector(beatOf(At)), 6);
  IsAlone <= IsHead or not isAny(std_logic_vector(beatOf(At) xor beatOf(unsigned(Last))), 3);
  NextAt  <= At + 1 when IsAlone = '1' else At + BeatWords_c;
  IsOver  <= '1' when NextAt = 0 else '0';
  Ends    <= Running and Write_Ready and IsOver;

  Write_Valid  <= Running;
  Write_Within <= std_logic_vector(At);
  Write_Many   <= not IsAlone;

  p_word : process (all) is
    variable word_v : TableWord_t;
  begin
    word_v := pageWord(Base or resize(At, FrameBits_g), '0', Writable, Memory, 0);
    word_v(SizeLow_c + LaneSizeBits_c - 1 downto SizeLow_c) := std_logic_vector(Size);
    Write_Word <= marked(word_v, Begins = '1' and At = 0, At = unsigned(Last), to_unsigned(1, 2));
  end process;

  p_words : process (Clk) is
    variable at_v : Within_t;
  begin
    if rising_edge(Clk) then
      at_v := At;
      if Running = '1' and Write_Ready = '1' then
        at_v := NextAt;
      end if;
      Done <= Ends;
      if Ends = '1' then
        Running <= '0';
      end if;
      if Start = '1' then
        Running <= '1';
        Base    <= unsigned(Frame);
        at_v    := (others => '0');
      end if;
      if Running = '1' or Start = '1' then
        At   <= at_v;
        Size <= sizeAt(at_v, unsigned(Last));
      end if;
      if Rst = '1' then
        Running <= '0';
        Done    <= '0';
      end if;
    end if;
  end process;

end architecture;
