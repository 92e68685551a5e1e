-- Goes through the free frames of a memory, one after the other, from one of them on; at the end it begins
-- anew with the first. For a frame store, which has the words and their summaries.
--
-- One word of bits is at hand: its first free frame is shown, and may be taken in each cycle. Behind it the
-- next words that have one are looked up and read, one a cycle. A word of which something was taken is
-- written when it is left; until then nobody else may look at it, so that whoever else needs the words
-- stops this first.
--
-- What a summary says of words that were not left yet may be of before. So each word is read once on the way through
-- the memory, and the way begins anew when the last word was left.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.index_pkg.all;

entity frame_scan is
  generic (
    -- Of a frame's number.
    FrameBits_g : positive;
    -- Bits of a word, and words of a summary, as a power of two; summaries.
    WordBits_g  : positive;
    Sums_g      : positive
  );
  port (
    Clk         : in    std_logic;
    Rst         : in    std_logic;
    -- Begins with this frame, while it is stopped.
    Start       : in    std_logic;
    Start_Frame : in    unsigned(FrameBits_g - 1 downto 0);
    -- Forgets all, but what is at hand, which is written in the next cycle. Nothing is taken in this one.
    Stop        : in    std_logic;
    IsOn        : out   std_logic;
    -- Whether a summary says, while this is on, of a word from number From on that it has a free frame, or of one
    -- behind it where Past is 1; the first one.
    Sum_Index   : out   natural range 0 to Sums_g - 1;
    Sum_From    : out   natural range 0 to 2 ** WordBits_g - 1;
    Sum_Past    : out   std_logic;
    Sum_Has     : in    std_logic;
    Sum_Word    : in    natural range 0 to 2 ** WordBits_g - 1;
    -- Reads a word, which is there from the next cycle on, until the next one is read.
    Word_Read   : out   std_logic;
    Word_Index  : out   natural range 0 to Sums_g * 2 ** WordBits_g - 1;
    Word_Bits   : in    std_logic_vector(2 ** WordBits_g - 1 downto 0);
    -- The next free frame. It is taken in this cycle.
    Hand_Valid  : out   std_logic;
    Hand_Frame  : out   unsigned(FrameBits_g - 1 downto 0);
    Hand_Take   : in    std_logic;
    -- Writes a word, of which frames were taken.
    Back_Valid  : out   std_logic;
    Back_Index  : out   natural range 0 to Sums_g * 2 ** WordBits_g - 1;
    Back_Bits   : out   std_logic_vector(2 ** WordBits_g - 1 downto 0)
  );
end entity;

architecture rtl of frame_scan is

  constant PerWord_c    : positive := 2 ** WordBits_g;
  -- Enough for the number of any word.
  constant NumberBits_c : positive := 21;

  subtype Word_t is std_logic_vector(PerWord_c - 1 downto 0);

  subtype Bit_t is natural range 0 to PerWord_c - 1;

  subtype Index_t is natural range 0 to Sums_g * PerWord_c - 1;

  type Registers_t is record
    IsOn      : std_logic;
    -- The summary that is gone through, and no word of it was; that may be in the next cycle.
    Sum       : natural range 0 to Sums_g - 1;
    Begins    : std_logic;
    Load      : std_logic;
    -- It is the first one: begins with this word, and that with this bit.
    IsFirst   : std_logic;
    FromWord  : Bit_t;
    FromBit   : Bit_t;
    -- A word that is read, of the summary the last one so far; it is the first of all.
    NextValid : std_logic;
    NextIndex : Index_t;
    NextFirst : std_logic;
    -- The one that was; only of the word with the first frame are bits left out.
    ReadValid : std_logic;
    ReadIndex : Index_t;
    ReadFirst : std_logic;
    -- The word at hand as it was, its frames that may be taken, and whether there are any.
    HandValid : std_logic;
    HandSome  : std_logic;
    HandIndex : Index_t;
    HandFirst : std_logic;
    HandBits  : Word_t;
    HandLeft  : Word_t;
    BackValid : std_logic;
    BackIndex : Index_t;
    BackBits  : Word_t;
  end record;

  signal r          : Registers_t;

  signal First      : Bit_t;
  -- The word at hand is left; its free frames before the one that all begins with.
  signal Leave      : std_logic;
  signal LeftOut    : Word_t;
  -- Words go on: that which was read, and the next one. Frames of the former that may be taken.
  signal ReadGoes   : std_logic;
  signal NextGoes   : std_logic;
  signal ReadLeft   : Word_t;
  -- The summary says of a word that it has any.
  signal HasNext    : std_logic;

  -- Those of a word that may be taken.
  function takeable (word : Word_t; is_first : std_logic; from_bit : Bit_t) return Word_t is
    variable from_v : Bit_t := 0;
  begin
    if is_first = '1' then
      from_v := from_bit;
    end if;
    return behind(word, from_v);
  end function;

begin

  IsOn <= r.IsOn;

  ------------------------------------------------------------------------------------------------
  -- The word at hand
  ------------------------------------------------------------------------------------------------
  First      <= to_integer(unsigned(lowestOf(r.HandLeft, WordBits_g)));
  Hand_Valid <= r.HandSome;
  Hand_Frame <= resize(to_unsigned(r.HandIndex, NumberBits_c) & to_unsigned(First, WordBits_g), FrameBits_g);
  LeftOut    <= r.HandBits and not takeable(r.HandBits, r.HandFirst, r.FromBit);
  Leave      <= r.HandValid and (not r.HandSome or (Hand_Take and not isSeveral(r.HandLeft)));

  Back_Valid <= r.BackValid;
  Back_Index <= r.BackIndex;
  Back_Bits  <= r.BackBits;

  ------------------------------------------------------------------------------------------------
  -- The words behind it
  ------------------------------------------------------------------------------------------------
  ReadGoes   <= Leave or not r.HandValid;
  NextGoes   <= ReadGoes or not r.ReadValid;
  Word_Read  <= NextGoes;
  Word_Index <= r.NextIndex;

  ReadLeft   <= takeable(Word_Bits, r.ReadFirst, r.FromBit);

  -- The lowest of no words is the last one, behind which there is none, so a summary of nothing ends.
  Sum_Index <= r.Sum;
  Sum_From  <= r.NextIndex mod PerWord_c when r.Begins = '0' else r.FromWord when r.IsFirst = '1' else 0;
  Sum_Past  <= not r.Begins;
  HasNext   <= Sum_Has and r.IsOn and not r.Load;

  p_registers : process (Clk) is
  begin
    if rising_edge(Clk) then
      if Hand_Take = '1' then
        r.HandLeft <= without(r.HandLeft, First);
        r.HandSome <= isSeveral(r.HandLeft);
      end if;
      if ReadGoes = '1' then
        r.HandValid <= r.ReadValid;
        r.HandSome  <= r.ReadValid and isAny(ReadLeft, 6);
        r.HandIndex <= r.ReadIndex;
        r.HandFirst <= r.ReadFirst;
        r.HandBits  <= Word_Bits;
        r.HandLeft  <= ReadLeft;
      end if;
      -- Where a word is left, all others were taken.
      r.BackValid <= Leave;
      r.BackIndex <= r.HandIndex;
      r.BackBits  <= LeftOut;

      if NextGoes = '1' then
        r.ReadValid <= r.NextValid;
        r.ReadIndex <= r.NextIndex;
        r.ReadFirst <= '0';
        if r.NextFirst = '1' and r.NextIndex mod PerWord_c = r.FromWord then
          r.ReadFirst <= '1';
        end if;
      end if;

      if NextGoes = '1' or r.NextValid = '0' then
        r.NextValid <= HasNext;
        r.NextIndex <= to_integer(to_unsigned(r.Sum, NumberBits_c) & to_unsigned(Sum_Word, WordBits_g));
        r.NextFirst <= r.IsFirst;
        r.IsFirst   <= r.IsFirst and r.Load;
        r.Begins    <= r.Begins and r.Load;
      end if;

      -- The next summary; the first one only when nothing is at hand any more.
      r.Load <= '0';
      if r.IsOn = '1' and r.Load = '0' and HasNext = '0' then
        if r.Sum /= Sums_g - 1 then
          r.Sum    <= r.Sum + 1;
          r.Begins <= '1';
          r.Load   <= '1';
        elsif (r.NextValid or r.ReadValid or r.HandValid or r.BackValid) = '0' then
          r.Sum    <= 0;
          r.Begins <= '1';
          r.Load   <= '1';
        end if;
      end if;

      if Start = '1' then
        r.IsOn     <= '1';
        r.Load     <= '1';
        r.IsFirst  <= '1';
        r.Begins   <= '1';
        r.Sum      <= to_integer(shift_right(Start_Frame, 2 * WordBits_g));
        r.FromWord <= to_integer(shift_right(Start_Frame, WordBits_g)) mod PerWord_c;
        r.FromBit  <= to_integer(Start_Frame) mod PerWord_c;
      end if;
      if Stop = '1' then
        r.BackBits <= LeftOut or r.HandLeft;
      end if;
      if Stop = '1' or Rst = '1' then
        r.IsOn      <= '0';
        r.Load      <= '0';
        r.NextValid <= '0';
        r.ReadValid <= '0';
        r.HandValid <= '0';
        r.HandSome  <= '0';
        r.BackValid <= r.HandValid and not Rst;
      end if;
    end if;
  end process;

end architecture;
