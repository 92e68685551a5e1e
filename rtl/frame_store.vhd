-- Which frames of one memory are in use: one bit each, in block RAM.
--
-- It gives the run that is hinted at, else a frame that came back lately while few are free, else the
-- next run behind the one that the last search for that size found. Runs are aligned powers of two. For each
-- word of bits a summary says whether a frame of it is free, a run of 2**MiddleBits_g, all of it; so a
-- search looks at few words. A run is looked at once more before it is written, whoever said that it is free.
--
-- After a reset it writes all words: free, but for the first Fixed frames and those beyond the memory.
-- Timing, ports and generics: docs/rtl/frame_store.md.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
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
    List_g       : positive := 64
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
    StateIdle,
    -- A request is looked at, in two cycles.
    StateBegin,
    StateStart,
    -- A frame is taken from the list.
    StateList,
    -- The word of First is read.
    StateRead,
    -- A summary, or the word of First, is looked through, in three cycles: its runs, the first of them,
    -- and what to do then.
    StateRuns,
    StateFirst,
    StateFound,
    -- The run at First is looked at, in its word, and written; or, of whole words, in their summaries,
    -- and filled.
    StateCheck,
    StateWrite,
    StateRow,
    StateRowDone,
    StateFill,
    StateAnswer
  );

  type Registers_t is record
    State   : State_t;
    Give    : std_logic;
    HasHint : std_logic;
    Size    : Size_t;
    -- It is one of whole words; its size in them, else in frames, as a power of two.
    IsRow   : std_logic;
    Inner   : Size_t;
    -- Frames of the run, and the run.
    Count   : Count_t;
    First   : Frame_t;
    Ok      : std_logic;
    Free    : Count_t;
    -- It is looked for; from the beginning, after the search from where the last one ended.
    Search  : std_logic;
    Again   : std_logic;
    -- In the word of First, or in a summary: which, and from which bit on.
    InWord  : std_logic;
    Sum     : natural range 0 to Sums_c;
    From    : natural range 0 to PerWord_c;
    -- While that is the word where the search began, the first bit of the word that counts.
    IsFirst : std_logic;
    Low     : Bit_t;
    Runs    : Word_t;
    Found   : std_logic;
    Place   : Bit_t;
    -- The frame behind the run of whole words.
    Behind  : unsigned(FrameBits_g + 1 downto 0);
    -- The run at First may be written; what its word is then.
    Good    : std_logic;
    Word    : Word_t;
    -- A single frame has come back in the cycle before.
    Came    : std_logic;
    -- Words that are still to be written, or are known to be free.
    Left    : natural range 0 to maximum(Words_c, FrameBits_g + 1) + PerWord_c;
  end record;

  -- Bit i: the bits from i on are 1, as many as a run has. Only aligned ones.
  function runs (word : Word_t; size : Size_t) return Word_t is
    variable runs_v : Word_t := word;
  begin
    for s in 1 to WordBits_g - 1 loop
      if s <= size then
        -- In this order: the upper half's bit is needed before it is cleared.
        for i in 0 to PerWord_c - 1 loop
          if i mod 2 ** s = 0 then
            runs_v(i) := runs_v(i) and runs_v(i + 2 ** (s - 1));
          else
            runs_v(i) := '0';
          end if;
        end loop;
      end if;
    end loop;
    return runs_v;
  end function;

  -- The bits from `from` on.
  function behind (word : Word_t; from : natural) return Word_t is
    variable word_v : Word_t := word;
  begin
    for i in word'range loop
      if i < from then
        word_v(i) := '0';
      end if;
    end loop;
    return word_v;
  end function;

  -- The lowest bit that is 1: of each pair of halves the lower one, if it has any.
  function firstOf (word : Word_t) return Bit_t is
    type Places_t is array (0 to PerWord_c - 1) of unsigned(WordBits_g - 1 downto 0);
    variable some_v   : Word_t := word;
    variable places_v : Places_t := (others => (others => '0'));
  begin
    for level in 0 to WordBits_g - 1 loop
      for i in 0 to PerWord_c / 2 ** (level + 1) - 1 loop
        if some_v(2 * i) = '1' then
          places_v(i) := places_v(2 * i);
        else
          places_v(i)        := places_v(2 * i + 1);
          places_v(i)(level) := '1';
        end if;
        some_v(i) := some_v(2 * i) or some_v(2 * i + 1);
      end loop;
    end loop;
    return to_integer(places_v(0));
  end function;

  -- The bits of a run.
  function bitsOf (first : Bit_t; size : Size_t) return Word_t is
    variable bits_v : Word_t := (others => '0');
  begin
    for i in 0 to PerWord_c - 1 loop
      for s in 0 to WordBits_g loop
        if (s = size or (s = WordBits_g and size > s)) and i / 2 ** s = first / 2 ** s then
          bits_v(i) := '1';
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

  function isAligned (frame : Frame_t; size : Size_t) return boolean is
  begin
    for i in frame'range loop
      if i < size and frame(i) = '1' then
        return false;
      end if;
    end loop;
    return true;
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

  signal RoveWrite : std_logic;
  signal RoveIndex : natural range 0 to FrameBits_g;
  signal RoveIn    : Frame_t;

  signal Listed    : std_logic_vector(FrameBits_g - 1 downto 0);
  signal ListValid : std_logic;
  signal ListTake  : std_logic;
  signal ListPut   : std_logic;

begin

  assert Frames_g <= 2 ** FrameBits_g and FrameBits_g <= 20
    report "frame_store: a frame's number has at most 20 bits, and fits them" severity failure;
  assert MiddleBits_g < WordBits_g
    report "frame_store: the run of the summary is shorter than a word" severity failure;

  Op_Ready   <= '1' when r.State = StateIdle else '0';
  Resp_Valid <= '1' when r.State = StateAnswer else '0';
  Resp_Ok    <= r.Ok;
  Resp_First <= std_logic_vector(r.First);
  Free       <= std_logic_vector(r.Free);

  ------------------------------------------------------------------------------------------------
  -- Memories. The word of First is there from the second cycle on, summaries in the same cycle.
  ------------------------------------------------------------------------------------------------
  SumIndex <= within(r.Sum, Sums_c) when r.State = StateRuns or r.State = StateRow else WordIndex / PerWord_c;
  AnySum   <= AnySums(SumIndex);
  RunSum   <= RunSums(SumIndex);
  AllSum   <= AllSums(SumIndex);
  From     <= Roving(within(r.Size, FrameBits_g + 1));

  p_words : process (Clk) is
  begin
    if rising_edge(Clk) then
      if Write = '1' then
        Words(WordIndex) <= r.Word;
      end if;
      Word <= Words(within(wordOf(r.First), Words_c));
    end if;
  end process;

  p_sums : process (Clk) is
    variable any_v : Word_t;
    variable run_v : Word_t;
    variable all_v : Word_t;
  begin
    if rising_edge(Clk) then
      if Write = '1' then
        any_v := AnySum;
        run_v := RunSum;
        all_v := AllSum;
        any_v(WordIndex mod PerWord_c) := or r.Word;
        run_v(WordIndex mod PerWord_c) := or runs(r.Word, MiddleBits_g);
        all_v(WordIndex mod PerWord_c) := and r.Word;
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
      In_Data   => std_logic_vector(r.First),
      Out_Valid => ListValid,
      Out_Ready => ListTake,
      Out_Data  => Listed,
      Level     => open,
      In_Place  => open,
      Out_Place => open
    );

  ------------------------------------------------------------------------------------------------
  -- What comes next
  ------------------------------------------------------------------------------------------------
  p_next : process (all) is
    variable v      : Registers_t;
    variable mask_v : Word_t;
    variable from_v : natural range 0 to PerWord_c;
    variable good_v : boolean;
    variable end_v  : unsigned(FrameBits_g + 1 downto 0);

    procedure refuse is
    begin
      v.Ok    := '0';
      v.State := StateAnswer;
    end procedure;

    -- What is tried if the run at First is not free: the list, then a search.
    procedure tryNext is
    begin
      if r.Size = 0 and r.Free < Few_c and ListValid = '1' then
        v.State := StateList;
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
      v.Ok    := '1';
      v.State := StateAnswer;
      if r.Give = '1' then
        v.Free := r.Free + r.Count;
      else
        v.Free := r.Free - r.Count;
      end if;
    end procedure;

  begin
    v := r;
    Write     <= '0';
    WordIndex <= within(wordOf(r.First), Words_c);
    RoveWrite <= '0';
    RoveIndex <= within(r.Size, FrameBits_g + 1);
    RoveIn    <= (others => '0');
    ListTake  <= '0';
    ListPut   <= '0';
    end_v := ("00" & r.First) + r.Count;
    -- The bits of the run in its word, or of its words in their summary.
    mask_v := bitsOf(bitOf(r.First), r.Inner);
    if r.IsRow = '1' then
      mask_v := bitsOf(wordOf(r.First) mod PerWord_c, r.Inner);
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
        v.Left  := r.Left + 1;
        v.State := StateInit;
        -- All words, and where all searches begin.
        if r.Left = maximum(Words_c, FrameBits_g + 1) - 1 then
          v.State := StateIdle;
        end if;

      when StateIdle =>
        v.Give    := Op_Give;
        v.HasHint := Op_HasHint;
        v.Size    := to_integer(unsigned(Op_Size));
        v.Count   := framesOf(v.Size);
        v.IsRow   := '0';
        v.Inner   := v.Size;
        if v.Size >= WordBits_g then
          v.IsRow := '1';
          v.Inner := v.Size - WordBits_g;
        end if;
        v.First   := unsigned(Op_First);
        v.Search  := '0';
        if Op_Valid = '1' then
          v.State := StateBegin;
        end if;

      when StateBegin =>
        v.Left := 0;
        v.Sum  := wordOf(r.First) / PerWord_c;
        v.InWord := '0';
        v.Good := '0';
        if isAligned(r.First, r.Size) and end_v <= Frames_g then
          v.Good := '1';
        end if;
        v.Ok := '1';
        if r.Give = '0' and r.Free < r.Count + resize(unsigned(Promised), FrameBits_g + 2) then
          v.Ok := '0';
        end if;
        if r.Size > FrameBits_g then
          v.Ok := '0';
        end if;
        v.State := StateStart;

      when StateStart =>
        if r.Ok = '0' or (r.Give = '1' and r.Good = '0') then
          refuse;
        elsif r.Good = '0' or (r.Give = '0' and r.HasHint = '0') then
          tryNext;
        elsif r.IsRow = '1' then
          v.State := StateRow;
        else
          v.State := StateCheck;
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
        from_v := r.From;
        if r.InWord = '1' then
          from_v := r.Low;
        end if;
        v.Found := or behind(r.Runs, from_v);
        v.Place := firstOf(behind(r.Runs, from_v));
        v.State := StateFound;

      when StateFound =>
        v.State := StateRuns;
        if r.InWord = '1' then
          -- Nothing there: on in the summary, behind the word.
          v.InWord := '0';
          v.Low    := 0;
          if r.Found = '1' then
            v.First := r.First + r.Place;
            v.State := StateCheck;
          end if;
        elsif r.Found = '1' then
          if r.IsFirst = '0' or r.Place /= r.From then
            v.Low := 0;
          end if;
          v.IsFirst := '0';
          v.InWord  := '1';
          v.From    := r.Place + 1;
          v.First   := resize(to_unsigned((r.Sum * PerWord_c + r.Place) * PerWord_c, 32), FrameBits_g);
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
        v.Good  := '0';
        v.State := StateWrite;
        if r.Give = '1' then
          if (Word and mask_v) = (mask_v'range => '0') then
            v.Good := '1';
          end if;
          v.Word := Word or mask_v;
        else
          if (Word and mask_v) = mask_v then
            v.Good := '1';
          end if;
          v.Word := Word and not mask_v;
        end if;

      when StateWrite =>
        if r.Good = '1' then
          Write     <= '1';
          RoveWrite <= r.Search;
          finish;
          if r.Give = '1' and r.Size = 0 then
            v.Came := '1';
          end if;
        elsif r.Give = '1' then
          refuse;
        else
          tryNext;
        end if;

      when StateRow =>
        -- Of a run of more words than a summary has, one summary after the other: Left words are known.
        v.Good  := '0';
        v.State := StateRowDone;
        if r.Give = '1' then
          if (AnySum and mask_v) = (mask_v'range => '0') then
            v.Good := '1';
          end if;
        elsif (AllSum and mask_v) = mask_v then
          v.Good := '1';
        end if;
        v.Word   := (others => r.Give);
        v.Behind := end_v;

      when StateRowDone =>
        v.State := StateRow;
        if r.Sum = Sums_c then
          wrap;
        elsif r.Good = '1' then
          v.Left := r.Left + PerWord_c;
          v.Sum  := r.Sum + 1;
          if v.Left >= to_integer(shift_right(r.Count, WordBits_g)) then
            v.Left  := to_integer(shift_right(r.Count, WordBits_g)) - 1;
            v.State := StateFill;
          end if;
        elsif r.Give = '1' then
          refuse;
        elsif r.Search = '0' then
          tryNext;
        else
          -- The next run, if the memory has one.
          v.Left := 0;
          if shift_right(r.Behind, 2 * WordBits_g) >= Sums_c then
            wrap;
          else
            v.First := r.Behind(FrameBits_g - 1 downto 0);
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
          RoveWrite <= r.Search;
          finish;
        end if;

      when StateAnswer =>
        v.Came := '0';
        if r.Came = '1' and r.Free < Few_c then
          ListPut <= '1';
        end if;
        if Resp_Ready = '1' then
          v.State := StateIdle;
        end if;

    end case;

    -- The next search begins behind the run.
    if r.State /= StateClear and end_v /= Frames_g then
      RoveIn <= end_v(FrameBits_g - 1 downto 0);
    end if;

    if Rst = '1' then
      v.State := StateInit;
      v.Left  := 0;
      v.Came  := '0';
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
