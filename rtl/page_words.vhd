-- Gives pages their frames: the words of pages of one region, one behind the other, run by run.
--
-- The longest run of frames is asked for that the page's alignment and the pages left allow, then shorter ones. The
-- frame behind the last one given is the hint, where the page is the one behind too. Pages that are lazy
-- get words without a frame.
--
-- One half asks, the other one writes: frames are asked for while words of others are written. Nothing comes back
-- meanwhile, so a length of which there was no run is not asked for again; where there are single frames alone one is
-- asked for each cycle, hinted at by the one before, whichever that will be. Words of eight pages that have a run, or
-- are lazy, are written at once, but for the first and the last ones of an allocation.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.alloc_pkg.all;
  use work.window_pkg.all;

entity page_words is
  generic (
    -- Of a page's number in the window, and in its region; of a frame's number.
    PageBits_g  : positive;
    LeafBits_g  : positive;
    FrameBits_g : positive;
    -- Memories that frames may be of.
    Memories_g  : positive
  );
  port (
    Clk          : in    std_logic;
    Rst          : in    std_logic;
    -- Words of Count pages, with which an allocation begins where Begins is 1, and ends where Ends is 1; or, where
    -- Keep is 1, of one reserved page, whose marks stay as they are. All stands until the end, but for Keep and
    -- Begins.
    Start        : in    std_logic;
    First        : in    std_logic_vector(PageBits_g - 1 downto 0);
    Count        : in    std_logic_vector(LeafBits_g downto 0);
    Begins       : in    std_logic;
    Ends         : in    std_logic;
    Keep         : in    std_logic;
    -- The first word says that there are Count pages; else it says that there is one, as that of a large allocation
    -- does.
    Counted      : in    std_logic;
    -- Rights and memory as in this word.
    Base         : in    TableWord_t;
    Lazy         : in    std_logic;
    -- For one cycle: the last word is written, if not yet visible; there was no frame for it.
    Done         : out   std_logic;
    Failed       : out   std_logic;
    -- Frames. The hint is First, or the frame behind the one that the answer before tells of.
    Frame_Valid  : out   std_logic;
    Frame_Ready  : in    std_logic;
    Frame_Size   : out   std_logic_vector(SizeBits_c - 1 downto 0);
    Frame_Hinted : out   std_logic;
    Frame_Next   : out   std_logic;
    Frame_First  : out   std_logic_vector(FrameBits_g - 1 downto 0);
    Given_Valid  : in    std_logic;
    Given_Ok     : in    std_logic;
    Given_First  : in    std_logic_vector(FrameBits_g - 1 downto 0);
    -- Words of the table: one, or eight of a beat, which are alike but for their frames, one behind the other where
    -- there are some.
    Write_Valid  : out   std_logic;
    Write_Ready  : in    std_logic;
    Write_Many   : out   std_logic;
    Write_Run    : out   std_logic;
    Within       : out   std_logic_vector(LeafBits_g - 1 downto 0);
    Word         : out   TableWord_t
  );
end entity;

architecture rtl of page_words is

  -- Runs that were asked for, and whose words are not all written.
  constant Depth_c : positive := 4;

  -- A page's place in its region, or that behind the last one.
  subtype Page_t is unsigned(LeafBits_g downto 0);

  subtype Region_t is unsigned(PageBits_g - 1 downto LeafBits_g);

  subtype Frame_t is unsigned(FrameBits_g - 1 downto 0);

  subtype Count_t is unsigned(LeafBits_g downto 0);

  -- Sizes of runs, as powers of two.
  type Run_t is (RunSingle, RunShort, RunLong);

  type Ask_t is (AskNothing, AskSize, AskRun, AskAnswer, AskSingles);

  type Registers_t is record
    -- What is asked for: the next page, pages that are left, the run; the answer before has the hint.
    Ask       : Ask_t;
    Page      : Page_t;
    Left      : Count_t;
    Run       : Run_t;
    IsNext    : std_logic;
    -- There is no run any more.
    NoLong    : std_logic;
    NoShort   : std_logic;
    Room      : natural range 0 to Depth_c;
    -- The page behind the last one that got a frame, and the region behind that one, a cycle later. The frame, and
    -- the one behind that, a cycle later; whether that page is the next one, a cycle after that.
    HasHint   : std_logic;
    HintPage  : Page_t;
    HintIn    : Region_t;
    HintNext  : Region_t;
    GotFrame  : Frame_t;
    HintFrame : Frame_t;
    HintMemory : std_logic_vector(MemoryBits_c - 1 downto 0);
    IsHinted  : std_logic;
    -- What is written: whether anything is, the place of the next word, words that are left.
    Running   : std_logic;
    Keep      : std_logic;
    IsFirst   : std_logic;
    At        : unsigned(LeafBits_g - 1 downto 0);
    Words     : Count_t;
    -- The beat of which not all words are of these pages, or that has the allocation's last one.
    BeatEnd   : unsigned(LeafBits_g - BeatShift_c downto 0);
    -- The run: words that are left of it, its size and the next frame. That of lazy pages ends with them.
    RunLeft   : unsigned(RunLong_c downto 0);
    RunSize   : natural range 0 to RunLong_c;
    Frame     : Frame_t;
  end record;

  constant QueueBits_c : positive := 2 + FrameBits_g;

  signal r         : Registers_t;
  signal n         : Registers_t;
  signal Pages     : Count_t;
  signal Memory    : std_logic_vector(MemoryBits_c - 1 downto 0);
  -- Runs that were given, and wait.
  signal Clear     : std_logic;
  signal QueueIn   : std_logic_vector(QueueBits_c - 1 downto 0);
  signal QueueOut  : std_logic_vector(QueueBits_c - 1 downto 0);
  signal IsQueued  : std_logic;
  signal Push      : std_logic;
  signal Pop       : std_logic;
  signal Given     : std_logic;
  -- Eight words at once; the last word of the run, or of all, is written.
  signal IsBeat    : std_logic;
  signal RunEnds   : std_logic;
  signal WordsEnd  : std_logic;
  signal HasFailed : std_logic;

  -- A run of 2**size frames fits the page and those left.
  function fits (size : natural; page : Page_t; left : Count_t) return boolean is
    variable fits_v : boolean := size <= LeafBits_g;
  begin
    for i in 0 to RunLong_c - 1 loop
      if i < size and i < LeafBits_g and page(minimum(i, LeafBits_g)) = '1' then
        fits_v := false;
      end if;
    end loop;
    return fits_v and left >= 2 ** minimum(size, LeafBits_g);
  end function;

  function sizeOf (run : Run_t) return natural is
  begin
    case run is
      when RunLong =>
        return RunLong_c;
      when RunShort =>
        return RunShort_c;
      when RunSingle =>
        return 0;
    end case;
  end function;

  function framesOf (run : Run_t) return Count_t is
  begin
    return shift_left(to_unsigned(1, Count_t'length), sizeOf(run));
  end function;

  -- Of a run, the last frame less the first.
  function lastOfRun (run : Run_t) return Frame_t is
    variable last_v : Frame_t := (others => '0');
  begin
    for i in last_v'range loop
      if i < sizeOf(run) then
        last_v(i) := '1';
      end if;
    end loop;
    return last_v;
  end function;

  function toRun (code : std_logic_vector(1 downto 0)) return Run_t is
  begin
    case code is
      when "00" =>
        return RunSingle;
      when "01" =>
        return RunShort;
      when others =>
        return RunLong;
    end case;
  end function;

begin

  assert PageBits_g >= RunLong_c
    report "page_words: the window has 2**6 pages at least" severity failure;

  Frame_Valid  <= '1' when (r.Ask = AskRun or r.Ask = AskSingles) and r.Room /= 0 else '0';
  Frame_Size   <= std_logic_vector(to_unsigned(sizeOf(r.Run), SizeBits_c));
  Frame_Hinted <= r.IsHinted or r.IsNext;
  Frame_Next   <= r.IsNext;
  Frame_First  <= std_logic_vector(r.HintFrame);

  Write_Valid <= '1' when r.RunLeft /= 0 else '0';
  Write_Many  <= IsBeat;
  Write_Run   <= IsBeat and not Lazy;
  Within      <= std_logic_vector(r.At);
  Word        <= withFrame(Base, r.Frame) when r.Keep = '1' else
                 marked(pageWord(r.Frame, Lazy, Base(WritableBit_c), Memory, r.RunSize), r.IsFirst = '1',
                   r.Words = 1 and Ends = '1', Pages);

  Memory <= Base(MemoryLow_c + MemoryBits_c - 1 downto MemoryLow_c);

  IsBeat <= '1' when r.At(BeatShift_c - 1 downto 0) = 0 and r.RunLeft >= BeatWords_c and r.IsFirst = '0'
                     and ('0' & r.At(LeafBits_g - 1 downto BeatShift_c)) /= r.BeatEnd else '0';

  RunEnds  <= Write_Ready and not Lazy when r.RunLeft = 1 or (IsBeat = '1' and r.RunLeft = BeatWords_c) else '0';
  WordsEnd <= Write_Valid and Write_Ready when r.Words = 1 or (IsBeat = '1' and r.Words = BeatWords_c) else '0';

  Given     <= r.Running and Given_Valid;
  HasFailed <= Given and not Given_Ok when r.Run = RunSingle else '0';
  Failed    <= HasFailed;
  Done      <= HasFailed or WordsEnd;

  ------------------------------------------------------------------------------------------------
  -- Runs that were given
  ------------------------------------------------------------------------------------------------
  Clear   <= Rst or Start or HasFailed;
  QueueIn <= std_logic_vector(to_unsigned(Run_t'pos(r.Run), 2)) & Given_First;
  -- One of which nothing waits is not queued.
  Push    <= Given and Given_Ok when IsQueued = '1' or (r.RunLeft /= 0 and RunEnds = '0') else '0';
  Pop     <= '1' when r.RunLeft = 0 or RunEnds = '1' else '0';

  i_queue : entity work.fifo
    generic map (
      Width_g => QueueBits_c,
      Depth_g => Depth_c
    )
    port map (
      Clk       => Clk,
      Rst       => Clear,
      In_Valid  => Push,
      In_Ready  => open,
      In_Data   => QueueIn,
      Out_Valid => IsQueued,
      Out_Ready => Pop,
      Out_Data  => QueueOut,
      Level     => open,
      In_Place  => open,
      Out_Place => open
    );

  p_next : process (all) is
    variable v     : Registers_t;
    variable run_v : std_logic_vector(QueueBits_c - 1 downto 0);
    variable end_v : Count_t;
    -- Room as it was, but for a run that is asked for, or that ends.
    variable room_v : natural range 0 to Depth_c;
    variable asks_v : std_logic;
    variable more_v : std_logic;
  begin
    v := r;

    ----------------------------------------------------------------------------------------------
    -- What is asked for
    ----------------------------------------------------------------------------------------------
    room_v := r.Room;
    asks_v := '0';
    v.HintFrame := r.GotFrame + 1;
    if Given = '1' and Given_Ok = '1' then
      v.GotFrame := unsigned(Given_First) or lastOfRun(r.Run);
    end if;

    case r.Ask is

      when AskNothing =>
        v.IsNext  := '0';
        v.NoLong  := '0';
        v.NoShort := '0';
        if r.Running = '0' then
          v.Page := '0' & unsigned(First(LeafBits_g - 1 downto 0));
          v.Left := unsigned(Count);
          v.Run  := RunSingle;
          room_v := Depth_c;
        end if;
        if Start = '1' and Keep = '1' then
          v.Left := to_unsigned(1, Count_t'length);
          v.Ask  := AskRun;
        elsif Start = '1' and Lazy = '0' then
          v.Ask := AskSize;
        end if;

      when AskSize =>
        v.Run := RunSingle;
        if r.NoLong = '0' and fits(RunLong_c, r.Page, r.Left) then
          v.Run := RunLong;
        elsif r.NoShort = '0' and fits(RunShort_c, r.Page, r.Left) then
          v.Run := RunShort;
        end if;
        v.Ask := AskRun;
        if r.NoShort = '1' then
          v.Ask := AskSingles;
        end if;

      when AskRun =>
        if Frame_Ready = '1' and r.Room /= 0 then
          asks_v := '1';
          v.Ask  := AskAnswer;
        end if;

      when AskAnswer =>
        if Given_Valid = '1' and Given_Ok = '1' then
          v.HasHint  := '1';
          v.Page     := r.Page + framesOf(r.Run);
          v.HintPage := v.Page;
          v.HintIn   := unsigned(First(PageBits_g - 1 downto LeafBits_g));
          v.Left     := r.Left - framesOf(r.Run);
          v.Ask      := AskSize;
          if r.Left = framesOf(r.Run) then
            v.Ask := AskNothing;
          end if;
        elsif Given_Valid = '1' then
          room_v := r.Room + 1;
          v.Ask  := AskRun;
          v.Run  := RunSingle;
          v.NoLong := '1';
          if r.Run = RunLong then
            v.Run := RunShort;
          else
            v.NoShort := '1';
            v.Ask     := AskSingles;
          end if;
        end if;

      when AskSingles =>
        if Frame_Ready = '1' and r.Room /= 0 then
          v.HasHint  := '1';
          v.IsNext   := '1';
          asks_v     := '1';
          v.Page     := r.Page + 1;
          v.HintPage := v.Page;
          v.HintIn   := unsigned(First(PageBits_g - 1 downto LeafBits_g));
          v.Left     := r.Left - 1;
          if r.Left = 1 then
            v.Ask := AskNothing;
          end if;
        end if;

    end case;

    v.HintNext := r.HintIn + 1;
    v.IsHinted := '0';
    if r.HintPage = r.Page and r.HintIn = unsigned(First(PageBits_g - 1 downto LeafBits_g)) then
      v.IsHinted := r.HasHint;
    elsif r.HintPage(LeafBits_g) = '1' and r.Page = 0 and r.HintNext /= 0
      and r.HintNext = unsigned(First(PageBits_g - 1 downto LeafBits_g)) then
      v.IsHinted := r.HasHint;
    end if;
    if Memories_g > 1 then
      if Given = '1' and Given_Ok = '1' then
        v.HintMemory := Memory;
      elsif r.HintMemory /= Memory then
        v.IsHinted := '0';
      end if;
    end if;

    ----------------------------------------------------------------------------------------------
    -- What is written
    ----------------------------------------------------------------------------------------------
    if r.RunLeft /= 0 and Write_Ready = '1' then
      v.IsFirst := '0';
      v.At      := r.At + 1;
      v.Frame   := r.Frame + 1;
      v.Words   := r.Words - 1;
      if IsBeat = '1' then
        v.At      := r.At + BeatWords_c;
        v.Frame   := r.Frame + BeatWords_c;
        v.Words   := r.Words - BeatWords_c;
      end if;
      if Lazy = '0' then
        v.RunLeft := r.RunLeft - 1;
        if IsBeat = '1' then
          v.RunLeft := r.RunLeft - BeatWords_c;
        end if;
      elsif WordsEnd = '1' then
        v.RunLeft := (others => '0');
      end if;
    end if;
    -- What is known late only chooses.
    more_v := RunEnds when r.Room /= Depth_c else '0';
    v.Room := room_v;
    if asks_v = '1' and more_v = '0' then
      v.Room := r.Room - 1;
    elsif asks_v = '0' and more_v = '1' then
      v.Room := room_v + 1;
    end if;
    if Pop = '1' and (IsQueued = '1' or (Given = '1' and Given_Ok = '1')) then
      run_v := QueueOut when IsQueued = '1' else QueueIn;
      v.RunSize := sizeOf(toRun(run_v(QueueBits_c - 1 downto FrameBits_g)));
      v.RunLeft := shift_left(to_unsigned(1, RunLong_c + 1), v.RunSize);
      v.Frame   := unsigned(run_v(FrameBits_g - 1 downto 0));
    end if;
    if Start = '1' then
      v.Running := '1';
      v.Keep    := Keep;
      v.IsFirst := Begins;
      v.At      := unsigned(First(LeafBits_g - 1 downto 0));
      v.Words   := v.Left;
      end_v     := ('0' & unsigned(First(LeafBits_g - 1 downto 0))) + unsigned(Count) - unsigned'("" & Ends);
      v.BeatEnd := end_v(LeafBits_g downto BeatShift_c);
      v.RunSize := 0;
      if Lazy = '1' and Keep = '0' then
        v.RunLeft := to_unsigned(BeatWords_c, RunLong_c + 1);
      end if;
    end if;
    if Done = '1' then
      v.Running := '0';
    end if;
    if HasFailed = '1' then
      v.Ask     := AskNothing;
      v.RunLeft := (others => '0');
    end if;

    if Rst = '1' then
      v.Ask     := AskNothing;
      v.Running := '0';
      v.HasHint := '0';
      v.RunLeft := (others => '0');
    end if;
    n <= v;
  end process;

  p_registers : process (Clk) is
  begin
    if rising_edge(Clk) then
      -- Known when the first word is.
      Pages <= to_unsigned(1, Count_t'length);
      if Counted = '1' then
        Pages <= unsigned(Count);
      end if;
      r <= n;
    end if;
  end process;

end architecture;
