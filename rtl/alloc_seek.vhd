-- Seeks a place for the pages of one region: in the open one or another that has room, else in an empty one, which gets
-- a table.
--
-- It says what is done with the region where the allocator is, and calls parts of the allocator, as another region is
-- opened, or a table zeroed. What it finds is not taken: a malloc takes it, and what moves leaves its old place first.
-- The rules are those of the model crates/card/src/window/alloc/regions.rs.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.alloc_pkg.all;

entity alloc_seek is
  generic (
    RootBits_g : positive
  );
  port (
    Clk          : in    std_logic;
    -- What is done with parts of the allocator in this cycle, and what these answer.
    Uses         : out   Uses_t;
    Parts        : in    Parts_t;
    -- It is begun: in an empty region, or where others are: in the open one, where the pages fit, or another. If none
    -- of these has room it is done, where Moves is 1. The allocator is at it, and not at a part that is called.
    Start        : in    std_logic;
    Alone        : in    std_logic;
    Moves        : in    std_logic;
    Fits         : in    std_logic;
    Opened       : in    std_logic_vector(RootBits_g - 1 downto 0);
    Here         : in    std_logic;
    -- How it ends: the place is the one that was found, or the first of a region where no page is in use. Or frames
    -- are too few now, wherever the place would be.
    Done         : out   std_logic;
    Status       : out   AllocStatus_t;
    Is_New       : out   std_logic;
    Refuses      : out   std_logic;
    -- Another region; it gets a table.
    Goes         : out   std_logic;
    To_Region    : out   std_logic_vector(RootBits_g - 1 downto 0);
    Gets_Table   : out   std_logic;
    -- Parts that are called: the region is opened; the open one's bitmap is written; the table is zeroed.
    Opens        : out   std_logic;
    Flushes      : out   std_logic;
    Zeroes       : out   std_logic;
    -- The region with room; an empty one.
    Tree_Found   : in    std_logic_vector(RootBits_g - 1 downto 0);
    Empty_Found  : in    std_logic_vector(RootBits_g - 1 downto 0);
    -- The open region's bitmap has changed.
    Map_Changed  : in    std_logic;
    -- Fewer frames are free than the pages need.
    Lacks_Frames : in    std_logic
  );
end entity;

architecture rtl of alloc_seek is

  type State_t is (
    StateTree,
    StateRegion,
    StateFind,
    StateFound,
    StateEmpty,
    StateEmptyFound,
    StateTable,
    StateTabled,
    StateNew,
    StateEnough,
    StateAbandoned,
    -- It has ended, which was known a cycle earlier.
    StateDone
  );

  type Registers_t is record
    State    : State_t;
    Status   : AllocStatus_t;
    -- The place is the first one of a region where no page is in use.
    IsNew    : std_logic;
    -- A table may have taken frames, which was looked at a cycle earlier.
    NoFrames : std_logic;
  end record;

  signal r : Registers_t;
  signal n : Registers_t;

begin

  Status <= r.Status;

  p_next : process (all) is
    variable v : Registers_t;

    procedure ends (as_status : AllocStatus_t) is
    begin
      v.Status := as_status;
      v.State := StateDone;
    end procedure;

    procedure goTo (region : std_logic_vector) is
    begin
      Goes      <= '1';
      To_Region <= region;
    end procedure;

    procedure does is
    begin
      case r.State is

        when StateTree =>
          goTo(Tree_Found);
          if Parts.TreeReady = '1' then
            v.State := StateRegion;
            if Parts.TreeOk = '0' then
              v.State := StateEmpty;
              if Moves = '1' then
                ends(AllocNoSpace_c);
              end if;
            end if;
          end if;

        when StateRegion =>
          Uses.RecordLoad     <= '1';
          Opens     <= '1';
          v.State := StateFind;

        when StateFind =>
          Uses.PlaceValid <= '1';
          Uses.PlaceFind  <= '1';
          v.State := StateFound;

        when StateFound =>
          if Parts.PlaceReady = '1' then
            ends(AllocOk_c);
            if Parts.PlaceOk = '0' then
              -- It has room, unless memory was changed by somebody else.
              ends(AllocBadEntry_c);
            end if;
          end if;

        when StateEmpty =>
          Uses.EmptyValid <= '1';
          Uses.EmptyFind  <= '1';
          v.State := StateEmptyFound;

        when StateEmptyFound =>
          goTo(Empty_Found);
          if Parts.EmptyReady = '1' then
            v.State := StateTable;
            if Parts.EmptyOk = '0' then
              ends(AllocNoSpace_c);
            elsif Map_Changed = '1' then
              Flushes       <= '1';
              Uses.MapFlush <= '1';
            end if;
          end if;

        when StateTable =>
          Uses.TableValid <= '1';
          v.State := StateTabled;

        when StateTabled =>
          Gets_Table <= '1';
          if Parts.TableReady = '1' then
            v.State := StateNew;
            if Parts.TableOk = '0' then
              ends(AllocNoFrames_c);
            elsif Parts.TableZero = '0' then
              Zeroes <= '1';
            end if;
          end if;

        when StateNew =>
          Uses.EmptyValid <= '1';
          Uses.MapBegin   <= '1';
          v.State := StateEnough;

        when StateEnough =>
          v.IsNew := '1';
          if Parts.EmptyReady = '1' then
            if r.NoFrames = '1' then
              Uses.TableValid <= '1';
              Uses.TableGive  <= '1';
              Uses.EmptyValid <= '1';
              Uses.EmptyValue <= '1';
              Uses.MapClose   <= '1';
              v.State := StateAbandoned;
            else
              ends(AllocOk_c);
            end if;
          end if;

        when StateAbandoned =>
          if Parts.TableReady = '1' and Parts.EmptyReady = '1' then
            Refuses <= '1';
          end if;

        when StateDone =>
          Done   <= '1';
          Is_New <= r.IsNew;

      end case;
    end procedure;

  begin
    v := r;
    v.NoFrames := Lacks_Frames;

    Done        <= '0';
    Is_New      <= '0';
    Refuses     <= '0';
    Goes        <= '0';
    To_Region   <= Opened;
    Gets_Table  <= '0';
    Opens       <= '0';
    Flushes     <= '0';
    Zeroes      <= '0';
    Uses        <= NoUse_c;

    -- Never both: what is done does not wait for what is begun.
    if Here = '1' then
      does;
    end if;
    if Start = '1' then
      v.IsNew := '0';
      if Alone = '1' then
        v.State := StateEmpty;
      elsif Fits = '1' then
        goTo(Opened);
        v.State := StateRegion;
      else
        Uses.TreeValid <= '1';
        Uses.TreeFind  <= '1';
        v.State := StateTree;
      end if;
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
