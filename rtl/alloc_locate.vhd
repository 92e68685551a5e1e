-- Which allocation a free or a realloc means: its address is looked at, then its region's record, and the first word of
-- a small one, or the last region of a large one.
--
-- It says what is done with the region where the allocator is, and calls parts of it. What is no allocation is refused.
-- The rules are those of the model crates/card/src/window/alloc/free.rs.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.alloc_pkg.all;
  use work.region_pkg.all;
  use work.window_pkg.all;

entity alloc_locate is
  generic (
    AddrBits_g   : positive;
    PageBits_g   : positive;
    RootBits_g   : positive;
    LeafBits_g   : positive;
    ChunkBits_g  : positive;
    NumberBits_g : positive;
    RoomBits_g   : positive
  );
  port (
    Clk          : in    std_logic;
    -- What is done with parts of the allocator in this cycle, and what these answer.
    Uses         : out   Uses_t;
    Parts        : in    Parts_t;
    Window_Base  : in    std_logic_vector(AddrBits_g - 1 downto PageBits_g + RootBits_g + LeafBits_g);
    -- A command is taken, of that address; from the next cycle on Page is its page. It is a realloc, to no bytes or to
    -- too many.
    Start        : in    std_logic;
    Addr         : in    std_logic_vector(AddrBits_g - 1 downto 0);
    Page         : in    std_logic_vector(RootBits_g + LeafBits_g - 1 downto 0);
    Resizes      : in    std_logic;
    IsZero       : in    std_logic;
    IsBeyond     : in    std_logic;
    -- The page is dying that the allocator has looked at for two cycles.
    IsDying      : in    std_logic;
    -- It is begun, where the allocator is at it, and not at a part that is called.
    Here         : in    std_logic;
    -- It is refused; it is a large one, or a small one, whose mark is written for a free.
    Refuses      : out   std_logic;
    Status       : out   AllocStatus_t;
    Is_Large     : out   std_logic;
    Is_Small     : out   std_logic;
    -- The last page of the allocation.
    Last         : out   std_logic_vector(RootBits_g + LeafBits_g - 1 downto 0);
    -- The region's record in the cycle in which it is read, and from the next one on; the last region of a large
    -- allocation.
    Kept         : in    Region_Record_t(
      Chunk(ChunkBits_g - 1 downto 0), Number(NumberBits_g - 1 downto 0), Used(LeafBits_g downto 0),
      Room(RoomBits_g - 1 downto 0)
    );
    Rec          : in    Region_Record_t(
      Chunk(ChunkBits_g - 1 downto 0), Number(NumberBits_g - 1 downto 0), Used(LeafBits_g downto 0),
      Room(RoomBits_g - 1 downto 0)
    );
    Goes         : out   std_logic;
    To_Region    : out   std_logic_vector(RootBits_g - 1 downto 0);
    -- The region is opened, while the word is on its way: a part that is called.
    Opens        : out   std_logic;
    -- The first word comes; it is there, and from the next cycle on it is Word, unless it could not be read.
    Data_Valid   : in    std_logic;
    Data         : in    TableWord_t;
    Has_Word     : in    std_logic;
    Word         : in    TableWord_t;
    Unread       : in    std_logic
  );
end entity;

architecture rtl of alloc_locate is

  constant WindowBits_c : positive := RootBits_g + LeafBits_g;

  type State_t is (
    StateRecord,
    StateRead,
    StateWord,
    StateFirst,
    -- Of a large allocation: its regions are known.
    StateLarge,
    StateSpan,
    StateLast
  );

  type Registers_t is record
    State      : State_t;
    -- The address is outside of the window, or within a page.
    Outside    : std_logic;
    IsBegin    : std_logic;
    -- The pages of the first word go beyond its region.
    Overruns   : std_logic;
    -- The last region of a large allocation that begins in this one, a cycle later.
    LastRegion : unsigned(RootBits_g - 1 downto 0);
  end record;

  signal r          : Registers_t;
  signal n          : Registers_t;
  signal Region     : std_logic_vector(RootBits_g - 1 downto 0);
  signal Within     : unsigned(LeafBits_g - 1 downto 0);

  -- Whether the pages of a first word go beyond its region.
  function isBeyondRegion (from : unsigned(LeafBits_g - 1 downto 0); first : TableWord_t) return std_logic is
    constant Last_c : unsigned(LeafBits_g downto 0) := morePages(first, LeafBits_g) + from;
  begin
    return Last_c(LeafBits_g) or (or first(PagesLow_c + PagesBits_c - 1 downto PagesLow_c + LeafBits_g));
  end function;

begin

  Region    <= Page(WindowBits_c - 1 downto LeafBits_g);
  Within    <= unsigned(Page(LeafBits_g - 1 downto 0));
  To_Region <= std_logic_vector(r.LastRegion);

  p_next : process (all) is
    variable v : Registers_t;

    procedure refuse (as_status : AllocStatus_t) is
    begin
      Refuses   <= '1';
      Status    <= as_status;
      v.State := StateRecord;
    end procedure;

    procedure does is
    begin
      case r.State is

        when StateRecord =>
          Uses.RecordLoad     <= '1';
          v.State := StateRead;
          if Resizes = '1' and IsZero = '1' then
            refuse(AllocZeroSize_c);
          elsif Resizes = '1' and IsBeyond = '1' then
            refuse(AllocTooLarge_c);
          elsif r.Outside = '0' and IsDying = '0' and Kept.State = RegionLarge then
            v.State := StateLarge;
          elsif r.Outside = '1' or IsDying = '1' or Kept.State /= RegionShared then
            refuse(AllocNotAllocated_c);
          end if;

        when StateRead =>
          Uses.AskValid <= '1';
          if Parts.ReadReady = '1' then
            Opens     <= Resizes;
            v.State := StateWord;
          end if;

        when StateWord =>
          if Has_Word = '1' then
            v.State := StateFirst;
          end if;

        when StateFirst =>
          if Unread = '1' then
            refuse(AllocBusError_c);
          elsif stateOf(Word) /= PageMapped and stateOf(Word) /= PageReserved then
            refuse(AllocNotAllocated_c);
          elsif r.IsBegin = '0' or Word(FirstBit_c) = '0' then
            refuse(AllocInside_c);
          elsif r.Overruns = '1' then
            refuse(AllocBadEntry_c);
          else
            Uses.PutValid <= not Resizes;
            if Resizes = '1' or Parts.WriteReady = '1' then
              Is_Small  <= '1';
              v.State := StateRecord;
            end if;
          end if;

        when StateLarge =>
          v.State := StateSpan;
          if Within >= Rec.Used then
            refuse(AllocNotAllocated_c);
          elsif r.IsBegin = '0' or Rec.IsFirst = '0' or Within /= 0 then
            refuse(AllocInside_c);
          end if;

        when StateSpan =>
          Goes      <= '1';
          v.State := StateLast;

        when StateLast =>
          Uses.RecordLoad     <= '1';
          Is_Large  <= '1';
          Last      <= std_logic_vector(r.LastRegion & resize(Kept.Used - 1, LeafBits_g));
          v.State := StateRecord;

      end case;
    end procedure;

  begin
    v := r;
    Refuses   <= '0';
    Status    <= AllocNotAllocated_c;
    Is_Large  <= '0';
    Is_Small  <= '0';
    Last      <= Region & std_logic_vector(lastOf(Within, Word));
    Goes      <= '0';
    Opens     <= '0';
    Uses        <= NoUse_c;

    -- Never both: what is done does not wait for what is begun.
    if Here = '1' then
      does;
    end if;
    if Start = '1' then
      v.State   := StateRecord;
      v.Outside := '0';
      if Addr(AddrBits_g - 1 downto PageBits_g + WindowBits_c) /= Window_Base then
        v.Outside := '1';
      end if;
      v.IsBegin := '1';
      if unsigned(Addr(PageBits_g - 1 downto 0)) /= 0 then
        v.IsBegin := '0';
      end if;
    end if;
    if Data_Valid = '1' then
      v.Overruns := isBeyondRegion(Within, Data);
    end if;
    v.LastRegion := unsigned(Region) + resize(Rec.Room, RootBits_g);
    n <= v;
  end process;

  p_registers : process (Clk) is
  begin
    if rising_edge(Clk) then
      r <= n;
    end if;
  end process;

end architecture;
