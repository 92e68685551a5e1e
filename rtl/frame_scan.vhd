-- Goes through the free frames of a memory, one after the other, from one of them on; at the end it begins
-- anew with the first. For a frame store, which has the words and their summaries.
--
-- One word of bits is at hand: its first free frame is shown, and may be taken in each cycle. Behind it the
-- next words that have one are looked up and read, one a cycle. A word of which something was taken is
-- written when it is left; until then nobody else may look at it, so that whoever else needs the words
-- stops this first.
--
-- A summary is read once, and what it says of words that were not left yet may be of before. So each word
-- is read once on the way through the memory, and the way begins anew when the last word was left.

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
    -- Reads what a summary says of its words in this cycle: whether they have a free frame.
    Sum_Read    : out   std_logic;
    Sum_Index   : out   natural range 0 to Sums_g - 1;
    Sum_Any     : in    std_logic_vector(2 ** WordBits_g - 1 downto 0);
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
    -- The summary that is gone through: it is to be read; its words that are to be read.
    Sum       : natural range 0 to Sums_g - 1;
    Load      : std_logic;
    Words     : Word_t;
    -- It is the first one: begins with this word, and that with this bit.
    IsFirst   : std_logic;
    FromWord  : Bit_t;
    FromBit   : Bit_t;
    -- A word that is read; the bit that it begins with.
    NextValid : std_logic;
    NextIndex : Index_t;
    NextFrom  : Bit_t;
    -- The one that was.
    ReadValid : std_logic;
    ReadIndex : Index_t;
    ReadFrom  : Bit_t;
    -- The word at hand, its frames that may be taken, and whether there are any.
    HandValid : std_logic;
    HandSome  : std_logic;
    HandIndex : Index_t;
    HandBits  : Word_t;
    HandLeft  : Word_t;
    BackValid : std_logic;
    BackIndex : Index_t;
    BackBits  : Word_t;
  end record;

  signal r          : Registers_t;

  signal First      : Bit_t;
  -- The word at hand is left; without the frame that is taken.
  signal Leave      : std_logic;
  signal TakenBits  : Word_t;
  signal TakenLeft  : Word_t;
  -- Words go on: that which was read, and the next one.
  signal ReadGoes   : std_logic;
  signal NextGoes   : std_logic;
  signal IsRead     : std_logic;

begin

  IsOn <= r.IsOn;

  ------------------------------------------------------------------------------------------------
  -- The word at hand
  ------------------------------------------------------------------------------------------------
  First      <= to_integer(unsigned(lowestOf(r.HandLeft, WordBits_g)));
  Hand_Valid <= r.HandSome;
  Hand_Frame <= resize(to_unsigned(r.HandIndex, NumberBits_c) & to_unsigned(First, WordBits_g), FrameBits_g);
  Leave      <= r.HandValid and (not r.HandSome or (Hand_Take and not isSeveral(r.HandLeft)));

  p_taken : process (all) is
  begin
    TakenBits <= r.HandBits;
    TakenLeft <= r.HandLeft;
    for i in Word_t'range loop
      if Hand_Take = '1' and First = i then
        TakenBits(i) <= '0';
        TakenLeft(i) <= '0';
      end if;
    end loop;
  end process;

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

  -- The summary is read when no word is written, as that changes one.
  Sum_Index <= r.Sum;
  IsRead    <= r.Load and not r.BackValid;
  Sum_Read  <= IsRead;

  p_registers : process (Clk) is
    variable word_v : Bit_t;
  begin
    if rising_edge(Clk) then
      r.HandBits <= TakenBits;
      r.HandLeft <= TakenLeft;
      if Hand_Take = '1' then
        r.HandSome <= isSeveral(r.HandLeft);
      end if;
      if ReadGoes = '1' then
        r.HandValid <= r.ReadValid;
        r.HandSome  <= r.ReadValid and isAny(behind(Word_Bits, r.ReadFrom), 6);
        r.HandIndex <= r.ReadIndex;
        r.HandBits  <= Word_Bits;
        r.HandLeft  <= behind(Word_Bits, r.ReadFrom);
      end if;
      r.BackValid <= Leave;
      r.BackIndex <= r.HandIndex;
      r.BackBits  <= TakenBits;

      if NextGoes = '1' then
        r.ReadValid <= r.NextValid;
        r.ReadIndex <= r.NextIndex;
        r.ReadFrom  <= r.NextFrom;
      end if;

      if NextGoes = '1' or r.NextValid = '0' then
        word_v := to_integer(unsigned(lowestOf(r.Words, WordBits_g)));
        r.NextValid <= isAny(r.Words, 6);
        r.NextIndex <= to_integer(to_unsigned(r.Sum, NumberBits_c) & to_unsigned(word_v, WordBits_g));
        r.NextFrom  <= 0;
        if r.IsFirst = '1' and word_v = r.FromWord then
          r.NextFrom <= r.FromBit;
        end if;
        r.IsFirst <= r.IsFirst and r.Load;
        for i in Word_t'range loop
          if i = word_v then
            r.Words(i) <= '0';
          end if;
        end loop;
      end if;

      -- The next summary; the first one only when nothing is at hand any more.
      if r.IsOn = '1' and r.Load = '0' and isAny(r.Words, 6) = '0' then
        if r.Sum /= Sums_g - 1 then
          r.Sum  <= r.Sum + 1;
          r.Load <= '1';
        elsif (r.NextValid or r.ReadValid or r.HandValid or r.BackValid) = '0' then
          r.Sum  <= 0;
          r.Load <= '1';
        end if;
      end if;
      if IsRead = '1' then
        r.Load  <= '0';
        r.Words <= Sum_Any;
        if r.IsFirst = '1' then
          r.Words <= behind(Sum_Any, r.FromWord);
        end if;
      end if;

      if Start = '1' then
        r.IsOn     <= '1';
        r.Load     <= '1';
        r.IsFirst  <= '1';
        r.Sum      <= to_integer(shift_right(Start_Frame, 2 * WordBits_g));
        r.FromWord <= to_integer(shift_right(Start_Frame, WordBits_g)) mod PerWord_c;
        r.FromBit  <= to_integer(Start_Frame) mod PerWord_c;
      end if;
      if Stop = '1' or Rst = '1' then
        r.IsOn      <= '0';
        r.Load      <= '0';
        r.Words     <= (others => '0');
        r.NextValid <= '0';
        r.ReadValid <= '0';
        r.HandValid <= '0';
        r.HandSome  <= '0';
        r.BackValid <= r.HandValid and not Rst;
      end if;
    end if;
  end process;

end architecture;
