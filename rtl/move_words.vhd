-- Words of an allocation's pages are read in one place and written in another, or in the same, as they are to be
-- from then on: of an allocation that moves, whose frames stay where they are, or of one that is cut.
--
-- They go by beats of eight. What a word has for itself, a frame and how long its run is, goes along in a lane; all
-- else is the same in all of them but for the marks. Where the new place lies otherwise in its beats, lanes are
-- turned, and each beat is made of two of before. A run of frames is told only as far as it is one: of an allocation
-- that moves as far as both places are aligned alike, of one that is cut as far as it ends before the cut. Up to 64
-- beats are on the way.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.alloc_pkg.all;
  use work.window_pkg.all;

entity move_words is
  generic (
    -- Of a word's place in a table, and of a frame's number.
    LeafBits_g  : positive;
    FrameBits_g : positive
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
    -- one is written, and none is written if a read fails. To_Place is From. A word of 0 stays so: of a lazy large
    -- allocation a page that nobody has touched.
    Cut          : in    std_logic;
    -- They become words of a large allocation, of which the new place has zeroes only: reserved ones are left out.
    To_Large     : in    std_logic;
    -- The first one begins its allocation, which has so many pages; rights and memory as in this word.
    Begins       : in    std_logic;
    Pages        : in    std_logic_vector(LeafBits_g downto 0);
    Base         : in    TableWord_t;
    -- For one cycle: the last one was written in the cycle before, if not yet visible; a read has failed.
    Done         : out   std_logic;
    Failed       : out   std_logic;
    -- The first word whose run has become shorter; where there is none the place behind the last one.
    Shorter      : out   std_logic_vector(LeafBits_g downto 0);
    -- Beats of the tables
    Read_Valid   : out   std_logic;
    Read_Ready   : in    std_logic;
    Read_Within  : out   std_logic_vector(LeafBits_g - 1 downto 0);
    Data_Valid   : in    std_logic;
    Data         : in    Beat_t;
    Data_Failed  : in    std_logic;
    -- One word, or several of its beat, which are alike but for their lanes.
    Write_Valid  : out   std_logic;
    Write_Ready  : in    std_logic;
    Write_Within : out   std_logic_vector(LeafBits_g - 1 downto 0);
    Write_Word   : out   TableWord_t;
    Write_Many   : out   std_logic;
    Write_Mask   : out   WordMask_t;
    Write_Lanes  : out   std_logic_vector(BeatWords_c * (LaneMarks_c + FrameBits_g) - 1 downto 0)
  );
end entity;

architecture rtl of move_words is

  -- Beats that are on the way.
  constant Depth_c    : positive := 64;
  constant LaneBits_c : positive := LaneMarks_c + FrameBits_g;

  subtype Count_t is unsigned(LeafBits_g downto 0);

  subtype Within_t is unsigned(LeafBits_g - 1 downto 0);

  subtype Size_t is unsigned(LaneSizeBits_c - 1 downto 0);

  subtype InBeat_t is unsigned(BeatShift_c - 1 downto 0);

  subtype Lanes_t is std_logic_vector(BeatWords_c * LaneBits_c - 1 downto 0);

  signal Running   : std_logic;
  -- The last word is written, or none is to be.
  signal Ends      : std_logic;
  signal Clear     : std_logic;
  -- Beats to ask for, to come, and to take from the queue; room for those on the way.
  signal Asks      : Count_t;
  signal Comes     : Count_t;
  signal Takes     : Count_t;
  signal Room      : natural range 0 to Depth_c;
  signal ReadAt    : unsigned(LeafBits_g - 1 downto BeatShift_c);
  signal HasFailed : std_logic;
  signal Asked     : std_logic;
  signal Came      : std_logic;
  signal Wrote     : std_logic;
  signal Queued    : Lanes_t;
  signal Reserved  : WordMask_t;
  signal QueueOut  : Lanes_t;
  signal HasQueued : std_logic;
  -- The last two beats; lanes are written so many further than they were read, so those of the older one are the first
  -- ones. So many more beats are to be there before some are written.
  signal Turn      : InBeat_t;
  signal Step      : std_logic;
  signal Take      : std_logic;
  signal Newer     : Lanes_t;
  signal Older     : Lanes_t;
  signal Wants     : natural range 0 to 2;
  -- The next word that is written, and the last one; the first one is to come, it is written alone, as are all that
  -- are cut.
  signal At        : Within_t;
  signal NextAt    : Within_t;
  signal LastAt    : Within_t;
  signal IsFirst   : std_logic;
  -- The word with the mark of the first one; it is left out, which is known when its beat, the first one, has come.
  signal IsHead    : std_logic;
  signal NoneCame  : std_logic;
  signal LeavesHead : std_logic;
  signal IsAlone   : std_logic;
  signal IsLast    : std_logic;
  signal Leaves    : std_logic;
  signal IsLastBeat : std_logic;
  signal Mask      : WordMask_t;
  signal LanesNow  : Lanes_t;
  signal Lanes     : Lanes_t;
  -- The longest run that may be told; lanes that tell of a longer one; there was one.
  signal Limit     : Size_t;
  signal Shorts    : WordMask_t;
  signal HasShort  : std_logic;
  -- Words that are neither valid nor reserved.
  signal IsFree    : WordMask_t;
  signal IsLeft    : WordMask_t;

  -- As far as two places are aligned alike.
  function alignedAlike (one : unsigned; other : unsigned) return Size_t is
    constant Differ_c : unsigned(LeafBits_g - 1 downto 0) := one xor other;
    variable size_v   : Size_t := to_unsigned(RunLong_c, LaneSizeBits_c);
  begin
    for bit in minimum(RunLong_c, LeafBits_g) - 1 downto 0 loop
      if Differ_c(bit) = '1' then
        size_v := to_unsigned(bit, LaneSizeBits_c);
      end if;
    end loop;
    return size_v;
  end function;

  function lowBits (place : unsigned) return unsigned is
  begin
    return resize(place, RunLong_c);
  end function;

  function beatOf (place : Within_t) return unsigned is
  begin
    return place(LeafBits_g - 1 downto BeatShift_c);
  end function;

  function inBeat (place : Within_t) return InBeat_t is
  begin
    return place(BeatShift_c - 1 downto 0);
  end function;

  -- Beats that so many words are in, from this place on.
  function beatsOf (place : Within_t; words : Count_t) return Count_t is
    constant Words_c : unsigned(LeafBits_g + 1 downto 0) :=
      resize(words, LeafBits_g + 2) + inBeat(place) + (BeatWords_c - 1);
  begin
    return resize(shift_right(Words_c, BeatShift_c), LeafBits_g + 1);
  end function;

  function laneOf (all_lanes : Lanes_t; which : natural) return std_logic_vector is
  begin
    return all_lanes(LaneBits_c * (which + 1) - 1 downto LaneBits_c * which);
  end function;

  -- Eight lanes of two beats, each so many further. The longest way first: it is that of fewer lanes.
  function turned (older_ones : Lanes_t; newer_ones : Lanes_t; lanes_on : InBeat_t) return Lanes_t is
    variable lanes_v : unsigned(2 * Lanes_t'length - 1 downto 0) := unsigned(newer_ones & older_ones);
  begin
    for b in lanes_on'range loop
      if lanes_on(b) = '1' then
        lanes_v := shift_left(lanes_v, LaneBits_c * 2 ** b);
      end if;
    end loop;
    return std_logic_vector(lanes_v(2 * Lanes_t'length - 1 downto Lanes_t'length));
  end function;

begin

  Read_Valid  <= '1' when Running = '1' and Asks /= 0 and Room /= 0 else '0';
  Read_Within <= std_logic_vector(ReadAt & to_unsigned(0, BeatShift_c));

  Clear <= Rst or Start;
  Asked <= Read_Valid and Read_Ready;
  Came  <= Data_Valid and Running;
  Wrote <= Write_Valid and Write_Ready;

  Ends   <= '1' when Running = '1' and ((Wrote = '1' and IsLastBeat = '1' and (IsAlone = '0' or At = LastAt)) or
                                        (Cut = '1' and Comes = 0 and HasFailed = '1')) else '0';
  Failed <= HasFailed;

  ------------------------------------------------------------------------------------------------
  -- Beats that come
  ------------------------------------------------------------------------------------------------
  g_come : for i in 0 to BeatWords_c - 1 generate
    Queued(LaneBits_c * (i + 1) - 1 downto LaneBits_c * i) <=
      laneOfWord(Data(WordBits_c * (i + 1) - 1 downto WordBits_c * i), FrameBits_g);
    Reserved(i) <= Queued(LaneBits_c * i + LaneSizeBits_c + 1);
  end generate;

  i_queue : entity work.fifo
    generic map (
      Width_g => BeatWords_c * LaneBits_c,
      Depth_g => Depth_c
    )
    port map (
      Clk       => Clk,
      Rst       => Clear,
      In_Valid  => Came,
      In_Ready  => open,
      In_Data   => Queued,
      Out_Valid => HasQueued,
      Out_Ready => Take,
      Out_Data  => QueueOut,
      Level     => open,
      In_Place  => open,
      Out_Place => open
    );

  -- Behind the last beat there may be one more that is made of it. Of one that is cut nothing goes on before all have
  -- come, and none has failed.
  Step <= '1' when Running = '1' and (Wants /= 0 or (Wrote = '1' and Leaves = '1'))
                   and (HasQueued = '1' or Takes = 0)
                   and (Cut = '0' or (Comes = 0 and HasFailed = '0')) else '0';
  Take <= Step when Takes /= 0 else '0';

  ------------------------------------------------------------------------------------------------
  -- Words that are written
  ------------------------------------------------------------------------------------------------
  IsAlone <= Cut or IsHead;
  IsHead  <= IsFirst and Begins and not LeavesHead;
  IsLast  <= Cut when At = LastAt else '0';

  -- The rest of the beat is written, and the next one begins, or it was the last one.
  Leaves     <= '1' when IsAlone = '0' or inBeat(At) = BeatWords_c - 1 else '0';
  IsLastBeat <= '1' when beatOf(At) = beatOf(LastAt) else '0';
  NextAt     <= At + 1 when Leaves = '0' else (beatOf(At) + 1) & to_unsigned(0, BeatShift_c);

  LanesNow <= turned(Older, Newer, Turn);

  g_write : for i in 0 to BeatWords_c - 1 generate
    signal Lane : std_logic_vector(LaneBits_c - 1 downto 0);
    signal Told : std_logic_vector(LaneBits_c - 1 downto 0);
  begin
    Lane      <= laneOf(LanesNow, i);
    IsLeft(i) <= To_Large and Lane(LaneSizeBits_c + 1);
    Mask(i)   <= not IsLeft(i) when i >= inBeat(At) and (IsLastBeat = '0' or i <= inBeat(LastAt)) else '0';
    IsFree(i) <= Lane(LaneSizeBits_c) nor Lane(LaneSizeBits_c + 1);
    Shorts(i) <= '1' when unsigned(Lane(LaneSizeBits_c - 1 downto 0)) > Limit else '0';
    Told(LaneBits_c - 1 downto LaneSizeBits_c) <= Lane(LaneBits_c - 1 downto LaneSizeBits_c);
    Told(LaneSizeBits_c - 1 downto 0) <= std_logic_vector(Limit) when Shorts(i) = '1' else
                                         Lane(LaneSizeBits_c - 1 downto 0);
    Lanes(LaneBits_c * (i + 1) - 1 downto LaneBits_c * i) <= Told;
  end generate;

  Write_Valid  <= '1' when Running = '1' and Wants = 0 else '0';
  Write_Within <= std_logic_vector(At);
  Write_Many   <= not IsAlone;
  Write_Mask   <= Mask;
  Write_Lanes  <= Lanes;
  Write_Word   <= (others => '0') when Cut = '1' and IsFree(to_integer(inBeat(At))) = '1' else
                  marked(pageWord(unsigned'("0"), '1', Base(WritableBit_c),
                                  Base(MemoryLow_c + MemoryBits_c - 1 downto MemoryLow_c), 0),
                         IsHead = '1', IsLast = '1', unsigned(Pages));

  p_counts : process (Clk) is
  begin
    if rising_edge(Clk) then
      if Asked = '1' then
        Asks   <= Asks - 1;
        ReadAt <= ReadAt + 1;
      end if;
      if Asked = '1' and Take = '0' then
        Room <= Room - 1;
      elsif Asked = '0' and Take = '1' then
        Room <= Room + 1;
      end if;
      if Came = '1' then
        Comes     <= Comes - 1;
        HasFailed <= HasFailed or Data_Failed;
        NoneCame  <= '0';
        if NoneCame = '1' then
          LeavesHead <= To_Large and Reserved(to_integer(inBeat(unsigned(From))));
        end if;
      end if;
      if Take = '1' then
        Takes <= Takes - 1;
      end if;
      Done <= Ends;
      if Ends = '1' then
        Running <= '0';
      end if;
      if Start = '1' then
        Running   <= '1';
        Asks      <= beatsOf(unsigned(From), unsigned(Count));
        Comes     <= beatsOf(unsigned(From), unsigned(Count));
        Takes     <= beatsOf(unsigned(From), unsigned(Count));
        Room      <= Depth_c;
        ReadAt    <= beatOf(unsigned(From));
        HasFailed <= '0';
        NoneCame  <= '1';
      end if;
      if Rst = '1' then
        Running <= '0';
        Done    <= '0';
      end if;
    end if;
  end process;

  p_write : process (Clk) is
    variable at_v : Within_t;
  begin
    if rising_edge(Clk) then
      at_v := At;
      if Wrote = '1' then
        at_v    := NextAt;
        IsFirst <= '0';
        if IsAlone = '1' and Shorts(to_integer(inBeat(At))) = '1' and HasShort = '0' then
          HasShort <= '1';
          Shorter  <= std_logic_vector('0' & At);
        end if;
        if Leaves = '1' then
          Wants <= 1;
        end if;
      end if;
      if Step = '1' then
        Newer <= QueueOut;
        Older <= Newer;
        Wants <= 0;
        if Wants = 2 then
          Wants <= 1;
        end if;
      end if;
      if Start = '1' then
        at_v := unsigned(To_Place);
        Turn <= inBeat(unsigned(To_Place)) - inBeat(unsigned(From));
        -- Where the first beat's words go to the end of a beat and on the next one's begin.
        Wants <= 1;
        if inBeat(unsigned(To_Place)) < inBeat(unsigned(From)) then
          Wants <= 2;
        end if;
        LastAt   <= resize(unsigned(To_Place) + unsigned(Count) - 1, LeafBits_g);
        IsFirst  <= '1';
        HasShort <= '0';
        Shorter  <= std_logic_vector(('0' & unsigned(To_Place)) + unsigned(Count));
      end if;
      At <= at_v;
      if Running = '1' or Start = '1' then
        if Cut = '1' then
          Limit <= sizeBefore(lowBits(at_v), lowBits(LastAt));
        else
          Limit <= alignedAlike(unsigned(From), unsigned(To_Place));
        end if;
      end if;
    end if;
  end process;

end architecture;
