-- A row of bits of which the first one that is set is looked for, a word of 64 a cycle; or the first of so many that
-- are, one behind the other: a cycle for a word whose bits are alike, else one for each of its bits.
--
-- The words before the one that may have the first are remembered to have none, so a search seldom looks at
-- many. An operation is taken in a cycle in which Op_Valid and Op_Ready are 1; what came of it stands from
-- the next cycle with Op_Ready on. After a reset all bits are written.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.bit_pkg.all;
  use work.index_pkg.all;

entity bit_row is
  generic (
    IndexBits_g : positive;
    -- Bits of the row; at most 2**IndexBits_g.
    Count_g     : positive;
    -- What they are after a reset.
    Initial_g   : std_logic;
    -- Rows of bits are looked for, too.
    Rows_g      : boolean := false
  );
  port (
    Clk      : in    std_logic;
    Rst      : in    std_logic;
    Op_Valid : in    std_logic;
    Op_Ready : out   std_logic;
    -- Bit Index becomes Value, or the first one that is 1 is looked for, where Op_More behind it are 1 too; with
    -- Op_Here only at Index.
    Op_Find  : in    std_logic;
    Op_Here  : in    std_logic;
    Op_More  : in    std_logic_vector(IndexBits_g - 1 downto 0);
    Op_Index : in    std_logic_vector(IndexBits_g - 1 downto 0);
    Op_Value : in    std_logic;
    -- Whether there is one, and which.
    Ok       : out   std_logic;
    Found    : out   std_logic_vector(IndexBits_g - 1 downto 0)
  );
end entity;

architecture rtl of bit_row is

  constant Words_c : positive := (Count_g + RowBits_c - 1) / RowBits_c;

  -- Two at least: tools stumble over an index that has no bits.
  constant Last_c : positive := maximum(Words_c, 2) - 1;

  type Words_t is array (0 to Last_c) of RowWord_t;

  type State_t is (StateClear, StateIdle, StateRead, StateWrite, StateLook, StatePick, StateRow);

  -- A number of bits, up to all of them.
  subtype Count_t is unsigned(IndexBits_g downto 0);

  -- A word of the beginning.
  function initial (index : natural) return RowWord_t is
    variable word_v : RowWord_t := (others => '0');
  begin
    for i in word_v'range loop
      if index * RowBits_c + i < Count_g then
        word_v(i) := Initial_g;
      end if;
    end loop;
    return word_v;
  end function;

  signal State : State_t;
  signal Words : Words_t;
  -- The word that is read; while a search goes on, the one behind that in Word.
  signal At    : natural range 0 to Last_c + 1;
  -- No word before this one has a bit that is set.
  signal Lower : natural range 0 to Last_c;
  signal Word  : RowWord_t;
  signal Index : unsigned(IndexBits_g - 1 downto 0);
  signal Value : std_logic;
  signal Read  : RowWord_t;
  signal Write : std_logic;
  signal Wrote : RowWord_t;
  -- Of a row that is looked for: the bits that have to be set, and those that were, up to Index. The bit at Index is
  -- the lowest one of Word, of which so many are left; all 64 are there, and alike.
  signal Need  : Count_t;
  -- It is looked for at one place, before which there are so many bits in the word.
  signal Here  : std_logic;
  signal Skip  : unsigned(RowShift_c - 1 downto 0);
  signal Have  : Count_t;
  signal Left  : unsigned(RowShift_c downto 0);
  signal Alike : std_logic;
  signal Long  : std_logic;

begin

  assert Count_g <= 2 ** IndexBits_g
    report "bit_row: more bits than indices" severity failure;

  Op_Ready <= '1' when State = StateIdle else '0';
  Found    <= std_logic_vector(Index);

  Read <= Words(minimum(At, Last_c));

  Long  <= '1' when Have >= Need else '0';
  Alike <= '1' when Left = RowBits_c and Skip = 0 and ((and Word) = '1' or (or Word) = '0') else '0';

  Write <= '1' when State = StateClear or State = StateWrite else '0';
  Wrote <= initial(At) when State = StateClear else Word;

  p_words : process (Clk) is
  begin
    if rising_edge(Clk) then
      if Write = '1' then
        Words(minimum(At, Last_c)) <= Wrote;
      end if;
    end if;
  end process;

  p_state : process (Clk) is
  begin
    if rising_edge(Clk) then

      case State is

        when StateClear =>
          if At = Last_c then
            State <= StateIdle;
          else
            At <= At + 1;
          end if;

        when StateIdle =>
          if Op_Valid = '1' then
            Index <= unsigned(Op_Index);
            Value <= Op_Value;
            Need  <= ('0' & unsigned(Op_More)) + 1;
            Have  <= (others => '0');
            Here  <= Op_Here;
            Skip  <= (others => '0');
            if Op_Find = '1' and Op_Here = '1' then
              Skip  <= resize(unsigned(Op_Index), RowShift_c);
              At    <= to_integer(shift_right(unsigned(Op_Index), RowShift_c));
              State <= StateLook;
            elsif Op_Find = '1' then
              At    <= Lower;
              State <= StateLook;
            else
              At    <= to_integer(shift_right(unsigned(Op_Index), RowShift_c));
              State <= StateRead;
            end if;
          end if;

        when StateRead =>
          Word  <= Read;
          Word(to_integer(Index) mod RowBits_c) <= Value;
          State <= StateWrite;

        when StateWrite =>
          if Value = '1' and At < Lower then
            Lower <= At;
          end if;
          State <= StateIdle;

        when StateLook =>
          Word  <= Read;
          At    <= At + 1;
          Left  <= to_unsigned(RowBits_c, RowShift_c + 1);
          Index <= resize(shift_left(to_unsigned(At, 32), RowShift_c), IndexBits_g);
          State <= StatePick;
          if Rows_g and (Need /= 1 or Here = '1') then
            State <= StateRow;
          end if;

        when StatePick =>
          Ok <= or Word;
          if (or Word) = '1' then
            Index <= resize(to_unsigned(At - 1, 32) & unsigned(lowestOf(Word, RowShift_c)), IndexBits_g);
            State <= StateIdle;
          elsif At > Last_c then
            State <= StateIdle;
          else
            Lower <= At;
            Word  <= Read;
            At    <= At + 1;
          end if;

        when StateRow =>
          -- Index is that of the first bit of the row when it is long enough.
          Ok <= Long;
          if not Rows_g or Long = '1' then
            Index <= Index - Have(IndexBits_g - 1 downto 0);
            State <= StateIdle;
          elsif Left = 0 and At > Last_c then
            State <= StateIdle;
          elsif Left = 0 then
            Left <= to_unsigned(RowBits_c, RowShift_c + 1);
            Word <= Read;
            At   <= At + 1;
          elsif Here = '1' and Skip = 0 and Word(0) = '0' then
            State <= StateIdle;
          else
            Word  <= '0' & Word(Word'high downto 1);
            Left  <= Left - 1;
            Index <= Index + 1;
            Have  <= Have + 1;
            if Skip /= 0 then
              Skip <= Skip - 1;
              Have <= (others => '0');
            end if;
            if Alike = '1' then
              Left  <= (others => '0');
              Index <= Index + RowBits_c;
              Have  <= Have + RowBits_c;
            end if;
            if Word(0) = '0' then
              Have <= (others => '0');
            end if;
          end if;

      end case;

      if Rst = '1' then
        State <= StateClear;
        At    <= 0;
        Lower <= 0;
        Ok    <= '0';
      end if;
    end if;
  end process;

end architecture;
