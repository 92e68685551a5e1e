-- The lines of tables that a walker reads: which are held or on their way, and what they say.
--
-- A line is what one read brings. Lines have their places in a ring: the next one to be read takes the
-- place of the oldest, as soon as that has come and nobody waits for its words any more. Lines come in
-- the order in which they were asked for. In each cycle one line is looked for, by its tag; it may be
-- used, or asked for, in the same cycle.
--
-- A line is known from the cycle after it was asked for until it is dropped: all are by Drop, one by a
-- word that is a fault, one that could not be read when that is known. What is dropped still serves
-- those who wait for it, and nobody else.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.index_pkg.all;
  use work.window_pkg.all;

entity line_store is
  generic (
    -- Lines.
    Lines_g : positive;
    -- Words of a line.
    Words_g : positive;
    TagBits_g : positive;
    -- Of a word as it is kept.
    WordBits_g : positive;
    -- Places of the queue of those who wait.
    Users_g : positive
  );
  port (
    Clk         : in    std_logic;
    Rst         : in    std_logic;
    -- The line with this tag is known, at this place.
    Look_Tag    : in    std_logic_vector(TagBits_g - 1 downto 0);
    Look_Found  : out   std_logic;
    Look_Place  : out   natural range 0 to Lines_g - 1;
    -- Asks for the line with this tag; only if the next place is free.
    Next_Free   : out   std_logic;
    Next_Place  : out   natural range 0 to Lines_g - 1;
    Fetch       : in    std_logic;
    -- User number User waits for the line at this place.
    Use_Valid   : in    std_logic;
    Use_Place   : in    natural range 0 to Lines_g - 1;
    Use_User    : in    natural range 0 to Users_g - 1;
    -- The line that was asked for first has come.
    Come_Valid  : in    std_logic;
    Come_Failed : in    std_logic;
    Come_Words  : in    std_logic_vector(Words_g * WordBits_g - 1 downto 0);
    -- What the line at this place says, if it has come.
    Read_Place  : in    natural range 0 to Lines_g - 1;
    Read_Ready  : out   std_logic;
    Read_Words  : out   std_logic_vector(Words_g * WordBits_g - 1 downto 0);
    -- User number User has read it; its word was a fault.
    Read_Done   : in    std_logic;
    Read_User   : in    natural range 0 to Users_g - 1;
    Read_Fault  : in    std_logic;
    -- All lines are dropped, also one that is asked for in this cycle.
    Drop        : in    std_logic
  );
end entity;

architecture rtl of line_store is

  -- Two at least: tools stumble over an index that has no bits.
  function places return positive is
  begin
    if Lines_g = 1 then
      return 2;
    end if;
    return Lines_g;
  end function;

  subtype Place_t is natural range 0 to Lines_g - 1;

  subtype Flags_t is std_logic_vector(Lines_g - 1 downto 0);

  type Tags_t is array (0 to Lines_g - 1) of std_logic_vector(TagBits_g - 1 downto 0);

  type Words_t is array (0 to places - 1) of std_logic_vector(Words_g * WordBits_g - 1 downto 0);

  type Users_t is array (0 to places - 1) of natural range 0 to Users_g - 1;

  signal Tags    : Tags_t;
  signal Words   : Words_t;
  -- Who asked for a line last.
  signal Users   : Users_t;
  signal Known   : Flags_t;
  -- On its way.
  signal Pending : Flags_t;
  -- Somebody waits for its words.
  signal Busy    : Flags_t;
  signal Matching : Flags_t;
  signal NextOne : Place_t;
  signal Coming  : Place_t;

begin

  p_match : process (all) is
  begin
    for i in Matching'range loop
      Matching(i) <= Known(i) and not isAny(Tags(i) xor Look_Tag, 3);
    end loop;
  end process;

  -- One at most matches: a line that is known is not asked for again.
  Look_Place <= to_integer(unsigned(indexOf(Matching, bitsOf(Lines_g))));

  Look_Found <= isAny(Matching, 6);
  Next_Free  <= not Pending(NextOne) and not Busy(NextOne);
  Next_Place <= NextOne;
  Read_Ready <= not Pending(Read_Place);
  Read_Words <= Words(Read_Place);

  p_words : process (Clk) is
  begin
    if rising_edge(Clk) then
      if Come_Valid = '1' then
        Words(Coming) <= Come_Words;
      end if;
    end if;
  end process;

  p_users : process (Clk) is
  begin
    if rising_edge(Clk) then
      if Use_Valid = '1' then
        Users(Use_Place) <= Use_User;
      end if;
    end if;
  end process;

  p_flags : process (Clk) is
  begin
    if rising_edge(Clk) then
      if Come_Valid = '1' then
        Pending(Coming) <= '0';
        Coming          <= following(Coming, Lines_g);
        if Come_Failed = '1' then
          Known(Coming) <= '0';
        end if;
      end if;
      if Read_Done = '1' then
        if Users(Read_Place) = Read_User then
          Busy(Read_Place) <= '0';
        end if;
        if Read_Fault = '1' then
          Known(Read_Place) <= '0';
        end if;
      end if;
      if Fetch = '1' then
        Tags(NextOne)    <= Look_Tag;
        Known(NextOne)   <= '1';
        Pending(NextOne) <= '1';
        NextOne          <= following(NextOne, Lines_g);
      end if;
      if Use_Valid = '1' then
        Busy(Use_Place) <= '1';
      end if;
      if Drop = '1' then
        Known <= (others => '0');
      end if;
      if Rst = '1' then
        Known   <= (others => '0');
        Pending <= (others => '0');
        Busy    <= (others => '0');
        NextOne <= 0;
        Coming  <= 0;
      end if;
    end if;
  end process;

end architecture;
