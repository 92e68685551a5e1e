-- Which frames of one memory are in use: one bit each, in block RAM.
--
-- It gives the run that is hinted at, else a frame that came back lately while few are free, else the
-- next run behind the one that the last search for that size found. Runs are aligned powers of two. For each
-- word of bits a summary says whether a frame of it is free, a run of 2**MiddleBits_g, all of it; so a
-- search looks at few words. A run is looked at once more before it is written, whoever said that it is free.
--
-- A run of whole words is taken from their summaries alone, so it is given at once; its words are filled when nothing
-- else is written. A word of whose frames the summary says that none is free is read as such until then, and nothing
-- comes back.
--
-- Single frames, one after the other, are given one a cycle: frame_scan has the word that the last one was
-- in at hand, and the next one. Everything else stops that. They come back one a cycle as well, through frame_return.
--
-- After a reset it writes all words: free, but for the first Fixed frames and those beyond the memory.
-- Timing, ports and generics: docs/rtl/frame_store.md.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.index_pkg.all;
  use work.window_pkg.all;

entity frame_store is
  generic (
    -- Of a frame's number.
    FrameBits_g  : positive := 12;
    -- Frames of the memory.
    Frames_g     : positive := 4096;
    -- Bits of a word, as a power of two.
    WordBits_g   : positive := 6;
    -- Frames of the run that a word's summary tells of, as a power of two.
    MiddleBits_g : positive := 3;
    -- Frames that came back and are remembered.
    List_g       : positive := 64;
    -- Runs of whole words that were taken, whose words are to be filled.
    Fills_g      : positive := 16
  );
  port (
    Clk        : in    std_logic;
    Rst        : in    std_logic;
    -- So many frames, the first ones, are for something that is always there. It does not change.
    Fixed      : in    std_logic_vector(FrameBits_g - 1 downto 0);
    -- Of the free frames, so many are promised to somebody else.
    Promised   : in    std_logic_vector(FrameBits_g downto 0);
    Free       : out   std_logic_vector(FrameBits_g downto 0);
    -- Takes a run of 2**Size frames, or gives back the one that begins with First
    Op_Valid   : in    std_logic;
    Op_Ready   : out   std_logic;
    Op_Give    : in    std_logic;
    Op_Size    : in    std_logic_vector(SizeBits_c - 1 downto 0);
    -- First is a hint. What is given back has one in any case.
    Op_HasHint : in    std_logic;
    Op_First   : in    std_logic_vector(FrameBits_g - 1 downto 0);
    -- The hint is another one, for a single frame: that behind the frame of the response before, of a single one too,
    -- which may be to come.
    Op_Next    : in    std_logic;
    -- Whether there was such a run, or all of it was in use; and which
    Resp_Valid : out   std_logic;
    Resp_Ready : in    std_logic;
    Resp_Ok    : out   std_logic;
    Resp_First : out   std_logic_vector(FrameBits_g - 1 downto 0)
  );
end entity;

architecture rtl of frame_store is

  constant PerWord_c : positive := 2 ** WordBits_g;
  -- Summaries, each of PerWord_c words, and words.
  constant Sums_c    : positive := (Frames_g + PerWord_c * PerWord_c - 1) / (PerWord_c * PerWord_c);
  constant Words_c   : positive := Sums_c * PerWord_c;
  -- Few are free: fewer than these.
  constant Few_c     : natural  := Frames_g / 16;

  subtype Word_t is std_logic_vector(PerWord_c - 1 downto 0);

  subtype Frame_t is unsigned(FrameBits_g - 1 downto 0);

  subtype Count_t is unsigned(FrameBits_g downto 0);

  subtype Bit_t is natural range 0 to PerWord_c - 1;

  subtype Size_t is natural range 0 to 2 ** SizeBits_c - 1;

  type Words_t is array (0 to Words_c - 1) of Word_t;

  -- Two at least: tools stumble over an index that has no bits.
  type Sums_t is array (0 to maximum(Sums_c, 2) - 1) of Word_t;

  type Roving_t is array (0 to FrameBits_g) of Frame_t;

  type State_t is (
    -- All words are made, and written.
    StateInit,
    StateClear,
    -- Nothing is asked for, or single frames are, of the word at hand.
    StateIdle,
    -- The word that was at hand is written.
    StateStop,
    -- Any other request is looked at.
    StateBegin,
    -- A frame is taken from the list.
    StateList,
    -- The word of First is read.
    StateRead,
    -- A summary, or the word of First, is looked through, in three cycles: its runs, the first of them,
    -- and what to do then.
    StateRuns,
    StateFirst,
    StateFound,
    -- The run at First is looked at, in its word, and written; or, of whole words, in their summaries. One that comes
    -- back is filled; one that is taken is marked there.
    StateCheck,
    StateWrite,
    StateRow,
    StateRowDone,
    StateFill,
    StateMark
  );

  type Registers_t is record
    State     : State_t;
    -- There is a request, which has no response.
    Held      : std_logic;
    Give      : std_logic;
    HasHint   : std_logic;
    IsNext    : std_logic;
    Size      : Size_t;
    -- A single frame comes back.
    IsReturn  : std_logic;
    -- It is for a single frame, and may be served from those that are gone through: more than enough were
    -- free when it was accepted, and none are to come from the list; or that is known since.
    Fast      : std_logic;
    -- It is one of whole words; its size in them, else in frames, as a power of two.
    IsRow     : std_logic;
    Inner     : Size_t;
    -- The run, the frame before it as the request had it, and the one behind it, of one cycle before, as are whether it
    -- is aligned, and what it changes.
    First     : Frame_t;
    Before    : Frame_t;
    Ending    : unsigned(FrameBits_g + 1 downto 0);
    IsAligned : std_logic;
    -- Frames that are free when it is done, and were not.
    More      : unsigned(FrameBits_g + 1 downto 0);
    -- Frames that have to be free for it.
    Need      : unsigned(FrameBits_g + 1 downto 0);
    Free      : Count_t;
    -- One less than that; the highest bit says that it is none.
    Less      : unsigned(FrameBits_g + 1 downto 0);
    -- It is looked for; from the beginning, after the search from where the last one ended.
    Search    : std_logic;
    Again     : std_logic;
    -- In the word of First, or in a summary: which, and from which bit on; of either, a cycle later.
    InWord    : std_logic;
    Sum       : natural range 0 to Sums_c;
    From      : natural range 0 to PerWord_c;
    FromBit   : natural range 0 to PerWord_c;
    -- While that is the word where the search began, the first bit of the word that counts.
    IsFirst   : std_logic;
    Low       : Bit_t;
    Runs      : Word_t;
    Found     : std_logic;
    Place     : Bit_t;
    -- The summary says that a frame of the word of First is free, as it was a cycle earlier.
    HasFree   : std_logic;
    -- The run at First may be written, as it was a cycle earlier; what its word is then.
    Good      : std_logic;
    Word      : Word_t;
    -- A single frame has come back in the cycle before.
    Came      : std_logic;
    -- Words that are still to be written, or summaries that are known to be free.
    Left      : natural range 0 to maximum(Words_c, FrameBits_g + 1) + PerWord_c;
    -- Where the next search for a single frame begins. One was given in the cycle before; that was found by a search
    -- unless it is the one that was hinted at; all from there to the one that was given last are in use.
    Single    : Frame_t;
    Given     : std_logic;
    Hinted    : std_logic;
    HintedAt  : Frame_t;
    Follows   : std_logic;
    RespValid : std_logic;
    RespOk    : std_logic;
    RespFirst : Frame_t;
    -- The frame behind that.
    Ahead     : Frame_t;
  end record;

  -- Bit i: the bits from i on are 1, as many as a run has, which is not a whole word. Only aligned ones.
  function runs (word : Word_t; size : Size_t) return Word_t is
    variable alike_v : Word_t := word;
    variable runs_v  : Word_t := (others => '0');
  begin
    for s in 0 to WordBits_g - 1 loop
      for i in 0 to PerWord_c - 1 loop
        if i mod 2 ** s = 0 then
          if s > 0 then
            alike_v(i) := alike_v(i) and alike_v(i + 2 ** s / 2);
          end if;
          if s = size then
            runs_v(i) := runs_v(i) or alike_v(i);
          end if;
        end if;
      end loop;
    end loop;
    return runs_v;
  end function;

  -- The bits of a run: those whose numbers differ from that of the first in no bit that counts.
  function bitsOf (first : Bit_t; size : Size_t) return Word_t is
    constant First_c : unsigned(WordBits_g - 1 downto 0) := to_unsigned(first, WordBits_g);
    variable zeros_v : std_logic_vector(WordBits_g - 1 downto 0) := not std_logic_vector(First_c);
    variable ones_v  : std_logic_vector(WordBits_g - 1 downto 0) := std_logic_vector(First_c);
    variable bits_v  : Word_t := (others => '1');
  begin
    for b in First_c'range loop
      if b < size then
        zeros_v(b) := '1';
        ones_v(b)  := '1';
      end if;
    end loop;
    for i in bits_v'range loop
      for b in First_c'range loop
        if (i / 2 ** b) mod 2 = 0 then
          bits_v(i) := bits_v(i) and zeros_v(b);
        else
          bits_v(i) := bits_v(i) and ones_v(b);
        end if;
      end loop;
    end loop;
    return bits_v;
  end function;

  function wordOf (frame : Frame_t) return natural is
  begin
    return to_integer(shift_right(frame, WordBits_g));
  end function;

  -- An index, where it is one of so many words.
  function within (index : natural; places : positive) return natural is
  begin
    if index < places then
      return index;
    end if;
    return 0;
  end function;

  function bitOf (frame : Frame_t) return Bit_t is
  begin
    return to_integer(frame) mod PerWord_c;
  end function;

  function framesOf (size : Size_t) return Count_t is
    variable count_v : Count_t := (others => '0');
  begin
    for i in count_v'range loop
      if i = size then
        count_v(i) := '1';
      end if;
    end loop;
    return count_v;
  end function;

  -- The word with this number in a summary: its first frame.
  function frameOf (sum : natural; word : Bit_t) return Frame_t is
    constant None_c : unsigned(WordBits_g - 1 downto 0) := (others => '0');
  begin
    return resize(to_unsigned(sum, FrameBits_g) & to_unsigned(word, WordBits_g) & None_c, FrameBits_g);
  end function;

  -- Words of a run of whole ones, less one; the summaries that they are in, less one.
  function lastWordOf (size : Size_t) return natural is
    variable last_v : Frame_t := (others => '0');
  begin
    for s in WordBits_g to FrameBits_g loop
      if s = size then
        last_v := last_v or to_unsigned(2 ** (s - WordBits_g) - 1, FrameBits_g);
      end if;
    end loop;
    return to_integer(last_v);
  end function;

  function lastSumOf (size : Size_t) return natural is
    variable last_v : Frame_t := (others => '0');
  begin
    for s in 2 * WordBits_g to FrameBits_g loop
      if s = size then
        last_v := last_v or to_unsigned(2 ** (s - 2 * WordBits_g) - 1, FrameBits_g);
      end if;
    end loop;
    return to_integer(last_v);
  end function;

  function isAligned (frame : Frame_t; size : Size_t) return std_logic is
    variable within_v : std_logic_vector(frame'range) := (others => '0');
  begin
    for i in frame'range loop
      if i < size then
        within_v(i) := frame(i);
      end if;
    end loop;
    return not isAny(within_v, 2);
  end function;

  -- A word of the beginning: frames behind the first `used`, up to the memory's end, are free.
  function initial (index : natural; used : Frame_t) return Word_t is
    variable word_v : Word_t := (others => '0');
  begin
    for i in 0 to PerWord_c - 1 loop
      if (index > wordOf(used) or (index = wordOf(used) and i >= bitOf(used)))
        and (index < Frames_g / PerWord_c or (index = Frames_g / PerWord_c and i < Frames_g mod PerWord_c)) then
        word_v(i) := '1';
      end if;
    end loop;
    return word_v;
  end function;

  signal r         : Registers_t;
  signal n         : Registers_t;

  -- Bit i of a word: the frame is free. Of summaries: a frame of the word is, a run of 2**MiddleBits_g, all.
  signal Words     : Words_t;
  signal AnySums   : Sums_t;
  signal RunSums   : Sums_t;
  signal AllSums   : Sums_t;
  signal Roving    : Roving_t;

  signal Word      : Word_t;
  signal SumIndex  : natural range 0 to Sums_t'high;
  signal AnySum    : Word_t;
  signal RunSum    : Word_t;
  signal AllSum    : Word_t;
  signal From      : Frame_t;

  signal Write     : std_logic;
  signal WordIndex : natural range 0 to Words_c - 1;

  signal ReadIndex  : natural range 0 to Words_c - 1;
  signal WriteNow   : std_logic;
  signal WriteIndex : natural range 0 to Words_c - 1;
  signal WriteWord  : Word_t;
  signal StoreIndex : natural range 0 to Words_c - 1;
  signal StoreWord  : Word_t;

  -- Runs that were taken, and whose words are to be filled; the one that is, its words that are left, less one.
  constant FillBits_c : positive := FrameBits_g + SizeBits_c;
  signal FillPut   : std_logic;
  signal FillRoom  : std_logic;
  signal FillIn    : std_logic_vector(FillBits_c - 1 downto 0);
  signal FillOut   : std_logic_vector(FillBits_c - 1 downto 0);
  signal FillHas   : std_logic;
  signal FillTake  : std_logic;
  signal FillOn    : std_logic;
  signal FillFirst : Frame_t;
  signal FillLeft  : natural range 0 to maximum(Words_c, 2) - 1;
  signal FillIndex : natural range 0 to Words_c - 1;
  signal IsFilled  : std_logic;
  -- A summary is written with a run less.
  signal MarkNow   : std_logic;
  -- The bits of the run in its word, or of its words in their summary; else that of the word that is written in its.
  signal IsRun     : std_logic;
  signal MaskAt    : Bit_t;
  signal MaskSize  : Size_t;
  signal Mask      : Word_t;
  -- The word of First, as its summary says.
  signal WordNow   : Word_t;
  -- Bits that must not be among those of the run: of frames that are not free, or of ones that are where it comes back.
  signal Hinders   : Word_t;

  signal RoveWrite : std_logic;
  signal RoveIndex : natural range 0 to FrameBits_g;
  signal RoveIn    : Frame_t;

  signal ScanOn    : std_logic;
  signal ScanStart : std_logic;
  signal ScanStop  : std_logic;
  signal ScanSum   : natural range 0 to Sums_c - 1;
  signal ScanFrom  : Bit_t;
  signal ScanPast  : std_logic;
  signal WordRead  : std_logic;
  signal ScanIndex : natural range 0 to Words_c - 1;
  signal HandValid : std_logic;
  signal HandFrame : Frame_t;
  signal HandTake  : std_logic;
  signal BackValid : std_logic;
  signal BackIndex : natural range 0 to Words_c - 1;
  signal BackWord  : Word_t;

  -- The first bit from one on, of the summary that is gone through, else of runs: whether there is one, and which.
  signal FindIn    : Word_t;
  signal FindFrom  : natural range 0 to PerWord_c;
  signal FindBits  : Word_t;
  signal FindHas   : std_logic;
  signal FindPlace : Bit_t;

  -- Single frames that come back.
  signal ReturnTake  : std_logic;
  signal ReturnOn    : std_logic;
  signal ReturnValid : std_logic;
  signal ReturnOk    : std_logic;
  signal ReturnFrame : Frame_t;
  signal ReturnWord  : Word_t;

  -- The request is for a single frame of those that are gone through.
  signal IsSingle  : std_logic;
  signal RespFree  : std_logic;
  signal OpReady   : std_logic;

  signal Listed    : std_logic_vector(FrameBits_g - 1 downto 0);
  signal ListValid : std_logic;
  signal ListTake  : std_logic;
  signal ListPut   : std_logic;

begin

  assert Frames_g <= 2 ** FrameBits_g and FrameBits_g <= 20
    report "frame_store: a frame's number has at most 20 bits, and fits them" severity failure;
  assert MiddleBits_g < WordBits_g
    report "frame_store: the run of the summary is shorter than a word" severity failure;

  OpReady    <= HandTake or ReturnTake or not r.Held when r.State = StateIdle else '0';
  Op_Ready   <= OpReady;
  Resp_Valid <= r.RespValid;
  Resp_Ok    <= r.RespOk;
  Resp_First <= std_logic_vector(r.RespFirst);
  Free       <= std_logic_vector(r.Free);

  ------------------------------------------------------------------------------------------------
  -- Memories. The word of First is there from the second cycle on, summaries in the same cycle.
  ------------------------------------------------------------------------------------------------
  WordNow    <= Word when r.HasFree = '1' else (others => '0');
  Hinders    <= AnySum when r.IsRow = '1' and r.Give = '1' else not AllSum when r.IsRow = '1' else
                WordNow when r.Give = '1' else not WordNow;

  WriteNow   <= Write or BackValid or (ReturnValid and ReturnOk);
  WriteIndex <= BackIndex when BackValid = '1' else
                within(wordOf(ReturnFrame), Words_c) when ReturnOn = '1' else WordIndex;
  WriteWord  <= BackWord when BackValid = '1' else ReturnWord when ReturnOn = '1' else r.Word;
  StoreIndex <= WriteIndex when WriteNow = '1' else FillIndex;
  StoreWord  <= WriteWord when WriteNow = '1' else (others => '0');
  ReadIndex  <= ScanIndex when ScanOn = '1' else within(wordOf(r.First), Words_c);

  SumIndex <= within(r.Sum, Sums_c) when r.State = StateRuns or r.State = StateRow or r.State = StateMark else
              WriteIndex / PerWord_c;
  AnySum   <= AnySums(SumIndex);
  RunSum   <= RunSums(SumIndex);
  AllSum   <= AllSums(SumIndex);
  From     <= Roving(within(r.Size, FrameBits_g + 1));

  IsRun    <= '1' when r.State = StateCheck or r.State = StateRow or r.State = StateMark else '0';
  MaskAt   <= WriteIndex mod PerWord_c when IsRun = '0' else
              wordOf(r.First) mod PerWord_c when r.IsRow = '1' else bitOf(r.First);
  MaskSize <= r.Inner when IsRun = '1' else 0;
  Mask     <= bitsOf(MaskAt, MaskSize);

  p_words : process (Clk) is
  begin
    if rising_edge(Clk) then
      if WriteNow = '1' or FillOn = '1' then
        Words(StoreIndex) <= StoreWord;
      end if;
      if WordRead = '1' and (ReturnOn = '0' or RespFree = '1') then
        Word <= Words(ReadIndex);
      end if;
    end if;
  end process;

  p_sums : process (Clk) is
    variable any_v : Word_t;
    variable run_v : Word_t;
    variable all_v : Word_t;
  begin
    if rising_edge(Clk) then
      if WriteNow = '1' or MarkNow = '1' then
        any_v := AnySum;
        run_v := RunSum;
        all_v := AllSum;
        -- Where a run is taken from a summary there is no word: all is 0.
        for i in Word_t'range loop
          if Mask(i) = '1' then
            any_v(i) := or StoreWord;
            run_v(i) := or runs(StoreWord, MiddleBits_g);
            all_v(i) := and StoreWord;
          end if;
        end loop;
        AnySums(SumIndex) <= any_v;
        RunSums(SumIndex) <= run_v;
        AllSums(SumIndex) <= all_v;
      end if;
    end if;
  end process;

  p_roving : process (Clk) is
  begin
    if rising_edge(Clk) then
      if RoveWrite = '1' then
        Roving(RoveIndex) <= RoveIn;
      end if;
    end if;
  end process;

  ------------------------------------------------------------------------------------------------
  -- Words of runs that were taken are filled
  ------------------------------------------------------------------------------------------------
  FillIn    <= std_logic_vector(r.First) & std_logic_vector(to_unsigned(r.Size, SizeBits_c));
  FillTake  <= '1' when FillOn = '0' or (FillLeft = 0 and WriteNow = '0') else '0';
  FillIndex <= within(to_integer(shift_right(FillFirst, WordBits_g) or to_unsigned(FillLeft, FrameBits_g)), Words_c);
  IsFilled  <= not FillOn and not FillHas;

  i_fills : entity work.fifo
    generic map (
      Width_g => FillBits_c,
      Depth_g => Fills_g
    )
    port map (
      Clk       => Clk,
      Rst       => Rst,
      In_Valid  => FillPut,
      In_Ready  => FillRoom,
      In_Data   => FillIn,
      Out_Valid => FillHas,
      Out_Ready => FillTake,
      Out_Data  => FillOut,
      Level     => open,
      In_Place  => open,
      Out_Place => open
    );

  p_fill : process (Clk) is
  begin
    if rising_edge(Clk) then
      if FillOn = '1' and WriteNow = '0' and FillLeft /= 0 then
        FillLeft <= FillLeft - 1;
      end if;
      if FillTake = '1' then
        FillOn    <= FillHas;
        FillFirst <= unsigned(FillOut(FillBits_c - 1 downto SizeBits_c));
        FillLeft  <= within(lastWordOf(to_integer(unsigned(FillOut(SizeBits_c - 1 downto 0)))), maximum(Words_c, 2));
      end if;
      if Rst = '1' then
        FillOn <= '0';
      end if;
    end if;
  end process;

  i_list : entity work.fifo
    generic map (
      Width_g => FrameBits_g,
      Depth_g => List_g
    )
    port map (
      Clk       => Clk,
      Rst       => Rst,
      In_Valid  => ListPut,
      In_Ready  => open,
      In_Data   => std_logic_vector(r.RespFirst),
      Out_Valid => ListValid,
      Out_Ready => ListTake,
      Out_Data  => Listed,
      Level     => open,
      In_Place  => open,
      Out_Place => open
    );

  ------------------------------------------------------------------------------------------------
  -- Single frames, one after the other. With a hint at the frame behind the one that was given last, the
  -- next one is that which is hinted at, or the one that a search would find.
  ------------------------------------------------------------------------------------------------
  i_scan : entity work.frame_scan
    generic map (
      FrameBits_g => FrameBits_g,
      WordBits_g  => WordBits_g,
      Sums_g      => Sums_c
    )
    port map (
      Clk         => Clk,
      Rst         => Rst,
      Start       => ScanStart,
      Start_Frame => r.Single,
      Stop        => ScanStop,
      IsOn        => ScanOn,
      Sum_Index   => ScanSum,
      Sum_From    => ScanFrom,
      Sum_Past    => ScanPast,
      Sum_Has     => FindHas,
      Sum_Word    => FindPlace,
      Word_Read   => WordRead,
      Word_Index  => ScanIndex,
      Word_Bits   => Word,
      Hand_Valid  => HandValid,
      Hand_Frame  => HandFrame,
      Hand_Take   => HandTake,
      Back_Valid  => BackValid,
      Back_Index  => BackIndex,
      Back_Bits   => BackWord
    );

  FindIn    <= AnySums(ScanSum) when ScanOn = '1' else r.Runs;
  FindFrom  <= ScanFrom when ScanOn = '1' else r.FromBit;
  FindBits  <= behind(FindIn, FindFrom, ScanPast and ScanOn);
  FindHas   <= isAny(FindBits, 6);
  FindPlace <= to_integer(unsigned(lowestOf(FindBits, WordBits_g)));

  i_return : entity work.frame_return
    generic map (
      FrameBits_g => FrameBits_g,
      Frames_g    => Frames_g,
      WordBits_g  => WordBits_g
    )
    port map (
      Clk        => Clk,
      Rst        => Rst,
      Goes       => RespFree,
      Take       => ReturnTake,
      Frame      => r.First,
      Word_Bits  => Word,
      IsOn       => ReturnOn,
      Done_Valid => ReturnValid,
      Done_Ok    => ReturnOk,
      Done_Frame => ReturnFrame,
      Done_Bits  => ReturnWord
    );

  RespFree <= not r.RespValid or Resp_Ready;
  IsSingle <= r.Fast when r.HasHint = '0' or (r.Follows = '1' and (r.IsNext = '1' or r.Before = r.RespFirst)) else '0';
  HandTake <= r.Held and IsSingle and HandValid and RespFree when r.State = StateIdle else '0';
  -- Nothing comes back while a word is at hand, or to be filled.
  ReturnTake <= r.Held and r.IsReturn and not ScanOn and IsFilled and RespFree when r.State = StateIdle else '0';

  ------------------------------------------------------------------------------------------------
  -- What comes next
  ------------------------------------------------------------------------------------------------
  p_next : process (all) is
    variable v      : Registers_t;
    -- It is done, or a single frame has come back; so many more are free then.
    variable done_v : std_logic;
    variable more_v : unsigned(FrameBits_g + 1 downto 0);

    -- The response; it has its place, as all others were taken before.
    procedure respond (ok : std_logic) is
    begin
      v.RespValid := '1';
      v.RespOk    := ok;
      v.RespFirst := r.First;
      v.Held      := '0';
      v.State     := StateIdle;
    end procedure;

    procedure refuse is
    begin
      respond('0');
    end procedure;

    -- What is tried if the run at First is not free: the list, then a search.
    procedure tryNext is
    begin
      if r.Size = 0 and r.Free < Few_c and ListValid = '1' then
        v.State := StateList;
      elsif r.Size = 0 then
        v.HasHint := '0';
        v.Fast    := '1';
        v.State   := StateIdle;
      else
        v.Search  := '1';
        v.Again   := '0';
        v.First   := From;
        v.InWord  := '0';
        v.Sum     := wordOf(From) / PerWord_c;
        v.From    := wordOf(From) mod PerWord_c;
        v.Low     := bitOf(From);
        v.IsFirst := '1';
        v.Left    := 0;
        v.State   := StateRuns;
        if r.Size >= 2 * WordBits_g then
          v.State := StateRow;
        end if;
      end if;
    end procedure;

    -- The search begins anew at the beginning, or has ended.
    procedure wrap is
    begin
      if r.Again = '1' then
        refuse;
      else
        v.Again   := '1';
        v.First   := (others => '0');
        v.Sum     := 0;
        v.From    := 0;
        v.IsFirst := '0';
        v.Low     := 0;
        v.Left    := 0;
      end if;
    end procedure;

    -- The run at First is written; its words follow, or have been.
    procedure finish is
    begin
      respond('1');
      done_v := '1';
    end procedure;

  begin
    v := r;
    Write     <= '0';
    WordIndex <= within(wordOf(r.First), Words_c);
    RoveWrite <= '0';
    RoveIndex <= within(r.Size, FrameBits_g + 1);
    RoveIn    <= (others => '0');
    ListTake  <= '0';
    ListPut   <= r.Came when r.Free < Few_c else '0';
    ScanStart <= '0';
    ScanStop  <= '0';
    FillPut   <= '0';
    MarkNow   <= '0';
    v.Came    := '0';
    v.Given   := '0';
    done_v    := '0';
    v.HasFree := AnySum(wordOf(r.First) mod PerWord_c);
    v.Ending  := ("00" & r.First) + framesOf(r.Size);
    v.IsAligned := isAligned(r.First, r.Size);
    -- Of those that are given the negative number: all bits from that of the size on.
    for i in r.More'range loop
      v.More(i) := '0';
      if i = r.Size or (i > r.Size and r.Give = '0') then
        v.More(i) := '1';
      end if;
    end loop;
    v.Good    := not isAny(Hinders and Mask, 3);
    v.FromBit := r.Low when r.InWord = '1' else r.From;
    v.Ahead   := r.RespFirst + 1;
    if HandTake = '1' then
      v.Ahead := HandFrame + 1;
    end if;
    if Resp_Ready = '1' then
      v.RespValid := '0';
    end if;
    if ReturnValid = '1' then
      v.RespValid := '1';
      v.RespOk    := ReturnOk;
      v.RespFirst := ReturnFrame;
      v.Came      := ReturnOk;
      done_v      := ReturnOk;
    end if;
    if r.Given = '1' and (r.Hinted = '0' or r.RespFirst /= r.HintedAt) then
      v.Single := r.Ahead;
      if r.RespFirst = Frames_g - 1 then
        v.Single := (others => '0');
      end if;
    end if;
    case r.State is

      when StateInit =>
        v.Word  := initial(r.Left, unsigned(Fixed));
        v.State := StateClear;

      when StateClear =>
        Write     <= '1' when r.Left < Words_c else '0';
        WordIndex <= within(r.Left, Words_c);
        RoveWrite <= '1' when r.Left <= FrameBits_g else '0';
        RoveIndex <= within(r.Left, FrameBits_g + 1);
        v.Free  := to_unsigned(Frames_g, FrameBits_g + 1) - unsigned('0' & Fixed);
        v.Less  := to_unsigned(Frames_g - 1, FrameBits_g + 2) - resize(unsigned(Fixed), FrameBits_g + 2);
        v.Left  := r.Left + 1;
        v.State := StateInit;
        -- All words, and where all searches begin.
        if r.Left = maximum(Words_c, FrameBits_g + 1) - 1 then
          v.State := StateIdle;
        end if;

      when StateIdle =>
        v.Left   := 0;
        v.Sum    := within(wordOf(r.First) / PerWord_c, Sums_c);
        v.InWord := '0';
        v.Search := '0';
        if ReturnTake = '1' then
          v.Held    := '0';
          v.Follows := '0';
        elsif r.Held = '1' and IsSingle = '0' then
          -- Nothing that is shown is in its way then. A frame that comes back only waits for words.
          if RespFree = '1' and ReturnOn = '0' and r.Came = '0' and (r.IsReturn = '0' or ScanOn = '1') then
            ScanStop  <= '1';
            v.Follows := '0';
            v.State   := StateBegin;
            if ScanOn = '1' or r.IsNext = '1' then
              v.State := StateStop;
            end if;
            if r.IsNext = '1' then
              v.First := r.Ahead;
            end if;
          end if;
        elsif HandTake = '1' then
          v.RespValid := '1';
          v.RespOk    := '1';
          v.RespFirst := HandFrame;
          v.Follows   := '1';
          v.Given     := '1';
          v.Hinted    := r.HasHint;
          v.HintedAt  := r.Ahead when r.IsNext = '1' else r.First;
          v.Held      := '0';
        elsif r.Held = '1' and ScanOn = '0' and ReturnOn = '0' then
          ScanStart <= '1';
        end if;
        if Op_Valid = '1' and OpReady = '1' then
          v.Held     := '1';
          v.Give     := Op_Give;
          v.HasHint  := Op_HasHint;
          v.IsNext   := Op_Next;
          v.Size     := to_integer(unsigned(Op_Size));
          v.IsReturn := '1' when Op_Give = '1' and v.Size = 0 else '0';
          v.Need     := ('0' & framesOf(v.Size)) + ('0' & unsigned(Promised));
          v.First    := unsigned(Op_First);
          v.Before   := unsigned(Op_First) - 1;
          v.IsRow    := '0';
          v.Inner    := v.Size;
          -- One more may go in this cycle.
          v.Fast     := '1';
          if Op_Give = '1' or v.Size /= 0 or r.Less(r.Less'high) = '1' or r.Less <= unsigned(Promised)
            or (r.Free <= Few_c and (ListValid or r.Came or ReturnOn or ReturnTake) = '1') then
            v.Fast := '0';
          end if;
          if v.Size >= WordBits_g then
            v.IsRow := '1';
            v.Inner := v.Size - WordBits_g;
          end if;
        end if;

      when StateStop =>
        v.State := StateBegin;
        if r.IsReturn = '1' then
          v.State := StateIdle;
        end if;

      when StateBegin =>
        if r.Size > FrameBits_g or (r.Give = '0' and r.Free < r.Need) then
          refuse;
        elsif r.Give = '1' and IsFilled = '0' then
          null;
        elsif r.IsAligned = '1' and r.Ending <= Frames_g and (r.Give = '1' or r.HasHint = '1') then
          v.State := StateCheck;
          if r.IsRow = '1' then
            v.State := StateRow;
          end if;
        elsif r.Give = '1' then
          refuse;
        else
          tryNext;
        end if;

      when StateList =>
        ListTake <= ListValid;
        v.First := unsigned(Listed);
        v.State := StateRead;

      when StateRead =>
        v.State := StateCheck;
        if r.InWord = '1' then
          v.State := StateRuns;
        end if;

      when StateRuns =>
        if r.InWord = '1' or r.IsRow = '1' then
          v.Runs := AllSum;
          if r.InWord = '1' then
            v.Runs := Word;
          end if;
          v.Runs := runs(v.Runs, r.Inner);
        elsif r.Size >= MiddleBits_g then
          v.Runs := RunSum;
        else
          v.Runs := AnySum;
        end if;
        v.State := StateFirst;
        if r.InWord = '0' and r.Sum = Sums_c then
          v.State := StateRuns;
          wrap;
        end if;

      when StateFirst =>
        v.Found := FindHas;
        v.Place := FindPlace;
        v.State := StateFound;

      when StateFound =>
        v.State := StateRuns;
        if r.InWord = '1' then
          -- Nothing there: on in the summary, behind the word.
          v.InWord := '0';
          v.Low    := 0;
          if r.Found = '1' then
            v.First := r.First or to_unsigned(r.Place, maximum(WordBits_g, FrameBits_g))(FrameBits_g - 1 downto 0);
            v.State := StateCheck;
          end if;
        elsif r.Found = '1' then
          if r.IsFirst = '0' or r.Place /= r.From then
            v.Low := 0;
          end if;
          v.IsFirst := '0';
          v.InWord  := '1';
          v.From    := r.Place + 1;
          v.First   := frameOf(r.Sum, r.Place);
          v.State   := StateRead;
          if r.IsRow = '1' then
            v.State := StateRow;
          end if;
        else
          v.Sum     := r.Sum + 1;
          v.From    := 0;
          v.IsFirst := '0';
          v.Low     := 0;
        end if;

      when StateCheck =>
        v.State := StateWrite;
        if r.Give = '1' then
          v.Word := WordNow or Mask;
        else
          v.Word := WordNow and not Mask;
        end if;

      when StateWrite =>
        if r.Good = '1' then
          Write     <= '1';
          RoveWrite <= r.Search;
          finish;
        elsif r.Give = '1' then
          refuse;
        else
          tryNext;
        end if;

      when StateRow =>
        -- Of a run of more words than a summary has, one summary after the other: Left words are known.
        v.State := StateRowDone;
        -- Only what comes back is written by its words.
        v.Word := (others => '1');

      when StateRowDone =>
        v.State := StateRow;
        if r.Sum = Sums_c then
          wrap;
        elsif r.Good = '1' then
          v.Left := r.Left + 1;
          v.Sum  := r.Sum + 1;
          if r.Left = lastSumOf(r.Size) then
            v.Left  := lastWordOf(r.Size);
            v.State := StateFill;
            if r.Give = '0' then
              v.Sum   := wordOf(r.First) / PerWord_c;
              v.Left  := lastSumOf(r.Size);
              v.State := StateMark;
            end if;
          end if;
        elsif r.Give = '1' then
          refuse;
        elsif r.Search = '0' then
          tryNext;
        else
          -- The next run, if the memory has one.
          v.Left := 0;
          if shift_right(r.Ending, 2 * WordBits_g) >= Sums_c then
            wrap;
          else
            v.First := r.Ending(FrameBits_g - 1 downto 0);
            v.Sum   := wordOf(v.First) / PerWord_c;
          end if;
        end if;

      when StateFill =>
        -- The run is aligned, so that this is the sum.
        Write     <= '1';
        WordIndex <= within(to_integer(shift_right(r.First, WordBits_g)
                                       or to_unsigned(r.Left, FrameBits_g)), Words_c);
        if r.Left /= 0 then
          v.Left := r.Left - 1;
        else
          finish;
        end if;

      when StateMark =>
        MarkNow <= FillRoom;
        if FillRoom = '1' and r.Left /= 0 then
          v.Left := r.Left - 1;
          v.Sum  := r.Sum + 1;
        elsif FillRoom = '1' then
          FillPut   <= '1';
          RoveWrite <= r.Search;
          finish;
        end if;

    end case;

    -- That a frame goes or comes back is known late, and by how many there are more long before.
    more_v := r.More;
    if r.State = StateIdle then
      more_v := to_unsigned(1, more_v'length);
    end if;
    if HandTake = '1' then
      v.Free := r.Less(FrameBits_g downto 0);
      v.Less := r.Less - 1;
    elsif done_v = '1' then
      v.Free := r.Free + more_v(FrameBits_g downto 0);
      v.Less := r.Less + more_v;
    end if;

    -- The next search begins behind the run.
    if r.State /= StateClear and r.Ending /= Frames_g then
      RoveIn <= r.Ending(FrameBits_g - 1 downto 0);
    end if;

    if Rst = '1' then
      v.State     := StateInit;
      v.Left      := 0;
      v.Held      := '0';
      v.Came      := '0';
      v.Given     := '0';
      v.Single    := (others => '0');
      v.RespValid := '0';
    end if;
    n <= v;
  end process;

  p_registers : process (Clk) is
  begin
    if rising_edge(Clk) then
      r <= n;
    end if;
  end process;

end architecture;
