-- First touches: a walk that has found no page asks for its frame, and gets it, or why there is none.
--
-- What the walk has seen is the page's word, unless the page was touched meanwhile, or more has changed: then it is
-- read again. A page that may be had gets a frame, by the allocator's `page_words`, and the walk is answered when its
-- word is visible; the first one of a region of a lazy large allocation gets a table too. The rules are those of the
-- model crates/card/src/window/alloc/touch.rs.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.alloc_pkg.all;
  use work.region_pkg.all;
  use work.window_pkg.all;

entity alloc_touch is
  generic (
    PageBits_g   : positive;
    LeafBits_g   : positive;
    FrameBits_g  : positive;
    ChunkBits_g  : positive;
    NumberBits_g : positive;
    RoomBits_g   : positive;
    TicketBits_g : positive;
    -- Memories, and the number of the only one.
    Memories_g   : positive;
    Memory_g     : natural
  );
  port (
    Clk            : in    std_logic;
    Rst            : in    std_logic;
    -- What is done with parts of the allocator in this cycle, and what these answer.
    Uses           : out   Uses_t;
    Parts          : in    Parts_t;
    -- For a walk that begins to read in this cycle or later. A command has written words.
    Ticket         : out   std_logic_vector(TicketBits_g - 1 downto 0);
    Changed        : in    std_logic;
    -- A touch is taken, where no answer stands; from the next cycle on Page is its page.
    Start          : in    std_logic;
    Writes         : in    std_logic;
    Seen           : in    std_logic;
    Seen_Word      : in    TableWord_t;
    Seen_Ticket    : in    std_logic_vector(TicketBits_g - 1 downto 0);
    Page           : in    std_logic_vector(PageBits_g - 1 downto 0);
    IsDying        : in    std_logic;
    Found_Valid    : out   std_logic;
    Found_Ready    : in    std_logic;
    Found_Status   : out   Status_t;
    Found_Writable : out   std_logic;
    Found_Memory   : out   std_logic_vector(MemoryBits_c - 1 downto 0);
    Found_Size     : out   std_logic_vector(SizeBits_c - 1 downto 0);
    Found_Frame    : out   std_logic_vector(FrameBits_g - 1 downto 0);
    -- The allocator is at it, and not at a part of it that is called. It ends; what was written has failed; another
    -- table is of zeroes first, or goes back at the end.
    Here           : in    std_logic;
    Ends           : out   std_logic;
    Fails          : out   std_logic;
    Zeroes         : out   std_logic;
    Gives          : out   std_logic;
    -- The region's record; it gets a table.
    Rec            : in    Region_Record_t(
      Chunk(ChunkBits_g - 1 downto 0), Number(NumberBits_g - 1 downto 0), Used(LeafBits_g downto 0),
      Room(RoomBits_g - 1 downto 0)
    );
    Gets_Table     : out   std_logic;
    -- Memory has failed before.
    IsBroken       : in    std_logic;
    -- The page's word comes.
    Data_Valid     : in    std_logic;
    Data           : in    TableWord_t;
    Data_Failed    : in    std_logic;
    -- A frame that nobody was promised is free.
    HasFrame       : in    std_logic;
    -- The word that gets a frame, and is written; what it becomes.
    Word           : out   TableWord_t;
    Words_Word     : in    TableWord_t;
    -- The page is there.
    Made           : out   std_logic
  );
end entity;

architecture rtl of alloc_touch is

  -- What is kept of a touch: the frame, whether it may be written, and its memory where there are several.
  constant InfoBits_c : positive := FrameBits_g + 1 + MemoryBits_c * (minimum(Memories_g, 2) - 1);

  type State_t is (
    StateBegin,
    StateKnown,
    StateRead,
    StateSeen,
    StateWord,
    StateFrame,
    StateTouched,
    -- In a large allocation: a run, or the first of a region, which gets a table.
    StateLarge,
    StateTable,
    StateLink
  );

  type Registers_t is record
    State  : State_t;
    -- The touch would write; its walk has seen the page's word; it is the first of its region, which gets a table.
    Writes  : std_logic;
    Seen    : std_logic;
    IsFirst : std_logic;
    Word    : TableWord_t;
    Valid   : std_logic;
    Status  : Status_t;
  end record;

  signal r         : Registers_t;
  signal n         : Registers_t;

  -- What is kept of the touch, and whether the page is one of the last.
  signal Touched   : std_logic;
  signal Find      : std_logic;
  signal Known     : std_logic;
  signal IsOld     : std_logic;
  signal IsTouched : std_logic;
  signal Kept      : std_logic_vector(InfoBits_c - 1 downto 0);
  signal Info      : std_logic_vector(InfoBits_c - 1 downto 0);
  signal InMemory  : std_logic_vector(MemoryBits_c - 1 downto 0);

  signal Within    : unsigned(LeafBits_g - 1 downto 0);

begin

  Within <= unsigned(Page(LeafBits_g - 1 downto 0));

  Found_Valid    <= r.Valid;
  Found_Status   <= r.Status;
  Found_Writable <= r.Word(WritableBit_c);
  Found_Memory   <= r.Word(MemoryLow_c + MemoryBits_c - 1 downto MemoryLow_c);
  Found_Size     <= r.Word(SizeLow_c + SizeBits_c - 1 downto SizeLow_c);
  Found_Frame    <= r.Word(NumberLow_c + FrameBits_g - 1 downto NumberLow_c);

  Word <= r.Word;
  Made <= Touched;

  Info(FrameBits_g downto 0) <= r.Word(WritableBit_c) & r.Word(NumberLow_c + FrameBits_g - 1 downto NumberLow_c);

  g_memory : if Memories_g > 1 generate
    Info(InfoBits_c - 1 downto FrameBits_g + 1) <= r.Word(MemoryLow_c + MemoryBits_c - 1 downto MemoryLow_c);
    InMemory <= Kept(InfoBits_c - 1 downto FrameBits_g + 1);
  else generate
    InMemory <= std_logic_vector(to_unsigned(Memory_g, MemoryBits_c));
  end generate;

  i_touches : entity work.recent_touches
    generic map (
      PageBits_g   => PageBits_g,
      InfoBits_g   => InfoBits_c,
      TicketBits_g => TicketBits_g
    )
    port map (
      Clk        => Clk,
      Rst        => Rst,
      Ticket     => Ticket,
      Changed    => Changed,
      Touched    => Touched,
      Page       => Page,
      Info       => Info,
      Of_Ticket  => Seen_Ticket,
      Find       => Find,
      Ready      => Known,
      Is_Old     => IsOld,
      Is_Touched => IsTouched,
      Found      => Kept
    );

  p_next : process (all) is
    variable v : Registers_t;

    procedure found (status : Status_t; as_word : TableWord_t) is
    begin
      v.Valid  := '1';
      v.Status := status;
      v.Word   := as_word;
      if status = StatusOk_c and r.Writes = '1' and as_word(WritableBit_c) = '0' then
        v.Status := StatusReadOnly_c;
      end if;
      Ends <= '1';
    end procedure;

    procedure steps is
    begin
      case r.State is

        when StateBegin =>
          Uses.RecordLoad     <= '1';
          Find      <= '1';
          v.IsFirst := '0';
          v.State   := StateKnown;

        when StateKnown =>
          if Known = '1' then
            v.State := StateWord;
            if IsBroken = '1' then
              found(StatusBusError_c, r.Word);
            elsif IsDying = '1' or (Rec.State /= RegionShared and Rec.State /= RegionLarge) then
              found(StatusNotMapped_c, r.Word);
            elsif Rec.State = RegionLarge and (Within >= Rec.Used or not hasTable(Rec.Part)) then
              v.State := StateLarge;
            elsif IsOld = '1' or (IsTouched = '0' and r.Seen = '0') then
              v.State := StateRead;
            elsif IsTouched = '1' then
              v.Word := pageWord(unsigned(Kept(FrameBits_g - 1 downto 0)), '0', Kept(FrameBits_g), InMemory, 0);
            end if;
          end if;

        when StateRead =>
          Uses.AskValid <= '1';
          if Parts.ReadReady = '1' then
            v.State := StateSeen;
          end if;

        when StateSeen =>
          v.Word := Data;
          if Data_Valid = '1' then
            v.State := StateWord;
            if Data_Failed = '1' then
              found(StatusBusError_c, r.Word);
            end if;
          end if;

        when StateWord =>
          if stateOf(r.Word) = PageMapped then
            found(StatusOk_c, r.Word);
          elsif Rec.State = RegionLarge and stateOf(r.Word) = PageFree then
            v.Word := untouched(Rec, Within);
          elsif stateOf(r.Word) /= PageReserved then
            found(StatusNotMapped_c, r.Word);
          elsif r.Writes = '1' and r.Word(WritableBit_c) = '0' then
            found(StatusReadOnly_c, r.Word);
          else
            Uses.WordsStart <= '1';
            Uses.WordsKeep  <= '1';
            v.State     := StateFrame;
          end if;

        when StateFrame =>
          if Parts.WordsDone = '1' then
            v.Word  := Words_Word;
            v.State := StateTouched;
            if Parts.WordsFailed = '1' then
              found(StatusNoFrame_c, r.Word);
              Gives   <= r.IsFirst;
              Uses.Changes <= r.IsFirst;
            end if;
          end if;

        when StateTouched =>
          if Parts.Quiet = '1' then
            if Parts.HasFailed = '1' then
              Fails <= '1';
              found(StatusBusError_c, r.Word);
            elsif r.IsFirst = '1' then
              v.State := StateLink;
            else
              Touched <= '1';
              found(StatusOk_c, r.Word);
            end if;
          end if;

        when StateLarge =>
          v.Word := untouched(Rec, Within);
          if Within >= Rec.Used then
            found(StatusNotMapped_c, r.Word);
          elsif Rec.Part = PartRun_c then
            found(StatusOk_c, runWord(Rec, Within, FrameBits_g));
          elsif r.Writes = '1' and Rec.Writable = '0' then
            found(StatusReadOnly_c, r.Word);
          elsif HasFrame = '0' then
            found(StatusNoFrame_c, r.Word);
          else
            Uses.TableValid <= '1';
            v.State     := StateTable;
          end if;

        when StateTable =>
          -- It is of zeroes, when it is linked.
          Gets_Table <= '1';
          v.IsFirst  := '1';
          if Parts.TableReady = '1' then
            v.State := StateWord;
            if Parts.TableOk = '0' then
              found(StatusNoFrame_c, r.Word);
            else
              Zeroes <= not Parts.TableZero;
            end if;
          end if;

        when StateLink =>
          Uses.RootValid <= '1';
          v.IsFirst  := '0';
          if Parts.RootReady = '1' then
            Uses.RecordWrite   <= '1';
            v.State := StateTouched;
          end if;

      end case;
    end procedure;

  begin
    v := r;

    Ends        <= '0';
    Fails       <= '0';
    Zeroes      <= '0';
    Gives       <= '0';
    Gets_Table  <= '0';
    Uses        <= NoUse_c;
    Touched     <= '0';
    Find        <= '0';

    if Found_Ready = '1' then
      v.Valid := '0';
    end if;
    -- Never both: what is done does not wait for what is begun.
    if Here = '1' then
      steps;
    end if;
    if Start = '1' then
      v.State  := StateBegin;
      v.Writes := Writes;
      v.Seen   := Seen;
      v.Word   := Seen_Word;
    end if;

    if Rst = '1' then
      v.Valid := '0';
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
