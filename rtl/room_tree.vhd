-- For each region the longest row of free pages in it, and above them the maxima of each eight.
--
-- The first region with room for so much is found by one node a level. An operation is taken in a cycle
-- in which Op_Valid and Op_Ready are 1; what came of it stands from the next cycle with Op_Ready on. After a
-- reset no region has room.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

entity room_tree is
  generic (
    -- Of a region's number.
    IndexBits_g : positive;
    -- Of what is said of a region.
    RoomBits_g  : positive
  );
  port (
    Clk      : in    std_logic;
    Rst      : in    std_logic;
    Op_Valid : in    std_logic;
    Op_Ready : out   std_logic;
    -- The first region with at least Room, which is not 0, is looked for; or Room is what Index has now.
    Op_Find  : in    std_logic;
    Op_Index : in    std_logic_vector(IndexBits_g - 1 downto 0);
    Op_Room  : in    std_logic_vector(RoomBits_g - 1 downto 0);
    -- Whether there is one, and which.
    Ok       : out   std_logic;
    Found    : out   std_logic_vector(IndexBits_g - 1 downto 0)
  );
end entity;

architecture rtl of room_tree is

  constant Children_c : positive := 8;
  constant Shift_c    : positive := 3;
  constant Levels_c   : positive := (IndexBits_g + Shift_c - 1) / Shift_c;
  constant Padded_c   : positive := Levels_c * Shift_c;

  -- Rows of a level, the lowest is 0, and of all levels below it.
  function rowsOf (level : natural) return positive is
  begin
    if IndexBits_g <= Shift_c * (level + 1) then
      return 1;
    end if;
    return 2 ** (IndexBits_g - Shift_c * (level + 1));
  end function;

  function rowsBelow (level : natural) return natural is
    variable rows_v : natural := 0;
  begin
    for below in 0 to Levels_c - 1 loop
      if below < level then
        rows_v := rows_v + rowsOf(below);
      end if;
    end loop;
    return rows_v;
  end function;

  -- Two at least: tools stumble over an index that has no bits.
  constant Rows_c : positive := maximum(rowsBelow(Levels_c), 2);

  subtype Room_t is unsigned(RoomBits_g - 1 downto 0);

  subtype Row_t is std_logic_vector(Children_c * RoomBits_g - 1 downto 0);

  subtype Child_t is natural range 0 to Children_c - 1;

  subtype Level_t is natural range 0 to Levels_c - 1;

  type Rows_t is array (0 to Rows_c - 1) of Row_t;

  type Halves_t is array (0 to Children_c / 2 - 1) of Room_t;

  type State_t is (
    StateClear,
    StateIdle,
    -- The row of the level is read; it is there in the next cycle.
    StateRead,
    -- Which of its children have so much; the first of them.
    StateCompare,
    StatePick,
    -- The child is another; the maximum of each two of them, and of all.
    StateChange,
    StateHalves,
    StateRaise
  );

  function childOf (row : Row_t; child : Child_t) return Room_t is
  begin
    return unsigned(row(RoomBits_g * (child + 1) - 1 downto RoomBits_g * child));
  end function;

  signal State  : State_t;
  signal Rows   : Rows_t;
  signal Row    : Row_t;
  signal Changed : Row_t;
  signal At     : natural range 0 to Rows_c - 1;
  signal Level  : Level_t;
  signal Find   : std_logic;
  -- Of a search, the part that has been found, in its highest bits the first; of a change, which region's,
  -- without the levels that are done.
  signal Index  : unsigned(Padded_c - 1 downto 0);
  signal Room   : Room_t;
  signal Has    : std_logic_vector(Children_c - 1 downto 0);
  signal Halves : Halves_t;
  signal Write  : std_logic;

  function rowAt (of_level : Level_t; node : unsigned(Padded_c - 1 downto 0)) return natural is
    variable at_v : natural range 0 to Rows_c - 1 := 0;
  begin
    for l in 0 to Levels_c - 1 loop
      if l = of_level then
        at_v := rowsBelow(l) + to_integer(node) mod rowsOf(l);
      end if;
    end loop;
    return at_v;
  end function;

begin

  Op_Ready <= '1' when State = StateIdle else '0';
  Found    <= std_logic_vector(Index(IndexBits_g - 1 downto 0));

  Write <= '1' when State = StateClear or State = StateHalves else '0';

  p_rows : process (Clk) is
  begin
    if rising_edge(Clk) then
      if Write = '1' then
        Rows(At) <= Changed;
      end if;
      Row <= Rows(At);
    end if;
  end process;

  p_state : process (Clk) is
    variable row_v    : Row_t;
    variable halves_v : Halves_t;
    variable first_v  : Child_t;
    variable next_v   : unsigned(Padded_c - 1 downto 0);
  begin
    if rising_edge(Clk) then

      case State is

        when StateClear =>
          Changed <= (others => '0');
          if At = Rows_c - 1 then
            State <= StateIdle;
          else
            At <= At + 1;
          end if;

        when StateIdle =>
          Find <= Op_Find;
          Room <= unsigned(Op_Room);
          if Op_Find = '1' then
            Index <= (others => '0');
            Level <= Levels_c - 1;
            At    <= rowAt(Levels_c - 1, to_unsigned(0, Padded_c));
          else
            Index <= resize(unsigned(Op_Index), Padded_c);
            Level <= 0;
            At    <= rowAt(0, shift_right(resize(unsigned(Op_Index), Padded_c), Shift_c));
          end if;
          if Op_Valid = '1' then
            State <= StateRead;
          end if;

        when StateRead =>
          State <= StateChange;
          if Find = '1' then
            State <= StateCompare;
          end if;

        when StateCompare =>
          for child in 0 to Children_c - 1 loop
            Has(child) <= '0';
            if childOf(Row, child) >= Room then
              Has(child) <= '1';
            end if;
          end loop;
          State <= StatePick;

        when StatePick =>
          first_v := 0;
          for child in Children_c - 1 downto 0 loop
            if Has(child) = '1' then
              first_v := child;
            end if;
          end loop;
          Ok     <= or Has;
          next_v := shift_left(Index, Shift_c) or to_unsigned(first_v, Padded_c);
          Index  <= next_v;
          State  <= StateIdle;
          if (or Has) = '1' and Level /= 0 then
            Level <= Level - 1;
            At    <= rowAt(Level - 1, next_v);
            State <= StateRead;
          end if;

        when StateChange =>
          row_v := Row;
          for child in 0 to Children_c - 1 loop
            if child = to_integer(Index(Shift_c - 1 downto 0)) then
              row_v(RoomBits_g * (child + 1) - 1 downto RoomBits_g * child) := std_logic_vector(Room);
            end if;
          end loop;
          Changed <= row_v;
          State   <= StateHalves;

        when StateHalves =>
          for i in halves_v'range loop
            halves_v(i) := maximum(childOf(Changed, 2 * i), childOf(Changed, 2 * i + 1));
          end loop;
          Halves <= halves_v;
          State  <= StateRaise;

        when StateRaise =>
          Room  <= maximum(maximum(Halves(0), Halves(1)), maximum(Halves(2), Halves(3)));
          Index <= shift_right(Index, Shift_c);
          State <= StateIdle;
          if Level /= Levels_c - 1 then
            Level <= Level + 1;
            At    <= rowAt(Level + 1, shift_right(Index, 2 * Shift_c));
            State <= StateRead;
          end if;

      end case;

      if Rst = '1' then
        State   <= StateClear;
        At      <= 0;
        Changed <= (others => '0');
        Ok      <= '0';
      end if;
    end if;
  end process;

end architecture;
