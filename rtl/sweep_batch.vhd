-- Sweeps some words of a table: they are read by beats of eight, those that are not 0 are written with 0, and when that
-- is visible the frames of their pages come back: 64 or 8 at once where they lie as their pages do, else one a cycle.
-- Words of the next ones may be read and written meanwhile.
--
-- Nobody has a translation of these pages, or gets one. A page that had no frame, of which no word says
-- another, is left alone.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.alloc_pkg.all;
  use work.window_pkg.all;

entity sweep_batch is
  generic (
    -- Of a word's place in a table, and of a frame's number.
    LeafBits_g  : positive;
    FrameBits_g : positive;
    -- Words at once, at most.
    Batch_g     : positive;
    -- Memories, and the number of the only one.
    Memories_g  : positive;
    Memory_g    : natural
  );
  port (
    Clk         : in    std_logic;
    Rst         : in    std_logic;
    -- From this word on so many, one at least; all of it stands until it is done.
    Start       : in    std_logic;
    First       : in    std_logic_vector(LeafBits_g - 1 downto 0);
    Words       : in    std_logic_vector(LeafBits_g downto 0);
    -- Their frames stay in use.
    Moved       : in    std_logic;
    -- For one cycle, the last one: words are 0, and their frames come back from now on; a read or a write has failed,
    -- and not all is swept.
    Done        : out   std_logic;
    Failed      : out   std_logic;
    -- Frames are on their way back, or were a cycle earlier: from the second cycle behind Done on.
    Gives       : out   std_logic;
    -- Beats of the table
    Read_Valid  : out   std_logic;
    Read_Ready  : in    std_logic;
    Write_Valid : out   std_logic;
    Write_Ready : in    std_logic;
    -- The first word of the beat; those that are written.
    Within      : out   std_logic_vector(LeafBits_g - 1 downto 0);
    Write_Mask  : out   WordMask_t;
    Quiet       : in    std_logic;
    Write_Failed : in    std_logic;
    Data_Valid  : in    std_logic;
    Data        : in    Beat_t;
    Data_Failed : in    std_logic;
    -- Frames come back, one by one where Few is 1: so few are free of the memory that is looked at that each is
    -- remembered.
    Few_Of      : out   std_logic_vector(MemoryBits_c - 1 downto 0);
    Few         : in    std_logic;
    Frame_Valid : out   std_logic;
    Frame_Ready : in    std_logic;
    Frame_Memory : out   std_logic_vector(MemoryBits_c - 1 downto 0);
    Frame_Size  : out   std_logic_vector(SizeBits_c - 1 downto 0);
    Frame_First : out   std_logic_vector(FrameBits_g - 1 downto 0);
    Given_Valid : in    std_logic
  );
end entity;

architecture rtl of sweep_batch is

  -- Beats of a batch that begins within one.
  constant Beats_c : positive := Batch_g / BeatWords_c + 1;
  -- Places for beats: those of two batches, but for a few.
  constant RingBits_c : positive := maximum(bitsOf(Beats_c + 1), BeatShift_c + 1);
  -- Runs of 64 are looked at in numbers of so many bits.
  constant Wide_c  : positive := maximum(FrameBits_g, RunLong_c + 1);

  type State_t is (
    StateIdle,
    StateBegin,
    -- Frames of the batch before are in the way.
    StateRoom,
    StateRead,
    StateReady,
    StateZero,
    StateZeroed
  );

  subtype Frame_t is unsigned(FrameBits_g - 1 downto 0);

  type Frames_t is array (0 to BeatWords_c - 1) of Frame_t;

  subtype Count_t is unsigned(LeafBits_g - BeatShift_c + 1 downto 0);

  -- Of a beat: words that had a frame, and which; all eight are of one run; a run of 64 may begin with it.
  subtype Kept_t is std_logic_vector(BeatWords_c + BeatWords_c * FrameBits_g + 1 downto 0);

  -- Beats, one behind the other, and around.
  subtype Place_t is unsigned(RingBits_c - 1 downto 0);

  type Ring_t is array (0 to 2 ** RingBits_c - 1) of Kept_t;

  type Masks_t is array (0 to 2 ** RingBits_c - 1) of WordMask_t;

  type Memories_t is array (0 to 2 ** RingBits_c - 1) of std_logic_vector(MemoryBits_c - 1 downto 0);

  type InMemories_t is array (0 to BeatWords_c - 1) of std_logic_vector(MemoryBits_c - 1 downto 0);

  signal State     : State_t;
  signal Ring      : Ring_t;
  -- Words that are not 0.
  signal Masks     : Masks_t;
  -- The memory of the beats' frames, where there are several: those of one beat are of one allocation.
  signal Memories  : Memories_t;
  signal InMemories : InMemories_t;
  signal InMemory  : std_logic_vector(MemoryBits_c - 1 downto 0);
  signal Memory    : std_logic_vector(MemoryBits_c - 1 downto 0);
  -- Of eight beats, whether they are a run of 64.
  signal Longs     : std_logic_vector(2 ** (RingBits_c - BeatShift_c) - 1 downto 0);
  signal Long      : std_logic;
  -- Where the words begin and end in their first beat and in the last one.
  signal Beats     : Count_t;
  signal FirstIn   : unsigned(BeatShift_c - 1 downto 0);
  signal LastIn    : unsigned(BeatShift_c - 1 downto 0);
  -- The place of the first beat: the frames of all before come back.
  signal Base      : Place_t;
  -- Beats that were asked for, and that came, or were zeroed; the next one.
  signal Asked     : Count_t;
  signal Got       : Count_t;
  signal NextGot   : Count_t;
  signal IsAll     : std_logic;
  signal HasFailed : std_logic;
  signal Mask      : WordMask_t;
  -- A beat that has come; it is kept one cycle later.
  signal InValid   : std_logic;
  signal InAt      : Count_t;
  signal InWords   : WordMask_t;
  signal InHolds   : WordMask_t;
  signal InFrames  : Frames_t;
  signal InKept    : Kept_t;
  -- Its place among the eight of an aligned row of 64 pages, all of which were of one run so far, whose frames begin
  -- there.
  signal InPlace   : unsigned(BeatShift_c - 1 downto 0);
  signal IsRun     : std_logic;
  signal IsChained : std_logic;
  signal Chained   : std_logic;
  signal ChainAt   : unsigned(Wide_c - 1 downto 0);
  -- The beat whose frames come back, at this place; those that are left of it, where some are back.
  signal Word      : Kept_t;
  signal At        : Place_t;
  signal NextAt    : Place_t;
  signal IsPartly  : std_logic;
  signal Left      : WordMask_t;
  signal LeftNow   : WordMask_t;
  signal Goes      : std_logic;
  -- What is given back, and answers that are to come.
  signal OutValid  : std_logic;
  signal Size      : natural range 0 to RunLong_c;
  signal OutSize   : natural range 0 to RunLong_c;
  signal OutFrame  : Frame_t;
  signal Answers   : natural range 0 to 7;

  function wide (frame : Frame_t) return unsigned is
  begin
    return resize(frame, Wide_c);
  end function;

  function rowOf (place : Place_t) return natural is
  begin
    return to_integer(place(RingBits_c - 1 downto BeatShift_c));
  end function;

  function holdsOf (kept : Kept_t) return WordMask_t is
  begin
    return kept(BeatWords_c - 1 downto 0);
  end function;

  function isRunOf8 (kept : Kept_t) return std_logic is
  begin
    return kept(Kept_t'high - 1);
  end function;

  function beginsRow (kept : Kept_t) return std_logic is
  begin
    return kept(Kept_t'high);
  end function;

  function frameOf (kept : Kept_t; which : natural) return Frame_t is
    constant Low_c : natural := BeatWords_c + which * FrameBits_g;
  begin
    return unsigned(kept(Low_c + FrameBits_g - 1 downto Low_c));
  end function;

  -- The frame of the first of these words.
  function firstFrame (kept : Kept_t; words_left : WordMask_t) return Frame_t is
    variable frame_v : Frame_t := frameOf(kept, 0);
  begin
    for i in BeatWords_c - 1 downto 0 loop
      if words_left(i) = '1' then
        frame_v := frameOf(kept, i);
      end if;
    end loop;
    return frame_v;
  end function;

  function withoutFirst (words_left : WordMask_t) return WordMask_t is
  begin
    return words_left and std_logic_vector(unsigned(words_left) - 1);
  end function;

begin

  assert Batch_g <= 2 ** LeafBits_g and LeafBits_g >= BeatShift_c
    report "sweep_batch: more words than a table has" severity failure;

  IsAll <= '1' when Got = Beats else '0';

  Read_Valid  <= '1' when State = StateRead and Asked /= Beats else '0';
  Write_Valid <= '1' when State = StateZero and Mask /= (WordMask_t'range => '0') and IsAll = '0' else '0';
  Write_Mask  <= Mask;
  Within      <= std_logic_vector(shift_left(resize(unsigned(First(LeafBits_g - 1 downto BeatShift_c)) + Asked,
                                                    LeafBits_g), BeatShift_c)) when State = StateRead else
                 std_logic_vector(shift_left(resize(unsigned(First(LeafBits_g - 1 downto BeatShift_c)) + Got,
                                                    LeafBits_g), BeatShift_c));

  Failed <= '1' when (State = StateReady and HasFailed = '1') or (State = StateZeroed and Write_Failed = '1') else '0';
  Done   <= Quiet when State = StateZeroed else HasFailed when State = StateReady else '0';

  ------------------------------------------------------------------------------------------------
  -- Beats that come
  ------------------------------------------------------------------------------------------------
  p_in : process (Clk) is
    variable word_v : TableWord_t;
  begin
    if rising_edge(Clk) then
      InValid <= '0';
      -- Nothing is looked at that nobody reads: the benches take a tenth less time.
      if State = StateRead and Data_Valid = '1' then
        InValid <= '1';
        InAt    <= Got;
        InPlace <= resize(unsigned(First) / BeatWords_c + Got, BeatShift_c);
        for i in 0 to BeatWords_c - 1 loop
          word_v := Data(WordBits_c * (i + 1) - 1 downto WordBits_c * i);
          InFrames(i) <= unsigned(word_v(NumberLow_c + FrameBits_g - 1 downto NumberLow_c));
          InMemories(i) <= word_v(MemoryLow_c + MemoryBits_c - 1 downto MemoryLow_c);
          InWords(i)  <= or word_v;
          InHolds(i)  <= '0';
          if hasFrame(word_v) and Moved = '0' then
            InHolds(i) <= '1';
          end if;
          if (Got = 0 and i < FirstIn) or (Got = Beats - 1 and i > LastIn) then
            InWords(i) <= '0';
            InHolds(i) <= '0';
          end if;
        end loop;
      end if;
    end if;
  end process;

  p_run : process (all) is
    variable lies_v : WordMask_t;
    variable is_v   : std_logic;
  begin
    -- One bit each, so that tools do not compare one after the other.
    for i in 0 to BeatWords_c - 1 loop
      lies_v(i) := InHolds(i);
      if InFrames(i) /= ((InFrames(0) and not to_unsigned(BeatWords_c - 1, FrameBits_g)) or
                         to_unsigned(i, FrameBits_g)) then
        lies_v(i) := '0';
      end if;
    end loop;
    is_v := and lies_v;
    IsRun <= is_v;
    -- The first one may begin a run of 64, the others go on with it.
    IsChained <= '0';
    if is_v = '1' and wide(InFrames(0))(RunLong_c - 1 downto BeatShift_c) = InPlace then
      if InPlace = 0 then
        IsChained <= '1';
      elsif Chained = '1' and shift_right(wide(InFrames(0)), RunLong_c) = shift_right(ChainAt, RunLong_c) then
        IsChained <= '1';
      end if;
    end if;
  end process;

  InKept(BeatWords_c - 1 downto 0) <= InHolds;
  InKept(Kept_t'high - 1)          <= IsRun;
  -- With eight beats that are all of this batch.
  InKept(Kept_t'high)              <= '1' when InPlace = 0 and InAt + BeatWords_c <= Beats else '0';

  g_frames : for i in 0 to BeatWords_c - 1 generate
    InKept(BeatWords_c + (i + 1) * FrameBits_g - 1 downto BeatWords_c + i * FrameBits_g) <=
      std_logic_vector(InFrames(i));
  end generate;

  p_ring : process (Clk) is
    variable place_v : Place_t;
  begin
    if rising_edge(Clk) then
      place_v := Base + resize(InAt, RingBits_c);
      if InValid = '1' then
        Ring(to_integer(place_v))  <= InKept;
        Masks(to_integer(place_v)) <= InWords;
        Chained <= IsChained;
        if InPlace = 0 then
          ChainAt <= wide(InFrames(0));
        end if;
        if InPlace = BeatWords_c - 1 and InAt >= BeatWords_c - 1 then
          Longs(rowOf(place_v - (BeatWords_c - 1))) <= IsChained;
        end if;
      end if;
      if State = StateIdle then
        Chained <= '0';
      end if;
      Mask <= Masks(to_integer(Base + resize(NextGot, RingBits_c)));
      Word <= Ring(to_integer(NextAt));
      Long <= Longs(rowOf(NextAt));
    end if;
  end process;

  g_memories : if Memories_g > 1 generate

    p_memory : process (all) is
    begin
      InMemory <= (others => '0');
      for i in InMemories'range loop
        if InHolds(i) = '1' then
          InMemory <= InMemories(i);
        end if;
      end loop;
    end process;

    p_memories : process (Clk) is
    begin
      if rising_edge(Clk) then
        if InValid = '1' then
          Memories(to_integer(Base + resize(InAt, RingBits_c))) <= InMemory;
        end if;
        Memory <= Memories(to_integer(NextAt));
        if Goes = '1' then
          Frame_Memory <= Memory;
        end if;
      end if;
    end process;

    Few_Of <= Memory;
  else generate
    Few_Of       <= std_logic_vector(to_unsigned(Memory_g, MemoryBits_c));
    Frame_Memory <= std_logic_vector(to_unsigned(Memory_g, MemoryBits_c));
  end generate;

  ------------------------------------------------------------------------------------------------
  -- One step after the other
  ------------------------------------------------------------------------------------------------
  p_got : process (all) is
  begin
    NextGot <= Got;
    case State is
      when StateIdle | StateBegin | StateRoom | StateReady | StateZeroed =>
        NextGot <= (others => '0');
      when StateRead =>
        if Data_Valid = '1' then
          NextGot <= Got + 1;
        end if;
      when StateZero =>
        if IsAll = '0' and (Write_Ready = '1' or Write_Valid = '0') then
          NextGot <= Got + 1;
        end if;
    end case;
  end process;

  p_sweep : process (Clk) is
    variable end_v : unsigned(LeafBits_g + 1 downto 0);
  begin
    if rising_edge(Clk) then
      Got <= NextGot;
      case State is

        when StateIdle =>
          Asked     <= (others => '0');
          HasFailed <= '0';
          if Start = '1' then
            State <= StateBegin;
          end if;

        when StateBegin =>
          FirstIn <= unsigned(First(BeatShift_c - 1 downto 0));
          end_v   := resize(unsigned(First(BeatShift_c - 1 downto 0)), end_v'length) + unsigned(Words) +
                     (BeatWords_c - 1);
          LastIn  <= end_v(BeatShift_c - 1 downto 0);
          Beats   <= end_v(LeafBits_g + 1 downto BeatShift_c);
          State   <= StateRoom;

        when StateRoom =>
          -- No place is written over whose frames are not back.
          if ('0' & (Base - At)) + Beats < 2 ** RingBits_c then
            State <= StateRead;
          end if;

        when StateRead =>
          if Read_Valid = '1' and Read_Ready = '1' then
            Asked <= Asked + 1;
          end if;
          if Data_Valid = '1' then
            HasFailed <= HasFailed or Data_Failed;
          end if;
          if IsAll = '1' then
            State <= StateReady;
          end if;

        when StateReady =>
          -- The last one is kept.
          State <= StateZero;
          if HasFailed = '1' then
            State <= StateIdle;
          end if;

        when StateZero =>
          if IsAll = '1' then
            State <= StateZeroed;
          end if;

        when StateZeroed =>
          if Quiet = '1' then
            State <= StateIdle;
            if Write_Failed = '0' then
              Base <= Base + resize(Beats, RingBits_c);
            end if;
          end if;

      end case;
      if Rst = '1' then
        State <= StateIdle;
        Base  <= (others => '0');
      end if;
    end if;
  end process;

  ------------------------------------------------------------------------------------------------
  -- Frames that come back
  ------------------------------------------------------------------------------------------------
  Frame_Valid <= OutValid;
  Frame_Size  <= std_logic_vector(to_unsigned(OutSize, SizeBits_c));
  Frame_First <= std_logic_vector(OutFrame);

  LeftNow <= Left when IsPartly = '1' else holdsOf(Word);
  Goes    <= '1' when At /= Base and (OutValid = '0' or Frame_Ready = '1') and Answers < 6 else '0';

  -- A run is one as long as nothing of it is back; and where each frame is to be remembered there is none.
  Size <= RunLong_c when (not Few and not IsPartly and beginsRow(Word) and Long) = '1' else
          RunShort_c when (not Few and not IsPartly and isRunOf8(Word)) = '1' else 0;

  p_at : process (all) is
  begin
    NextAt <= At;
    if Goes = '1' then
      if Size = RunLong_c then
        NextAt <= At + BeatWords_c;
      elsif Size = RunShort_c or withoutFirst(LeftNow) = (WordMask_t'range => '0') then
        NextAt <= At + 1;
      end if;
    end if;
  end process;

  p_give : process (Clk) is
  begin
    if rising_edge(Clk) then
      At    <= NextAt;
      Gives <= '1' when At /= Base or OutValid = '1' or Answers /= 0 else '0';
      if OutValid = '0' or Frame_Ready = '1' then
        OutValid <= '0';
      end if;
      if Goes = '1' then
        IsPartly <= '1' when NextAt = At else '0';
        Left     <= withoutFirst(LeftNow);
        OutValid <= or LeftNow;
        OutSize  <= Size;
        OutFrame <= firstFrame(Word, LeftNow);
      end if;
      if OutValid = '1' and Frame_Ready = '1' and Given_Valid = '0' then
        Answers <= Answers + 1;
      elsif (OutValid = '0' or Frame_Ready = '0') and Given_Valid = '1' and Answers /= 0 then
        Answers <= Answers - 1;
      end if;
      if Rst = '1' then
        At       <= (others => '0');
        Gives    <= '0';
        IsPartly <= '0';
        OutValid <= '0';
        Answers  <= 0;
      end if;
    end if;
  end process;

end architecture;
