-- Gives pages their frames: the words of pages of one region, one behind the other, run by run.
--
-- The longest run of frames is asked for that the page's alignment and the pages left allow, then shorter ones. The
-- frame behind the last one given is the hint, where the page is the one behind too. Pages that are lazy
-- get words without a frame.

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
    FrameBits_g : positive
  );
  port (
    Clk          : in    std_logic;
    Rst          : in    std_logic;
    -- Words of Count pages, with which an allocation ends, and begins too where Begins is 1; or, where Keep is 1, of
    -- one reserved page, whose marks stay as they are.
    Start        : in    std_logic;
    First        : in    std_logic_vector(PageBits_g - 1 downto 0);
    Count        : in    std_logic_vector(LeafBits_g downto 0);
    Begins       : in    std_logic;
    Keep         : in    std_logic;
    -- Rights and memory as in this word; it stands until the end, as Lazy does.
    Base         : in    TableWord_t;
    Lazy         : in    std_logic;
    -- For one cycle: the last word is written, if not yet visible; there was no frame for it.
    Done         : out   std_logic;
    Failed       : out   std_logic;
    -- Frames
    Frame_Valid  : out   std_logic;
    Frame_Ready  : in    std_logic;
    Frame_Size   : out   std_logic_vector(SizeBits_c - 1 downto 0);
    Frame_Hinted : out   std_logic;
    Frame_First  : out   std_logic_vector(FrameBits_g - 1 downto 0);
    Given_Valid  : in    std_logic;
    Given_Ok     : in    std_logic;
    Given_First  : in    std_logic_vector(FrameBits_g - 1 downto 0);
    -- Words of the table
    Write_Valid  : out   std_logic;
    Write_Ready  : in    std_logic;
    Within       : out   std_logic_vector(LeafBits_g - 1 downto 0);
    Word         : out   TableWord_t
  );
end entity;

architecture rtl of page_words is

  subtype Page_t is unsigned(PageBits_g - 1 downto 0);

  subtype Frame_t is unsigned(FrameBits_g - 1 downto 0);

  subtype Count_t is unsigned(LeafBits_g downto 0);

  type State_t is (StateIdle, StateRun, StateTake, StateTaken, StateWords);

  type Registers_t is record
    State     : State_t;
    Keep      : std_logic;
    IsFirst   : boolean;
    Page      : Page_t;
    Left      : Count_t;
    -- The run that is written: its size, as a power of two, words that are left of it, the next frame.
    Size      : natural range 0 to RunLong_c;
    RunLeft   : Count_t;
    Frame     : Frame_t;
    -- The last page that got a frame, and that; the ones behind them, a cycle later; whether the page is the one
    -- behind, a cycle later than that.
    HasHint   : std_logic;
    GotPage   : Page_t;
    GotFrame  : Frame_t;
    HintPage  : unsigned(PageBits_g downto 0);
    HintFrame : Frame_t;
    IsHinted  : std_logic;
  end record;

  signal r      : Registers_t;
  signal n      : Registers_t;
  signal Memory : std_logic_vector(MemoryBits_c - 1 downto 0);

  -- A run of 2**size frames fits the page and those left.
  function fits (size : natural; page : Page_t; left : Count_t) return boolean is
    variable fits_v : boolean := size <= LeafBits_g;
  begin
    for i in 0 to RunLong_c - 1 loop
      if i < size and page(i) = '1' then
        fits_v := false;
      end if;
    end loop;
    return fits_v and left >= 2 ** minimum(size, LeafBits_g);
  end function;

  -- Of a run of 2**size pages or frames, the last one less the first.
  function lastOfRun (size : natural; bits : positive) return unsigned is
    variable last_v : unsigned(bits - 1 downto 0) := (others => '0');
  begin
    for i in last_v'range loop
      if i < size then
        last_v(i) := '1';
      end if;
    end loop;
    return last_v;
  end function;

begin

  assert PageBits_g >= RunLong_c
    report "page_words: the window has 2**6 pages at least" severity failure;

  Frame_Valid  <= '1' when r.State = StateTake else '0';
  Frame_Size   <= std_logic_vector(to_unsigned(r.Size, SizeBits_c));
  Frame_Hinted <= r.IsHinted;
  Frame_First  <= std_logic_vector(r.HintFrame);
  Write_Valid  <= '1' when r.State = StateWords else '0';
  Within       <= std_logic_vector(r.Page(LeafBits_g - 1 downto 0));
  Word         <= withFrame(Base, r.Frame) when r.Keep = '1' else
                  marked(pageWord(r.Frame, Lazy, Base(WritableBit_c), Memory, r.Size), r.IsFirst, r.Left = 1,
                    unsigned(Count));

  Memory <= Base(MemoryLow_c + MemoryBits_c - 1 downto MemoryLow_c);

  Failed <= '1' when r.State = StateTaken and Given_Valid = '1' and Given_Ok = '0' and r.Size = 0 else '0';
  Done   <= '1' when Failed = '1' or (r.State = StateWords and Write_Ready = '1' and r.Left = 1) else '0';

  p_next : process (all) is
    variable v : Registers_t;
  begin
    v := r;
    v.HintPage  := resize(r.GotPage, PageBits_g + 1) + 1;
    v.HintFrame := r.GotFrame + 1;

    case r.State is

      when StateIdle =>
        v.Keep    := Keep;
        v.IsFirst := Begins = '1';
        v.Page    := unsigned(First);
        v.Left    := unsigned(Count);
        v.Size    := 0;
        if Keep = '1' then
          v.Left := to_unsigned(1, Count_t'length);
        end if;
        if Start = '1' then
          v.State := StateRun;
          if Keep = '1' then
            v.State := StateTake;
          end if;
        end if;

      when StateRun =>
        v.Size := 0;
        if fits(RunLong_c, r.Page, r.Left) then
          v.Size := RunLong_c;
        elsif fits(RunShort_c, r.Page, r.Left) then
          v.Size := RunShort_c;
        end if;
        v.State := StateTake;
        if Lazy = '1' then
          v.Size    := 0;
          v.RunLeft := r.Left;
          v.State   := StateWords;
        end if;

      when StateTake =>
        if Frame_Ready = '1' then
          v.State := StateTaken;
        end if;

      when StateTaken =>
        v.Frame   := unsigned(Given_First);
        v.RunLeft := shift_left(to_unsigned(1, Count_t'length), r.Size);
        if Given_Valid = '1' then
          if Given_Ok = '1' then
            v.HasHint  := '1';
            v.GotPage  := r.Page or lastOfRun(r.Size, PageBits_g);
            v.GotFrame := unsigned(Given_First) or lastOfRun(r.Size, FrameBits_g);
            v.State    := StateWords;
          elsif r.Size = RunLong_c then
            v.Size  := RunShort_c;
            v.State := StateTake;
          elsif r.Size /= 0 then
            v.Size  := 0;
            v.State := StateTake;
          else
            v.State := StateIdle;
          end if;
        end if;

      when StateWords =>
        if Write_Ready = '1' then
          v.IsFirst := false;
          v.Frame   := r.Frame + 1;
          v.Page(LeafBits_g - 1 downto 0) := r.Page(LeafBits_g - 1 downto 0) + 1;
          v.Left    := r.Left - 1;
          v.RunLeft := r.RunLeft - 1;
          if r.Left = 1 then
            v.State := StateIdle;
          elsif r.RunLeft = 1 then
            v.State := StateRun;
          end if;
        end if;

    end case;

    v.IsHinted := r.HasHint when r.HintPage = resize(v.Page, PageBits_g + 1) else '0';

    if Rst = '1' then
      v.State   := StateIdle;
      v.HasHint := '0';
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
