-- Words of an allocation's pages are read in one place and written in another, or in the same, as they are to be
-- from then on: of an allocation that moves, whose frames stay where they are, or of one that is cut.
--
-- A run of frames is told only as far as it is one: of an allocation that moves as far as both places are aligned
-- alike, of one that is cut as far as it ends before the cut. Up to 64 words are on the way.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.alloc_pkg.all;
  use work.window_pkg.all;

entity move_words is
  generic (
    -- Of a word's place in a table.
    LeafBits_g : positive
  );
  port (
    Clk          : in    std_logic;
    Rst          : in    std_logic;
    -- Count words, one at least. All of this stands until it is done.
    Start        : in    std_logic;
    From         : in    std_logic_vector(LeafBits_g - 1 downto 0);
    To_Place     : in    std_logic_vector(LeafBits_g - 1 downto 0);
    Count        : in    std_logic_vector(LeafBits_g downto 0);
    -- They are cut behind the last one, which gets the mark, 64 at most in one aligned row of 64. All are read before
    -- one is written, and none is written if a read fails. To_Place is From.
    Cut          : in    std_logic;
    -- The first one begins its allocation, which has so many pages.
    Begins       : in    std_logic;
    Pages        : in    std_logic_vector(LeafBits_g downto 0);
    -- For one cycle: the last one is written, if not yet visible; a read has failed.
    Done         : out   std_logic;
    Failed       : out   std_logic;
    -- The first word whose run has become shorter; where there is none the place behind the last one.
    Shorter      : out   std_logic_vector(LeafBits_g downto 0);
    -- Words of the tables
    Read_Valid   : out   std_logic;
    Read_Ready   : in    std_logic;
    Read_Within  : out   std_logic_vector(LeafBits_g - 1 downto 0);
    Data_Valid   : in    std_logic;
    Data         : in    TableWord_t;
    Data_Failed  : in    std_logic;
    Write_Valid  : out   std_logic;
    Write_Ready  : in    std_logic;
    Write_Within : out   std_logic_vector(LeafBits_g - 1 downto 0);
    Write_Word   : out   TableWord_t
  );
end entity;

architecture rtl of move_words is

  -- Words that are on the way.
  constant Depth_c     : positive := 64;

  subtype Count_t is unsigned(LeafBits_g downto 0);

  subtype Size_t is unsigned(SizeBits_c - 1 downto 0);

  signal Running   : std_logic;
  signal Clear     : std_logic;
  -- Words to ask for, to come, to take from the queue and to write; room for those on the way.
  signal Asks      : Count_t;
  signal Comes     : Count_t;
  signal Takes     : Count_t;
  signal Writes    : Count_t;
  signal Room      : natural range 0 to Depth_c;
  signal At        : Count_t;
  signal LastAt    : unsigned(LeafBits_g - 1 downto 0);
  signal ReadAt    : unsigned(LeafBits_g - 1 downto 0);
  signal HasFailed : std_logic;
  signal Asked     : std_logic;
  signal Came      : std_logic;
  signal Take      : std_logic;
  signal Wrote     : std_logic;
  signal QueueOut  : std_logic_vector(WordBits_c - 1 downto 0);
  signal HasQueued : std_logic;
  -- The word that is written next, its place, and its longest run there.
  signal Held      : std_logic;
  signal Word      : TableWord_t;
  signal WordAt    : Count_t;
  signal Limit     : Size_t;
  signal IsFirst   : std_logic;
  signal IsLast    : std_logic;
  -- Of places that are not aligned alike.
  signal Alike     : Size_t;
  signal Shorts    : std_logic;

  -- The longest run, as a power of two, at a place that ends before the one behind `last`, in one row of 64.
  function sizeBefore (
    place : unsigned(RunLong_c - 1 downto 0);
    last  : unsigned(RunLong_c - 1 downto 0)
  ) return Size_t is
    variable size_v : Size_t := (others => '0');
    constant End_c  : unsigned(RunLong_c downto 0) := ('0' & last) + 1;
  begin
    for size in 1 to RunLong_c loop
      if shift_right('0' & place, size) < shift_right(End_c, size) then
        size_v := to_unsigned(size, SizeBits_c);
      end if;
    end loop;
    return size_v;
  end function;

  -- As far as two places are aligned alike.
  function alignedAlike (one : unsigned; other : unsigned) return Size_t is
    constant Differ_c : unsigned(LeafBits_g - 1 downto 0) := one xor other;
    variable size_v   : Size_t := to_unsigned(RunLong_c, SizeBits_c);
  begin
    for bit in minimum(RunLong_c, LeafBits_g) - 1 downto 0 loop
      if Differ_c(bit) = '1' then
        size_v := to_unsigned(bit, SizeBits_c);
      end if;
    end loop;
    return size_v;
  end function;

  function lowBits (place : unsigned) return unsigned is
  begin
    return resize(place, RunLong_c);
  end function;

begin

  Read_Valid   <= '1' when Running = '1' and Asks /= 0 and Room /= 0 else '0';
  Read_Within  <= std_logic_vector(ReadAt);
  Write_Valid  <= Held;
  Write_Within <= std_logic_vector(WordAt(LeafBits_g - 1 downto 0));

  Clear <= Rst or Start;
  Asked <= Read_Valid and Read_Ready;
  Came  <= Data_Valid and Running;
  Wrote <= Held and Write_Ready;
  -- Of one that is cut, when all have come and none has failed.
  Take  <= '1' when Running = '1' and HasQueued = '1' and (Held = '0' or Wrote = '1') and
                    (Cut = '0' or (Comes = 0 and HasFailed = '0')) else '0';

  Done   <= '1' when Running = '1' and (Writes = 0 or (Cut = '1' and Comes = 0 and HasFailed = '1')) else '0';
  Failed <= HasFailed;

  i_queue : entity work.fifo
    generic map (
      Width_g => WordBits_c,
      Depth_g => Depth_c
    )
    port map (
      Clk       => Clk,
      Rst       => Clear,
      In_Valid  => Came,
      In_Ready  => open,
      In_Data   => Data,
      Out_Valid => HasQueued,
      Out_Ready => Take,
      Out_Data  => QueueOut,
      Level     => open,
      In_Place  => open,
      Out_Place => open
    );

  Shorts <= '1' when unsigned(Word(SizeLow_c + SizeBits_c - 1 downto SizeLow_c)) > Limit else '0';

  p_word : process (all) is
  begin
    Write_Word <= Word;
    if Shorts = '1' then
      Write_Word(SizeLow_c + SizeBits_c - 1 downto SizeLow_c) <= std_logic_vector(Limit);
    end if;
    Write_Word(LastBit_c) <= IsLast;
    if IsFirst = '1' then
      Write_Word(PagesLow_c + PagesBits_c - 1 downto PagesLow_c) <=
        std_logic_vector(resize(unsigned(Pages) - 1, PagesBits_c));
    end if;
  end process;

  p_counts : process (Clk) is
  begin
    if rising_edge(Clk) then
      if Asked = '1' then
        Asks   <= Asks - 1;
        ReadAt <= ReadAt + 1;
      end if;
      if Asked = '1' and Wrote = '0' then
        Room <= Room - 1;
      elsif Asked = '0' and Wrote = '1' then
        Room <= Room + 1;
      end if;
      if Came = '1' then
        Comes     <= Comes - 1;
        HasFailed <= HasFailed or Data_Failed;
      end if;
      if Wrote = '1' then
        Writes <= Writes - 1;
      end if;
      if Done = '1' then
        Running <= '0';
      end if;
      if Start = '1' then
        Running   <= '1';
        Asks      <= unsigned(Count);
        Comes     <= unsigned(Count);
        Writes    <= unsigned(Count);
        Room      <= Depth_c;
        ReadAt    <= unsigned(From);
        HasFailed <= '0';
      end if;
      if Rst = '1' then
        Running <= '0';
      end if;
    end if;
  end process;

  p_held : process (Clk) is
  begin
    if rising_edge(Clk) then
      if Wrote = '1' then
        Held <= '0';
        if Shorts = '1' and WordAt < unsigned(Shorter) then
          Shorter <= std_logic_vector(WordAt);
        end if;
      end if;
      if Take = '1' then
        Held    <= '1';
        Word    <= QueueOut;
        WordAt  <= At;
        Limit   <= Alike;
        IsFirst <= '0';
        IsLast  <= '0';
        if Takes = unsigned(Count) then
          IsFirst <= Begins;
        end if;
        if Cut = '1' then
          Limit <= sizeBefore(lowBits(At), lowBits(LastAt));
          if Takes = 1 then
            IsLast <= '1';
          end if;
        end if;
        At    <= At + 1;
        Takes <= Takes - 1;
      end if;
      if Start = '1' then
        Takes   <= unsigned(Count);
        At      <= '0' & unsigned(To_Place);
        LastAt  <= resize(unsigned(To_Place) + unsigned(Count) - 1, LeafBits_g);
        Alike   <= alignedAlike(unsigned(From), unsigned(To_Place));
        Shorter <= std_logic_vector(('0' & unsigned(To_Place)) + unsigned(Count));
      end if;
      if Rst = '1' or Start = '1' then
        Held <= '0';
      end if;
    end if;
  end process;

end architecture;
