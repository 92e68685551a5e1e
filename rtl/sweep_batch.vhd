-- Sweeps some words of a table: they are read, those that are not 0 are written with 0, and when that is
-- visible the frames of their pages come back.
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
    Batch_g     : positive
  );
  port (
    Clk         : in    std_logic;
    Rst         : in    std_logic;
    -- From this word on so many, one at least; both stand until it is done.
    Start       : in    std_logic;
    First       : in    std_logic_vector(LeafBits_g - 1 downto 0);
    Words       : in    std_logic_vector(LeafBits_g downto 0);
    -- For one cycle, the last one: it has ended; a read or a write has failed, and not all is swept.
    Done        : out   std_logic;
    Failed      : out   std_logic;
    -- Words of the table
    Read_Valid  : out   std_logic;
    Read_Ready  : in    std_logic;
    Write_Valid : out   std_logic;
    Write_Ready : in    std_logic;
    Within      : out   std_logic_vector(LeafBits_g - 1 downto 0);
    Quiet       : in    std_logic;
    Write_Failed : in    std_logic;
    Data_Valid  : in    std_logic;
    Data        : in    std_logic_vector(WordBits_c - 1 downto 0);
    Data_Failed : in    std_logic;
    -- Frames come back
    Frame_Valid : out   std_logic;
    Frame_Ready : in    std_logic;
    Frame_First : out   std_logic_vector(FrameBits_g - 1 downto 0);
    Given_Valid : in    std_logic
  );
end entity;

architecture rtl of sweep_batch is

  type State_t is (StateIdle, StateRead, StateZero, StateZeroed, StateGive, StateGiven);

  -- Of a word: it was not 0, it had a frame, and which.
  subtype Kept_t is std_logic_vector(FrameBits_g + 1 downto 0);

  type Batch_t is array (0 to Batch_g - 1) of Kept_t;

  subtype Count_t is unsigned(LeafBits_g downto 0);

  signal State     : State_t;
  signal Batch     : Batch_t;
  -- Words that were asked for, and words that came, were zeroed, or whose frames came back; the next one.
  signal Asked     : Count_t;
  signal Got       : Count_t;
  signal NextGot   : Count_t;
  signal Word      : Kept_t;
  signal HasFailed : std_logic;
  signal IsAll     : std_logic;
  signal IsZero    : std_logic;
  signal Holds     : std_logic;

  function kept (read_word : TableWord_t) return Kept_t is
    variable kept_v : Kept_t;
  begin
    kept_v := (or read_word) & '0' & read_word(NumberLow_c + FrameBits_g - 1 downto NumberLow_c);
    if hasFrame(read_word) then
      kept_v(FrameBits_g) := '1';
    end if;
    return kept_v;
  end function;

begin

  assert Batch_g <= 2 ** LeafBits_g
    report "sweep_batch: more words than a table has" severity failure;

  IsZero   <= not Word(FrameBits_g + 1);
  Holds    <= Word(FrameBits_g);
  IsAll    <= '1' when Got = unsigned(Words) else '0';

  Read_Valid  <= '1' when State = StateRead and Asked /= unsigned(Words) else '0';
  Write_Valid <= '1' when State = StateZero and IsZero = '0' else '0';
  Within      <= std_logic_vector(unsigned(First) + Asked(LeafBits_g - 1 downto 0)) when State = StateRead else
                 std_logic_vector(unsigned(First) + Got(LeafBits_g - 1 downto 0));
  Frame_Valid <= '1' when State = StateGive and Holds = '1' and IsAll = '0' else '0';
  Frame_First <= Word(FrameBits_g - 1 downto 0);

  Failed <= '1' when (State = StateRead and HasFailed = '1') or (State = StateZeroed and Write_Failed = '1') else '0';
  Done   <= '1' when IsAll = '1' and (State = StateGive or (State = StateRead and HasFailed = '1')) else
            Quiet and Write_Failed when State = StateZeroed else '0';

  p_batch : process (Clk) is
  begin
    if rising_edge(Clk) then
      if State = StateRead and Data_Valid = '1' then
        Batch(to_integer(Got) mod Batch_g) <= kept(Data);
      end if;
      Word <= Batch(to_integer(NextGot) mod Batch_g);
    end if;
  end process;

  p_got : process (all) is
  begin
    NextGot <= Got;
    case State is
      when StateIdle | StateZeroed =>
        NextGot <= (others => '0');
      when StateRead =>
        if IsAll = '1' then
          NextGot <= (others => '0');
        elsif Data_Valid = '1' then
          NextGot <= Got + 1;
        end if;
      when StateZero =>
        if Write_Ready = '1' or IsZero = '1' then
          NextGot <= Got + 1;
        end if;
      when StateGive =>
        if IsAll = '0' and Holds = '0' then
          NextGot <= Got + 1;
        end if;
      when StateGiven =>
        if Given_Valid = '1' then
          NextGot <= Got + 1;
        end if;
    end case;
  end process;

  p_sweep : process (Clk) is
  begin
    if rising_edge(Clk) then
      Got <= NextGot;
      case State is

        when StateIdle =>
          Asked     <= (others => '0');
          HasFailed <= '0';
          if Start = '1' then
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
            State <= StateZero;
            if HasFailed = '1' then
              State <= StateIdle;
            end if;
          end if;

        when StateZero =>
          if NextGot = unsigned(Words) then
            State <= StateZeroed;
          end if;

        when StateZeroed =>
          if Quiet = '1' then
            State <= StateGive;
            if Write_Failed = '1' then
              State <= StateIdle;
            end if;
          end if;

        when StateGive =>
          if IsAll = '1' then
            State <= StateIdle;
          elsif Holds = '1' and Frame_Ready = '1' then
            State <= StateGiven;
          end if;

        when StateGiven =>
          if Given_Valid = '1' then
            State <= StateGive;
          end if;

      end case;
      if Rst = '1' then
        State <= StateIdle;
      end if;
    end if;
  end process;

end architecture;
