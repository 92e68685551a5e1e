-- The tables of the driver's space above the leaf level: which table of the leaf level has the words of a page, or
-- which run the page is of (docs/card-interface.md, section 8, Translation tables).
--
-- What was found is held, of several aligned runs of pages that a table has words of, until there is a drop. A page of
-- which nothing is held is walked for from the root word down, a read each level; a walk under way at a drop begins
-- again, so that what is known in a cycle was read after every drop of cycles before. What is wrong with a page is told
-- for one look, and not held.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.window_pkg.all;

entity space_directory is
  generic (
    PhysBits_g  : positive := 40;
    -- Bytes of a page, and so of a table, as a power of two.
    PageBits_g  : positive := 12;
    -- Pages of the space, as a power of two.
    SpaceBits_g : positive := 32;
    DataBits_g  : positive := 512;
    -- Tables and runs that are held, as a power of two.
    HeldBits_g  : positive := 4;
    -- Words of a table, as a power of two; only proofs have another.
    StepBits_g  : positive := SpaceStep_c
  );
  port (
    Clk         : in    std_logic;
    Rst         : in    std_logic;
    -- The root word, and the number of the space's first page.
    Root        : in    std_logic_vector(WordBits_c - 1 downto 0);
    First       : in    std_logic_vector(LevelsMax_c * StepBits_g - 1 downto 0);
    -- Somebody waits for this page: its table's or run's entry, if it is known in this cycle; it is used in it.
    Look_Valid  : in    std_logic;
    Look_Page   : in    std_logic_vector(SpaceBits_g - 1 downto 0);
    Look_Known  : out   std_logic;
    Look_Entry  : out   Entry_t;
    Look_Done   : in    std_logic;
    -- Reads of one beat, one at a time
    Read_Valid  : out   std_logic;
    Read_Ready  : in    std_logic;
    Read_Addr   : out   std_logic_vector(PhysBits_g - 1 downto 0);
    Come_Valid  : in    std_logic;
    Come_Failed : in    std_logic;
    Come_Data   : in    std_logic_vector(DataBits_g - 1 downto 0);
    -- For one cycle: pages are invalidated, no matter which.
    Drop        : in    std_logic
  );
end entity;

architecture rtl of space_directory is

  constant FrameBits_c  : positive := PhysBits_g - PageBits_g;
  constant TableBits_c  : positive := PhysBits_g - StepBits_g - WordShift_c;
  constant NumberBits_c : positive := LevelsMax_c * StepBits_g;
  constant Words_c      : positive := DataBits_g / WordBits_c;
  constant LineBits_c   : natural  := exponent(Words_c);
  constant TagBits_c    : positive := SpaceBits_g - StepBits_g - HeldBits_g;
  constant KeptBits_c   : positive := AspectBits_c + maximum(FrameBits_c, TableBits_c);

  subtype Step_t is std_logic_vector(StepBits_g - 1 downto 0);

  subtype Flags_t is std_logic_vector(2 ** HeldBits_g - 1 downto 0);

  -- Of a beat. Two at least: tools stumble over an index that has no bits.
  type Words_t is array (0 to maximum(Words_c, 2) - 1) of std_logic_vector(WordBits_c - 1 downto 0);

  -- With their tags.
  type Held_t is array (0 to 2 ** HeldBits_g - 1) of std_logic_vector(TagBits_c + KeptBits_c - 1 downto 0);

  -- A level is looked at, its word is on its way, the walk has ended.
  type State_t is (Idle, Level, Asked, Ended);

  signal State   : State_t;
  -- The page's number from this level on down; levels from this one on, and those that the root word has.
  signal Rest    : std_logic_vector(NumberBits_c - 1 downto 0);
  signal Left    : natural range 1 to LevelsMax_c;
  signal Levels  : natural range 0 to LevelsMax_c + 1;
  -- The table of this level; then what the walk has found.
  signal Result  : Entry_t;
  -- Pages were invalidated since the walk began.
  signal IsStale : std_logic;
  -- There is no table to be read.
  signal IsOver  : std_logic;

  signal Held    : Held_t;
  signal IsHeld  : Flags_t;
  signal Failed  : std_logic;
  -- What was found is kept, if it is no fault.
  signal Keeps   : std_logic;
  signal Index   : natural range 0 to 2 ** HeldBits_g - 1;
  signal Tag     : std_logic_vector(TagBits_c - 1 downto 0);
  signal Kept    : std_logic_vector(TagBits_c + KeptBits_c - 1 downto 0);
  signal IsKnown : std_logic;
  signal Step    : Step_t;
  signal Word    : std_logic_vector(WordBits_c - 1 downto 0);

begin

  assert SpaceBits_g > StepBits_g + HeldBits_g and SpaceBits_g <= NumberBits_c
    report "space_directory: the space has more pages than the tables that are held, and words for all"
    severity failure;
  assert 2 ** StepBits_g * WordBits_c / 8 = 2 ** PageBits_g or StepBits_g /= SpaceStep_c
    report "space_directory: a table is a page" severity failure;

  ------------------------------------------------------------------------------------------------
  -- What is held
  ------------------------------------------------------------------------------------------------
  Index      <= to_integer(unsigned(Look_Page(StepBits_g + HeldBits_g - 1 downto StepBits_g)));
  Tag        <= Look_Page(SpaceBits_g - 1 downto StepBits_g + HeldBits_g);
  Kept       <= Held(Index);
  IsKnown    <= IsHeld(Index) when Kept(Kept'high downto KeptBits_c) = Tag else '0';
  Look_Known <= IsKnown or Failed;
  Look_Entry <= Result when Failed = '1' else toEntry(Kept(KeptBits_c - 1 downto 0), KeptBits_c - AspectBits_c);

  Keeps      <= '1' when State = Ended and Result.Status = StatusOk_c else '0';

  p_held : process (Clk) is
  begin
    if rising_edge(Clk) then
      if Keeps = '1' then
        Held(Index) <= Tag & toVector(Result, KeptBits_c - AspectBits_c);
      end if;
    end if;
  end process;

  ------------------------------------------------------------------------------------------------
  -- A walk, a level at a time
  ------------------------------------------------------------------------------------------------
  Step       <= Rest(NumberBits_c - 1 downto NumberBits_c - StepBits_g);
  IsOver     <= '1' when Result.Status /= StatusOk_c or Left = 1 else '0';
  Read_Valid <= not IsOver when State = Level and Left <= Levels else '0';

  p_address : process (all) is
  begin
    Read_Addr <= (others => '0');
    Read_Addr(PhysBits_g - 1 downto StepBits_g + WordShift_c) <=
      Result.Number(TableBits_c - 1 downto 0);
    Read_Addr(StepBits_g + WordShift_c - 1 downto WordShift_c) <= Step;
    Read_Addr(LineBits_c + WordShift_c - 1 downto 0) <= (others => '0');
  end process;

  p_word : process (all) is
    variable words_v : Words_t;
  begin
    for i in words_v'range loop
      words_v(i) := Come_Data((i mod Words_c + 1) * WordBits_c - 1 downto (i mod Words_c) * WordBits_c);
    end loop;
    Word <= words_v(to_integer(unsigned(Step)) mod Words_t'length);
  end process;

  p_walk : process (Clk) is
    variable e_v : Entry_t;
  begin
    if rising_edge(Clk) then
      if Look_Done = '1' then
        Failed <= '0';
      end if;
      case State is
        when Idle =>
          -- What is wrong with a page is kept until that was told.
          if Look_Valid = '1' and IsKnown = '0' and Failed = '0' then
            Rest <= First;
            Rest(SpaceBits_g - 1 downto 0) <= Look_Page;
            Left    <= LevelsMax_c;
            Levels  <= to_integer(unsigned(Root(RootLevelsHigh_c downto RootLevelsLow_c)));
            Result  <= spaceRoot(Root, TableBits_c);
            IsStale <= '0';
            State   <= Level;
          end if;
        when Level =>
          if IsOver = '1' then
            State <= Ended;
          elsif Left > Levels then
            -- No table is for so high a number.
            if unsigned(Step) /= 0 then
              Result.Status <= StatusNotMapped_c;
            end if;
            Rest <= Rest(NumberBits_c - StepBits_g - 1 downto 0) & Step;
            Left <= Left - 1;
          elsif Read_Ready = '1' then
            State <= Asked;
          end if;
        when Asked =>
          if Come_Valid = '1' then
            e_v := spaceDirectory(Word, Come_Failed = '1', FrameBits_c, TableBits_c, StepBits_g, Left = 2);
            Result <= e_v;
            Rest   <= Rest(NumberBits_c - StepBits_g - 1 downto 0) & Step;
            Left   <= Left - 1;
            State  <= Level;
            if e_v.IsTable = '0' then
              State <= Ended;
            end if;
          end if;
        when Ended =>
          State <= Idle;
          if Keeps = '1' then
            IsHeld(Index) <= not IsStale;
          else
            Failed <= not IsStale;
          end if;
      end case;
      if Drop = '1' then
        IsHeld  <= (others => '0');
        Failed  <= '0';
        IsStale <= '1';
      end if;
      if Rst = '1' then
        State  <= Idle;
        IsHeld <= (others => '0');
        Failed <= '0';
      end if;
    end if;
  end process;

end architecture;
