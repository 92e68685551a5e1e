-- Which pages of one region are in use: its bitmap on the chip, looked through by words of 64.
--
-- There is place for another region's bitmap, which is brought word by word while the first one stays as it
-- is; Swap then changes over. An operation is taken in a cycle in which Op_Valid and Op_Ready are 1; what came
-- of it stands from the next cycle with Op_Ready on. The rules are those of the model's `places.rs`.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.alloc_pkg.all;
  use work.bit_pkg.all;
  use work.index_pkg.all;

entity place_row is
  generic (
    -- Pages of a region, as a power of two.
    LeafBits_g : positive;
    -- Of the number of a word of the bitmap.
    WordBits_g : positive
  );
  port (
    Clk        : in    std_logic;
    Rst        : in    std_logic;
    Op_Valid   : in    std_logic;
    Op_Ready   : out   std_logic;
    -- A place for Count pages is looked for, and nowhere but at First where Op_Here is 1; the longest row of free ones
    -- is; or pages are taken or given. Where Op_New is 1 those from the first one on are taken of a region of which no
    -- page is in use: words are written as they are then, and the longest row is known from the next cycle on.
    Op_Find    : in    std_logic;
    Op_Here    : in    std_logic;
    Op_Longest : in    std_logic;
    Op_Take    : in    std_logic;
    Op_New     : in    std_logic;
    Op_First   : in    std_logic_vector(LeafBits_g - 1 downto 0);
    Op_Count   : in    std_logic_vector(LeafBits_g downto 0);
    -- Whether there is a place, and which; the length of the longest row.
    Ok         : out   std_logic;
    Place      : out   std_logic_vector(LeafBits_g - 1 downto 0);
    Longest    : out   std_logic_vector(LeafBits_g downto 0);
    -- A word of the bitmap, while no operation is under way.
    Word_Index : in    std_logic_vector(WordBits_g - 1 downto 0);
    Word       : out   RowWord_t;
    -- A word of the other one, then the other one is the first. No operation is under way meanwhile.
    Load_Valid : in    std_logic;
    Load_Index : in    std_logic_vector(WordBits_g - 1 downto 0);
    Load_Word  : in    RowWord_t;
    Swap       : in    std_logic
  );
end entity;

architecture rtl of place_row is

  constant Pages_c : positive := 2 ** LeafBits_g;
  constant Words_c : positive := (Pages_c + RowBits_c - 1) / RowBits_c;

  -- Two bits more than a page's number: places that are aligned up, and pages added.
  subtype Place_t is unsigned(LeafBits_g + 1 downto 0);

  subtype Word_t is natural range 0 to Words_c;

  type Words_t is array (0 to 2 * Words_c - 1) of RowWord_t;

  type State_t is (
    StateIdle,
    -- A bit that is set, or one that is clear, is looked for from At on.
    StateSeek,
    StatePick,
    -- What was sought is the begin of a row of free pages, or its end.
    StateBegin,
    StateFits,
    StateEnd,
    StateNext,
    -- Pages are taken or given, a word in two cycles.
    StateMask,
    StateFill
  );

  type Registers_t is record
    State   : State_t;
    Find    : std_logic;
    Here    : std_logic;
    Take    : std_logic;
    Count   : Place_t;
    -- Alignment of the place, as a power of two.
    Align   : natural range 0 to RunLong_c;
    -- A clear bit is sought; the seeker's place, then what was found: the row's end if there is none.
    Clear   : std_logic;
    At      : Place_t;
    Found   : std_logic;
    -- The word that is read next; the bits sought in the one before, from At on.
    Index   : Word_t;
    Bits    : RowWord_t;
    -- The place that is looked at.
    Start   : Place_t;
    -- Its end, where it begins a cycle earlier; the last one that has room for the pages.
    Finish  : Place_t;
    Limit   : Place_t;
    -- The row that ends, and the longest one before it.
    Row     : Place_t;
    Longest : Place_t;
    Ok      : std_logic;
    -- Of pages that are taken or given: where they end, and the word as it becomes. Nothing else is in use; the word
    -- lies behind theirs.
    Behind  : Place_t;
    IsNew   : std_logic;
    IsPast  : std_logic;
  end record;

  -- Of a region with less than 64 pages, the bits beyond it; they are set.
  function beyond return RowWord_t is
    variable word_v : RowWord_t := (others => '0');
  begin
    for i in word_v'range loop
      if i >= Pages_c then
        word_v(i) := '1';
      end if;
    end loop;
    return word_v;
  end function;

  function wordOf (at : Place_t) return Word_t is
  begin
    return minimum(to_integer(shift_right(at, RowShift_c)), Words_c);
  end function;

  function bitOf (at : Place_t) return unsigned is
  begin
    return resize(at, RowShift_c);
  end function;

  function alignedUp (at : Place_t; align : natural) return Place_t is
    variable place_v : Place_t := at;
  begin
    if align = RunLong_c then
      place_v := at + (2 ** RunLong_c - 1);
      place_v(minimum(RunLong_c - 1, place_v'high) downto 0) := (others => '0');
    elsif align = RunShort_c then
      place_v := at + (2 ** RunShort_c - 1);
      place_v(minimum(RunShort_c - 1, place_v'high) downto 0) := (others => '0');
    end if;
    return place_v;
  end function;

  signal r       : Registers_t;
  signal n       : Registers_t;
  signal Words   : Words_t;
  -- Which of the two bitmaps is the first one.
  signal Bank    : natural range 0 to 1;
  signal Read    : RowWord_t;
  signal ReadAt  : natural range 0 to Words_c;
  signal Write   : std_logic;
  signal WriteAt : natural range 0 to 2 * Words_c - 1;
  signal Wrote   : RowWord_t;

begin

  assert LeafBits_g >= RunShort_c and LeafBits_g <= PagesBits_c and Words_c <= 2 ** WordBits_g
    report "place_row: a region has 2**3 to 2**15 pages" severity failure;

  Op_Ready <= '1' when r.State = StateIdle else '0';
  Ok       <= r.Ok;
  Place    <= std_logic_vector(r.Start(LeafBits_g - 1 downto 0));
  Longest  <= std_logic_vector(r.Longest(LeafBits_g downto 0));

  ReadAt <= to_integer(unsigned(Word_Index)) mod Words_c when r.State = StateIdle else r.Index mod Words_c;
  Read   <= Words(Bank * Words_c + ReadAt);
  Word   <= Read;

  WriteAt <= (1 - Bank) * Words_c + to_integer(unsigned(Load_Index)) mod Words_c when Load_Valid = '1' else
             Bank * Words_c + r.Index mod Words_c;
  Wrote   <= Load_Word when Load_Valid = '1' else r.Bits;

  p_words : process (Clk) is
  begin
    if rising_edge(Clk) then
      if Load_Valid = '1' or Write = '1' then
        Words(WriteAt) <= Wrote or beyond;
      end if;
      if Swap = '1' then
        Bank <= 1 - Bank;
      end if;
      if Rst = '1' then
        Bank <= 0;
      end if;
    end if;
  end process;

  p_next : process (all) is
    variable v : Registers_t;

    procedure seek (from : Place_t; clear : std_logic) is
    begin
      v.At    := from;
      v.Clear := clear;
      v.Index := wordOf(from);
      v.State := StateSeek;
    end procedure;

    -- Less aligned, or there is no place.
    procedure relax is
    begin
      if r.Align = 0 then
        v.Ok    := '0';
        v.State := StateIdle;
      else
        v.Align := 0;
        if r.Align = RunLong_c then
          v.Align := RunShort_c;
        end if;
        seek((others => '0'), '1');
      end if;
    end procedure;

  begin
    v := r;
    Write <= '0';
    v.Finish := r.Start + r.Count;
    v.Row    := r.At - r.Start;

    case r.State is

      when StateIdle =>
        v.Find   := Op_Find;
        v.Here   := Op_Here;
        v.Take   := Op_Take;
        v.Count  := resize(unsigned(Op_Count), Place_t'length);
        v.Limit  := Pages_c - resize(unsigned(Op_Count), Place_t'length);
        v.Behind := resize(unsigned(Op_First), Place_t'length) + unsigned(Op_Count);
        if Op_Valid = '1' then
          if Op_Find = '1' and Op_Here = '1' then
            v.Start := resize(unsigned(Op_First), Place_t'length);
            seek(v.Start, '0');
          elsif Op_Find = '1' or Op_Longest = '1' then
            v.Align := 0;
            if unsigned(Op_Count) >= 2 ** RunLong_c then
              v.Align := RunLong_c;
            elsif unsigned(Op_Count) >= 2 ** RunShort_c then
              v.Align := RunShort_c;
            end if;
            v.Longest := (others => '0');
            seek((others => '0'), '1');
          else
            v.At      := resize(unsigned(Op_First), Place_t'length);
            v.Index   := wordOf(v.At);
            v.IsNew   := Op_New;
            v.IsPast  := '0';
            v.Longest := v.Limit;
            v.State   := StateMask;
          end if;
        end if;

      when StateSeek =>
        v.Bits  := (Read xor (Read'range => r.Clear)) and bitsFrom(bitOf(r.At));
        v.State := StatePick;
        if r.Index = Words_c then
          v.Bits := (others => '0');
        else
          v.Index := r.Index + 1;
        end if;

      when StatePick =>
        v.Found := or r.Bits;
        if v.Found = '1' then
          v.At := resize(to_unsigned(r.Index - 1, Place_t'length) & unsigned(lowestOf(r.Bits, RowShift_c)),
              Place_t'length);
        else
          v.At := to_unsigned(Pages_c, Place_t'length);
        end if;
        -- In a row of less than 64 pages what is set beyond them is its end too.
        if r.Bits = (r.Bits'range => '0') and r.Index /= Words_c then
          v.Bits  := Read xor (Read'range => r.Clear);
          v.Index := r.Index + 1;
        elsif r.Clear = '1' then
          v.State := StateBegin;
        else
          v.State := StateEnd;
        end if;

      when StateBegin =>
        v.Start := r.At;
        if r.Find = '1' then
          v.Start := alignedUp(r.At, r.Align);
        end if;
        v.State := StateFits;

      when StateFits =>
        if r.Found = '0' then
          v.State := StateIdle;
          if r.Find = '1' then
            relax;
          end if;
        elsif r.Find = '1' and r.Start > r.Limit then
          relax;
        else
          seek(r.Start, '0');
        end if;

      when StateEnd =>
        -- At is the row's end, or the place itself where that is in use.
        v.State := StateNext;
        if r.Find = '1' then
          if r.At >= r.Finish then
            v.Ok    := '1';
            v.State := StateIdle;
          elsif r.Here = '1' then
            v.Ok    := '0';
            v.State := StateIdle;
          elsif r.At = r.Start then
            v.At := r.Start + 1;
          end if;
        end if;

      when StateNext =>
        if r.Row > r.Longest then
          v.Longest := r.Row;
        end if;
        seek(r.At, '1');

      when StateMask =>
        v.Bits := (others => '1');
        if wordOf(r.At) = r.Index then
          v.Bits := bitsFrom(bitOf(r.At));
        end if;
        if wordOf(r.Behind) = r.Index then
          v.Bits := v.Bits and bitsBelow(bitOf(r.Behind));
        end if;
        if r.IsPast = '1' then
          v.Bits := (others => '0');
        elsif r.IsNew = '1' then
          null;
        elsif r.Take = '1' then
          v.Bits := Read or v.Bits;
        else
          v.Bits := Read and not v.Bits;
        end if;
        v.State := StateFill;

      when StateFill =>
        Write    <= '1';
        v.Index  := r.Index + 1;
        v.IsPast := r.IsPast;
        v.State  := StateMask;
        if r.Index = wordOf(r.Behind) then
          v.IsPast := '1';
          v.State  := StateMask when r.IsNew = '1' else StateIdle;
        end if;
        if r.Index = Words_c - 1 then
          v.State := StateIdle;
        end if;

    end case;

    if Rst = '1' then
      v.State := StateIdle;
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
