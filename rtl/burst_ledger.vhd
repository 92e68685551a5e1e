-- The bursts that went to memories and have not ended, by id: whether there is any of an id, and when all of before
-- have ended, in whatever order memories answer.
--
-- Of each id it is counted how many have begun and how many have ended, modulo a power of two. A drain counts out what
-- is under way of one id after the other, and ends at once when nothing is under way at all.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.window_pkg.all;

entity burst_ledger is
  generic (
    -- Of a burst.
    IdBits_g : positive := 6;
    -- Bursts under way, at most.
    Bursts_g : positive := 64
  );
  port (
    Clk         : in    std_logic;
    Rst         : in    std_logic;
    -- A burst of this id begins, if there is room; no burst of it is under way.
    Begin_Room  : out   std_logic;
    Begin_Valid : in    std_logic;
    Begin_Id    : in    std_logic_vector(IdBits_g - 1 downto 0);
    Begin_Quiet : out   std_logic;
    -- One that has begun ends.
    End_Valid   : in    std_logic;
    End_Id      : in    std_logic_vector(IdBits_g - 1 downto 0);
    -- For one cycle each: those that have begun up to this cycle are waited for, and have ended. One at a time.
    Drain       : in    std_logic;
    Drained     : out   std_logic
  );
end entity;

architecture rtl of burst_ledger is

  constant Ids_c : positive := 2 ** IdBits_g;

  subtype Id_t is unsigned(IdBits_g - 1 downto 0);

  subtype Count_t is unsigned(bitsOf(Bursts_g + 1) - 1 downto 0);

  type Counts_t is array (0 to Ids_c - 1) of Count_t;

  signal Begun    : Counts_t;
  signal Ended    : Counts_t;
  -- After a reset the counts are cleared, one a cycle.
  signal Clearing : std_logic;
  signal Place    : Id_t;
  signal UnderWay : natural range 0 to Bursts_g;
  -- What is waited for: of the id Place, so many.
  signal Draining : std_logic;
  signal Counting : std_logic;
  signal Left     : Count_t;
  -- There are fewer under way than there may be.
  signal HasRoom  : std_logic;

  signal WritesBegun : std_logic;
  signal BegunAt     : Id_t;
  signal BegunIs     : Count_t;
  signal WritesEnded : std_logic;
  signal EndedAt     : Id_t;
  signal EndedIs     : Count_t;

begin

  Begin_Room  <= HasRoom;

  Begin_Quiet <= '1' when Clearing = '0'
                 and Begun(to_integer(unsigned(Begin_Id))) = Ended(to_integer(unsigned(Begin_Id))) else '0';

  WritesBegun <= Begin_Valid or Clearing;
  BegunAt     <= Place when Clearing = '1' else unsigned(Begin_Id);
  BegunIs     <= (others => '0') when Clearing = '1' else Begun(to_integer(unsigned(Begin_Id))) + 1;
  WritesEnded <= End_Valid or Clearing;
  EndedAt     <= Place when Clearing = '1' else unsigned(End_Id);
  EndedIs     <= (others => '0') when Clearing = '1' else Ended(to_integer(unsigned(End_Id))) + 1;

  p_counts : process (Clk) is
  begin
    if rising_edge(Clk) then
      if WritesBegun = '1' then
        Begun(to_integer(BegunAt)) <= BegunIs;
      end if;
      if WritesEnded = '1' then
        Ended(to_integer(EndedAt)) <= EndedIs;
      end if;
    end if;
  end process;

  p_drain : process (Clk) is
    variable left_v : Count_t;
  begin
    if rising_edge(Clk) then
      Drained <= '0';
      if Begin_Valid = '1' and End_Valid = '0' then
        UnderWay <= UnderWay + 1;
        HasRoom  <= '0' when UnderWay = Bursts_g - 1 else '1';
      elsif Begin_Valid = '0' and End_Valid = '1' then
        UnderWay <= UnderWay - 1;
        HasRoom  <= '1';
      end if;

      if Clearing = '1' then
        -- Nothing is under way.
        Drained <= Drain;
        Place   <= Place + 1;
        if (and Place) = '1' then
          Clearing <= '0';
          HasRoom  <= '1';
        end if;
      elsif Draining = '1' then
        left_v := Begun(to_integer(Place)) - Ended(to_integer(Place));
        if Counting = '1' then
          left_v := Left;
        end if;
        if End_Valid = '1' and unsigned(End_Id) = Place then
          left_v := left_v - 1;
        end if;
        Left     <= left_v;
        Counting <= '1';
        if left_v = 0 then
          Counting <= '0';
          Place    <= Place + 1;
        end if;
        if UnderWay = 0 or (left_v = 0 and (and Place) = '1') then
          Draining <= '0';
          Counting <= '0';
          Drained  <= '1';
        end if;
      elsif Drain = '1' then
        Draining <= '1';
        Place    <= (others => '0');
      end if;

      if Rst = '1' then
        Clearing <= '1';
        Place    <= (others => '0');
        UnderWay <= 0;
        HasRoom  <= '0';
        Draining <= '0';
        Counting <= '0';
        Drained  <= '0';
      end if;
    end if;
  end process;

end architecture;
