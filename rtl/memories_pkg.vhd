-- A card's memories: how many there are, and how many frames each has, as generics say it.
--
-- The tables are in one of them, whose frames and number are generics of their own. Frames of the others are numbers in
-- a string, with a comma between them, in the order of the memories; numbers of memories have no gap then. Where the
-- string is empty there is one memory, which has any number.

package memories_pkg is

  function memoriesOf (others_frames : string) return positive;

  -- Frames of the memory with that number.
  function framesOf (
    memory        : natural;
    tables_frames : positive;
    tables_memory : natural;
    others_frames : string
  ) return positive;

end package;

package body memories_pkg is

  function memoriesOf (others_frames : string) return positive is
    variable memories_v : positive := 1;
  begin
    for i in others_frames'range loop
      if i = others_frames'left or others_frames(i) = ',' then
        memories_v := memories_v + 1;
      end if;
    end loop;
    return memories_v;
  end function;

  function framesOf (
    memory        : natural;
    tables_frames : positive;
    tables_memory : natural;
    others_frames : string
  ) return positive is
    -- Which of the others it is, and the one that is read.
    variable which_v : natural := memory;
    variable at_v    : natural := 0;
    variable value_v : natural := 0;
  begin
    if memoriesOf(others_frames) = 1 or memory = tables_memory then
      return tables_frames;
    end if;
    if memory > tables_memory then
      which_v := memory - 1;
    end if;
    for i in others_frames'range loop
      if others_frames(i) = ',' then
        at_v := at_v + 1;
      elsif at_v = which_v then
        value_v := 10 * value_v + character'pos(others_frames(i)) - character'pos('0');
      end if;
    end loop;
    assert value_v > 0
      report "memories_pkg: a memory without a number of frames" severity failure;
    return value_v;
  end function;

end package body;
