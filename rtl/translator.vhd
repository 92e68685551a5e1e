-- Translates the addresses of one reader or writer: those of the card's window to places in the
-- card's memories; others go through as they are.
--
-- It holds Entries_g translations, each of a page or of an aligned run of pages, and has up to Slots_g
-- walks under way. A request for a page whose walk is under way waits for that walk, whatever was
-- asked for in between. Answers come in the order of the requests.
--
-- An invalidation is in force from the cycle after it was taken: a request accepted from then on is
-- answered by a walk that began after it. Inval_Done tells that every request which was accepted
-- before has been answered. Faults are answers with a status; one that was answered is an
-- invalidation of its page.
-- Timing, ports and generics: docs/rtl/translator.md.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.index_pkg.all;
  use work.window_pkg.all;

entity translator is
  generic (
    -- Of an address as it comes in.
    AddrBits_g   : positive := 64;
    -- Of a place in a memory of the card.
    PhysBits_g   : positive := 40;
    -- Bytes of a page, as a power of two.
    PageBits_g   : positive := 12;
    -- Pages of the window, as a power of two.
    WindowBits_g : positive := 26;
    -- Pages of the largest run that a walk finds, as a power of two.
    RunBits_g    : positive := 13;
    -- Of what a request carries with it.
    TagBits_g    : positive := 8;
    -- Translations that are held.
    Entries_g    : positive := 8;
    -- Walks under way.
    Slots_g      : positive := 32;
    -- Requests that wait for their answer.
    Depth_g      : positive := 32;
    -- For proofs: Twice says what it must never say, and costs what it takes to know.
    Checks_g     : boolean := false
  );
  port (
    Clk           : in    std_logic;
    Rst           : in    std_logic;
    -- Where the window begins; it is aligned to its size. It does not change while requests wait.
    Window_Base   : in    std_logic_vector(AddrBits_g - 1 downto PageBits_g + WindowBits_g);
    -- Requests
    In_Valid      : in    std_logic;
    In_Ready      : out   std_logic;
    In_Addr       : in    std_logic_vector(AddrBits_g - 1 downto 0);
    In_Write      : in    std_logic;
    In_Tag        : in    std_logic_vector(TagBits_g - 1 downto 0);
    -- Answers; the address of a fault is the one that was asked for.
    Out_Valid     : out   std_logic;
    Out_Ready     : in    std_logic;
    Out_Addr      : out   std_logic_vector(AddrBits_g - 1 downto 0);
    Out_Write     : out   std_logic;
    Out_Tag       : out   std_logic_vector(TagBits_g - 1 downto 0);
    -- The address is one of the window; where it is 0, memory and status are 0 as well.
    Out_InWindow  : out   std_logic;
    Out_Memory    : out   std_logic_vector(MemoryBits_c - 1 downto 0);
    Out_Status    : out   Status_t;
    -- Walks, answered in their order
    Walk_Valid    : out   std_logic;
    Walk_Ready    : in    std_logic;
    Walk_Page     : out   std_logic_vector(WindowBits_g - 1 downto 0);
    Resp_Valid    : in    std_logic;
    Resp_Ready    : out   std_logic;
    Resp_Status   : in    Status_t;
    Resp_Writable : in    std_logic;
    Resp_Memory   : in    std_logic_vector(MemoryBits_c - 1 downto 0);
    -- Pages of the aligned run that the page is part of, as a power of two.
    Resp_Size     : in    std_logic_vector(SizeBits_c - 1 downto 0);
    Resp_Frame    : in    std_logic_vector(PhysBits_g - PageBits_g - 1 downto 0);
    -- Invalidation of the pages from First to Last
    Inval_Valid   : in    std_logic;
    Inval_Ready   : out   std_logic;
    Inval_First   : in    std_logic_vector(WindowBits_g - 1 downto 0);
    Inval_Last    : in    std_logic_vector(WindowBits_g - 1 downto 0);
    -- For one cycle: what was accepted before the last invalidation has been answered.
    Inval_Done    : out   std_logic;
    -- Never: two entries, or two slots, are for the page of In_Addr.
    Twice         : out   std_logic
  );
end entity;

architecture rtl of translator is

  constant FrameBits_c  : positive := PhysBits_g - PageBits_g;
  constant InsideBits_c : positive := PageBits_g + WindowBits_g;
  constant EntryBits_c  : positive := bitsOf(Entries_g);
  constant SlotBits_c   : positive := bitsOf(Slots_g);

  subtype Page_t is std_logic_vector(WindowBits_g - 1 downto 0);
  subtype Frame_t is std_logic_vector(FrameBits_c - 1 downto 0);
  subtype RunMask_t is std_logic_vector(RunBits_g - 1 downto 0);
  subtype Memory_t is std_logic_vector(MemoryBits_c - 1 downto 0);
  subtype Entries_t is std_logic_vector(Entries_g - 1 downto 0);
  subtype Slots_t is std_logic_vector(Slots_g - 1 downto 0);
  subtype Entry_t is natural range 0 to Entries_g - 1;
  subtype Slot_t is natural range 0 to Slots_g - 1;
  subtype Place_t is natural range 0 to Depth_g;

  -- Where a page is, as it is kept with an entry or a slot.
  constant WhereBits_c : positive := 1 + MemoryBits_c + FrameBits_c;

  -- The same with the run that it is of.
  subtype Held_t is std_logic_vector(RunBits_g + WhereBits_c - 1 downto 0);

  type HeldRam_t is array (0 to 2 ** EntryBits_c - 1) of Held_t;

  type PlaceRam_t is array (0 to 2 ** bitsOf(Depth_g + 1) - 1) of Held_t;

  -- What a walk has found: that nothing is wrong, the status, where the page is.
  subtype Stored_t is std_logic_vector(Status_t'length + WhereBits_c downto 0);

  type ResultRam_t is array (0 to 2 ** SlotBits_c - 1) of Stored_t;

  type PageRam_t is array (0 to 2 ** SlotBits_c - 1) of Page_t;

  type UserRam_t is array (0 to 2 ** SlotBits_c - 1) of std_logic_vector(bitsOf(Depth_g + 1) - 1 downto 0);

  -- Of the window; waits for a slot; direction; the slot; tag; address.
  constant ItemBits_c : positive := 3 + SlotBits_c + TagBits_g + AddrBits_g;

  type Result_t is record
    IsGood   : std_logic;
    Status   : Status_t;
    Writable : std_logic;
    Memory   : Memory_t;
    Frame    : Frame_t;
  end record;

  type Registers_t is record
    WalkValid  : std_logic;
    WalkPage   : Page_t;
    -- The slot that the next walk takes, and that of the oldest walk under way.
    NextSlot   : Slot_t;
    OldestSlot : Slot_t;
    -- Walks are under way that began before the last invalidation: those up to this slot.
    IsElder    : std_logic;
    ElderEnd   : Slot_t;
    -- The result that came in the cycle before: of which slot, whether it is no fault, where the page is.
    CameValid  : std_logic;
    CameSlot   : Slot_t;
    CameGood   : std_logic;
    CameWhere  : std_logic_vector(WhereBits_c - 1 downto 0);
    -- The entry that is filled next; the one that was filled in the cycle before, and with what.
    NextEntry  : Entry_t;
    Filled     : std_logic;
    FillEntry  : natural range 0 to 2 ** EntryBits_c - 1;
    FillHeld   : Held_t;
    -- A request was accepted in the cycle before: the entry that has its page, if one has, and its place in the queue.
    IsNew      : std_logic;
    NewHits    : Entries_t;
    NewPlace   : Place_t;
    OutValid   : std_logic;
    OutAddr    : std_logic_vector(AddrBits_g - 1 downto 0);
    OutWrite   : std_logic;
    OutTag     : std_logic_vector(TagBits_g - 1 downto 0);
    OutInside  : std_logic;
    OutMemory  : Memory_t;
    OutStatus  : Status_t;
    OutIsFault : std_logic;
    -- A fault was answered in the cycle before; its address is still there.
    FaultSeen  : std_logic;
    -- An invalidation is taken in this cycle, or a fault was answered two cycles before; the first of the two.
    Drops      : std_logic;
    DropAsked  : std_logic;
    -- Its pages, of an invalidation the smallest aligned run that has them all; or those of the result that
    -- came.
    DropPage   : Page_t;
    DropMask   : Page_t;
    -- The same of the cycle before.
    Dropped    : std_logic;
    WasAsked   : std_logic;
    -- Answers that are still to come before the invalidation is done.
    Draining   : std_logic;
    Left       : natural range 0 to Depth_g + 1;
    Done       : std_logic;
  end record;

  signal r : Registers_t;

  -- Of the translations that are held, by entry, and as they were when requests were accepted, by place in the queue;
  -- of the walks, by slot: what they have found, their pages, and the place in the queue of the last request that
  -- waits for them.
  signal HeldRam    : HeldRam_t;
  signal PlaceRam   : PlaceRam_t;
  signal ResultRam  : ResultRam_t;
  signal PageRam    : PageRam_t;
  signal UserRam    : UserRam_t;

  signal Accept      : std_logic;
  signal IsInside    : std_logic;
  signal InReady     : std_logic;
  signal Page        : Page_t;
  signal Hits        : Entries_t;
  signal NewHeld     : Held_t;
  signal IsHeld      : std_logic;
  signal Founds      : Slots_t;
  signal IsShared    : std_logic;
  signal IsWalked    : std_logic;
  signal UseSlot     : std_logic_vector(SlotBits_c - 1 downto 0);
  signal UsesSlot    : std_logic;

  signal QueueReady  : std_logic;
  signal QueueIn     : std_logic_vector(ItemBits_c - 1 downto 0);
  signal QueueOut    : std_logic_vector(ItemBits_c - 1 downto 0);
  signal QueueLevel  : natural range 0 to Depth_g;
  signal InPlace     : Place_t;
  signal HeadPlace   : Place_t;
  signal HeadValid   : std_logic;
  signal HeadInside  : std_logic;
  signal HeadWaits   : std_logic;
  -- It waits for a walk that is under way.
  signal HeadWalks   : std_logic;
  signal HeadWrite   : std_logic;
  -- The slot that it waits for, if it does.
  signal HeadSlotIs  : std_logic_vector(SlotBits_c - 1 downto 0);
  signal HeadSlot    : natural range 0 to 2 ** SlotBits_c - 1;
  signal HeadHeld    : Held_t;
  signal HeadTag     : std_logic_vector(TagBits_g - 1 downto 0);
  signal HeadAddr    : std_logic_vector(AddrBits_g - 1 downto 0);
  signal HeadResult  : Result_t;
  signal HeadIsUser  : std_logic;
  signal OutFree     : std_logic;
  signal Load        : std_logic;
  signal Answered    : std_logic;

  signal SlotFree    : Slots_t;
  signal SlotWalking : Slots_t;
  signal SlotOpen    : Slots_t;
  signal Walked      : std_logic;
  signal WalkedPage  : Page_t;
  signal RespReady   : std_logic;
  signal RespWhere   : std_logic_vector(WhereBits_c - 1 downto 0);
  signal RespIsGood  : std_logic;
  signal RespStored  : Stored_t;
  signal RunMask     : RunMask_t;
  signal Fill        : std_logic;
  signal PageDropped : std_logic;
  -- The pages of an invalidation, or of a fault, are taken over in this cycle.
  signal InvalLoads  : std_logic;
  signal DropLoads   : std_logic;
  signal InvalTaken  : std_logic;
  signal FaultDrops  : std_logic;

begin

  assert AddrBits_g > InsideBits_c
    report "translator: the window leaves no bit of the address for its base" severity failure;
  assert AddrBits_g >= PhysBits_g and PhysBits_g > PageBits_g and FrameBits_c <= NumberBits_c
    report "translator: frames have 1 to 32 bits and their addresses fit those that come in" severity failure;
  assert RunBits_g < WindowBits_g and RunBits_g <= FrameBits_c and RunBits_g < 2 ** SizeBits_c
    report "translator: a run has at most 2**31 pages, less than the window, and fits a memory" severity failure;

  ------------------------------------------------------------------------------------------------
  -- Requests: what is held, or waited for already
  ------------------------------------------------------------------------------------------------
  -- Pages of an invalidation are dropped in the cycle in which that is taken, the page of a fault only in the second
  -- after it was answered: nobody is accepted in these two.
  InReady  <= QueueReady and (not r.WalkValid or Walk_Ready) and SlotFree(r.NextSlot) and not r.FaultSeen
              and not FaultDrops;
  In_Ready <= InReady;
  Accept   <= In_Valid and InReady;

  IsInside <= not isAny(In_Addr(AddrBits_g - 1 downto InsideBits_c) xor Window_Base, 3);
  Page     <= In_Addr(InsideBits_c - 1 downto PageBits_g);

  g_entries : for i in 0 to Entries_g - 1 generate
    signal FillHere : std_logic;
  begin

    FillHere <= '1' when r.NextEntry = i else '0';

    i_entry : entity work.tlb_entry
      generic map (
        WindowBits_g => WindowBits_g,
        RunBits_g    => RunBits_g
      )
      port map (
        Clk         => Clk,
        Rst         => Rst,
        Look_Page   => Page,
        Look_Hit    => Hits(i),
        Inval_Valid => r.Drops,
        Fill_Valid  => Fill,
        Drop_Page   => r.DropPage,
        Drop_Mask   => r.DropMask,
        Fill_Here   => FillHere
      );

  end generate;

  IsHeld <= IsInside and or (anyOf(Hits, 6));

  -- A walk that is asked for in the cycle of an invalidation of its page is one of before.
  PageDropped <= r.Drops and not isAny((Page xor r.DropPage) and not r.DropMask, 2);

  IsShared <= isAny(Founds, 6);
  IsWalked <= Accept and IsInside and not (or (anyOf(Hits & Founds, 6)));
  UsesSlot <= Accept and IsInside and not IsHeld;
  UseSlot  <= indexOf(Founds, SlotBits_c) when IsShared = '1' else
              std_logic_vector(to_unsigned(r.NextSlot, SlotBits_c));

  QueueIn <= IsInside & (IsInside and not IsHeld) & In_Write & UseSlot & In_Tag & In_Addr;

  i_queue : entity work.fifo
    generic map (
      Width_g => ItemBits_c,
      Depth_g => Depth_g
    )
    port map (
      Clk       => Clk,
      Rst       => Rst,
      In_Valid  => Accept,
      In_Ready  => QueueReady,
      In_Data   => QueueIn,
      Out_Valid => HeadValid,
      Out_Ready => Load,
      Out_Data  => QueueOut,
      Level     => QueueLevel,
      In_Place  => InPlace,
      Out_Place => HeadPlace
    );

  ------------------------------------------------------------------------------------------------
  -- Walks under way: each slot in its turn
  ------------------------------------------------------------------------------------------------
  g_slots : for i in 0 to Slots_g - 1 generate
    signal Join   : std_logic;
    signal Take   : std_logic;
    signal IsNext : std_logic;
    signal Close  : std_logic;
    signal Leave  : std_logic;
  begin

    Join   <= UsesSlot and Founds(i);
    Take   <= IsWalked when r.NextSlot = i else '0';
    IsNext <= Walked when r.OldestSlot = i else '0';
    Close  <= r.CameValid when r.CameSlot = i else '0';
    Leave  <= Load and HeadWaits and HeadIsUser when HeadSlot = i else '0';

    i_slot : entity work.miss_slot
      generic map (
        WindowBits_g => WindowBits_g
      )
      port map (
        Clk         => Clk,
        Rst         => Rst,
        Look_Page   => Page,
        Look_Found  => Founds(i),
        Join        => Join,
        Take        => Take,
        Take_Dropped => PageDropped,
        Inval_Valid => r.Drops,
        Inval_Page  => r.DropPage,
        Inval_Mask  => r.DropMask,
        Walked      => IsNext,
        Close       => Close,
        Leave       => Leave,
        IsFree      => SlotFree(i),
        IsWalking   => SlotWalking(i),
        IsOpen      => SlotOpen(i)
      );

  end generate;

  -- A result is taken at once, unless an invalidation is, or a fault waits to be taken: what comes in the cycle
  -- in which that is answered is of after it, and would be kept before its page is dropped.
  RespReady  <= not DropLoads and not (r.OutValid and r.OutIsFault);
  Resp_Ready <= RespReady;
  Walked     <= Resp_Valid and RespReady;
  WalkedPage <= PageRam(r.OldestSlot);
  RespWhere  <= Resp_Writable & Resp_Memory & Resp_Frame;
  RespIsGood <= '1' when Resp_Status = StatusOk_c else '0';
  RespStored <= RespIsGood & Resp_Status & RespWhere;

  -- Of a run only the page itself is kept, if there was any invalidation since the walk began, or the
  -- frames do not lie as the pages do.
  p_run : process (all) is
    variable run_v : RunMask_t;
  begin
    for i in 0 to RunBits_g - 1 loop
      run_v(i) := '1' when unsigned(Resp_Size) > i else '0';
    end loop;
    RunMask <= run_v;
    if r.IsElder = '1' or r.Drops = '1' or r.Dropped = '1'
      or or (run_v and (Resp_Frame(RunBits_g - 1 downto 0) xor WalkedPage(RunBits_g - 1 downto 0))) = '1' then
      RunMask <= (others => '0');
    end if;
  end process;

  -- No fault is kept, and nothing that was invalidated meanwhile.
  Fill <= r.CameValid and r.CameGood and SlotOpen(r.CameSlot);

  p_memories : process (Clk) is
  begin
    if rising_edge(Clk) then
      -- Of the page that is there: the one that takes the slot is the last.
      if SlotFree(r.NextSlot) = '1' then
        PageRam(r.NextSlot) <= Page;
      end if;
      if UsesSlot = '1' then
        UserRam(to_integer(unsigned(UseSlot))) <= std_logic_vector(to_unsigned(InPlace, UserRam(0)'length));
      end if;
      if Walked = '1' then
        ResultRam(r.OldestSlot) <= RespStored;
      end if;
      -- An entry is read in the cycle after a request has found it: what it is filled with meanwhile comes later.
      if r.Filled = '1' then
        HeldRam(r.FillEntry) <= r.FillHeld;
      end if;
      if r.IsNew = '1' then
        PlaceRam(r.NewPlace) <= NewHeld;
      end if;
    end if;
  end process;

  ------------------------------------------------------------------------------------------------
  -- Answers
  ------------------------------------------------------------------------------------------------
  HeadAddr   <= QueueOut(AddrBits_g - 1 downto 0);
  HeadTag    <= QueueOut(AddrBits_g + TagBits_g - 1 downto AddrBits_g);
  HeadSlotIs <= QueueOut(ItemBits_c - 4 downto AddrBits_g + TagBits_g);
  HeadWrite  <= QueueOut(ItemBits_c - 3);
  HeadWaits  <= QueueOut(ItemBits_c - 2);
  HeadInside <= QueueOut(ItemBits_c - 1);

  HeadSlot   <= to_integer(unsigned(HeadSlotIs));
  HeadIsUser <= '1' when unsigned(UserRam(HeadSlot)) = HeadPlace else '0';

  -- The translation of the oldest request, if it was held: that one was accepted in the cycle before, or earlier.
  NewHeld  <= HeldRam(to_integer(unsigned(indexOf(r.NewHits, EntryBits_c))));
  HeadHeld <= NewHeld when r.IsNew = '1' and QueueLevel = 1 else PlaceRam(HeadPlace);

  -- Behind a fault nothing follows at once: whoever takes answers says so late in a cycle, and that it was a fault
  -- is known in the next one.
  OutFree  <= not r.OutValid or (Out_Ready and not r.OutIsFault);
  Answered <= r.OutValid and Out_Ready;

  -- A result that comes in this cycle is used in it: as answers are in order, the walk that the oldest
  -- request waits for is the oldest one under way, or over.
  HeadWalks <= HeadWaits and or (SlotWalking)
               when unsigned(HeadSlotIs) = r.OldestSlot else '0';

  p_head : process (all) is
    variable stored_v : Stored_t;
  begin
    Load     <= HeadValid and OutFree and (Walked or not HeadWalks);
    stored_v := ResultRam(HeadSlot);
    if HeadWaits = '0' then
      stored_v := '1' & StatusOk_c & HeadHeld(WhereBits_c - 1 downto 0);
      -- Within a run, pages and frames lie alike.
      for i in 0 to RunBits_g - 1 loop
        if HeadHeld(WhereBits_c + i) = '1' then
          stored_v(i) := HeadAddr(PageBits_g + i);
        end if;
      end loop;
    elsif HeadWalks = '1' then
      stored_v := RespStored;
    end if;
    HeadResult <= (IsGood   => stored_v(stored_v'high),
                   Status   => stored_v(stored_v'high - 1 downto WhereBits_c),
                   Writable => stored_v(WhereBits_c - 1),
                   Memory   => stored_v(WhereBits_c - 2 downto FrameBits_c),
                   Frame    => stored_v(FrameBits_c - 1 downto 0));
  end process;

  Out_Valid    <= r.OutValid;
  Out_Addr     <= r.OutAddr;
  Out_Write    <= r.OutWrite;
  Out_Tag      <= r.OutTag;
  Out_InWindow <= r.OutInside;
  Out_Memory   <= r.OutMemory;
  Out_Status   <= r.OutStatus;
  Walk_Valid   <= r.WalkValid;
  Walk_Page    <= r.WalkPage;

  ------------------------------------------------------------------------------------------------
  -- Invalidation; a fault that was answered in the cycle before is one of its page, and goes first
  ------------------------------------------------------------------------------------------------
  InvalLoads  <= Inval_Valid and not InvalTaken and not r.WasAsked and not r.Draining;
  DropLoads   <= InvalLoads or r.FaultSeen;
  InvalTaken  <= r.Drops and r.DropAsked;
  FaultDrops  <= r.Drops and not r.DropAsked;
  Inval_Ready <= InvalTaken;
  Inval_Done  <= r.Done;

  g_checks : if Checks_g generate
    Twice <= isSeveral(Hits) or isSeveral(Founds);
  else generate
    Twice <= '0';
  end generate;

  p_registers : process (Clk) is
    variable status_v : Status_t;
    variable memory_v : Memory_t;
    variable addr_v   : std_logic_vector(AddrBits_g - 1 downto 0);
  begin
    if rising_edge(Clk) then

      -- Walks
      if Walk_Ready = '1' then
        r.WalkValid <= '0';
      end if;
      if r.WalkValid = '0' or Walk_Ready = '1' then
        r.WalkPage <= Page;
      end if;
      if IsWalked = '1' then
        r.WalkValid <= '1';
        r.NextSlot  <= following(r.NextSlot, Slots_g);
      end if;
      if Walked = '1' then
        r.OldestSlot <= following(r.OldestSlot, Slots_g);
      end if;
      if r.Dropped = '1' then
        r.ElderEnd <= r.NextSlot;
        r.IsElder  <= or (SlotWalking);
        if Walked = '1' and following(r.OldestSlot, Slots_g) = r.NextSlot then
          r.IsElder <= '0';
        end if;
      elsif Walked = '1' and following(r.OldestSlot, Slots_g) = r.ElderEnd then
        r.IsElder <= '0';
      end if;
      r.CameValid <= Walked;
      r.CameSlot  <= r.OldestSlot;
      r.CameGood  <= RespIsGood;
      r.CameWhere <= RespWhere;
      if Fill = '1' then
        r.NextEntry <= following(r.NextEntry, Entries_g);
      end if;
      r.Filled    <= Fill;
      r.FillEntry <= r.NextEntry;
      r.FillHeld  <= r.DropMask(RunBits_g - 1 downto 0) & r.CameWhere;
      r.IsNew     <= Accept;
      r.NewHits   <= Hits;
      r.NewPlace  <= InPlace;

      -- The answer to the oldest request
      if Out_Ready = '1' then
        r.OutValid <= '0';
      end if;
      if Load = '1' then
        status_v := StatusOk_c;
        memory_v := (others => '0');
        addr_v   := HeadAddr;
        if HeadInside = '1' and HeadResult.IsGood = '1' and (HeadResult.Writable = '1' or HeadWrite = '0') then
          memory_v := HeadResult.Memory;
          addr_v(AddrBits_g - 1 downto PhysBits_g) := (others => '0');
          addr_v(PhysBits_g - 1 downto PageBits_g) := HeadResult.Frame;
        elsif HeadInside = '1' then
          status_v := StatusReadOnly_c when HeadResult.IsGood = '1' else HeadResult.Status;
        end if;
        r.OutValid  <= '1';
        r.OutAddr   <= addr_v;
        r.OutWrite  <= HeadWrite;
        r.OutTag    <= HeadTag;
        r.OutInside <= HeadInside;
        r.OutMemory <= memory_v;
        r.OutStatus <= status_v;
        r.OutIsFault <= '1' when status_v /= StatusOk_c else '0';
      end if;
      r.FaultSeen <= Answered and r.OutIsFault;

      -- What is not as it was
      r.Drops     <= DropLoads;
      r.DropAsked <= not r.FaultSeen;
      r.Dropped   <= r.Drops;
      r.WasAsked  <= InvalTaken;
      if r.FaultSeen = '1' then
        r.DropPage <= r.OutAddr(InsideBits_c - 1 downto PageBits_g);
        r.DropMask <= (others => '0');
      elsif InvalLoads = '1' then
        r.DropPage <= Inval_First;
        r.DropMask <= maskOf(Inval_First, Inval_Last);
      else
        r.DropPage <= WalkedPage;
        r.DropMask <= (others => '0');
        r.DropMask(RunBits_g - 1 downto 0) <= RunMask;
      end if;

      -- Those that were accepted up to the cycle in which an invalidation was taken are counted out.
      r.Done <= '0';
      if r.WasAsked = '1' then
        r.Draining <= '1';
        r.Left     <= QueueLevel;
        if r.OutValid = '1' and Answered = '0' then
          r.Left <= QueueLevel + 1;
        elsif QueueLevel = 0 then
          r.Draining <= '0';
          r.Done     <= '1';
        end if;
      elsif r.Draining = '1' and Answered = '1' then
        r.Left <= r.Left - 1;
        if r.Left = 1 then
          r.Draining <= '0';
          r.Done     <= '1';
        end if;
      end if;

      if Rst = '1' then
        r.WalkValid  <= '0';
        r.NextSlot   <= 0;
        r.OldestSlot <= 0;
        r.IsElder    <= '0';
        r.CameValid  <= '0';
        r.NextEntry  <= 0;
        r.Filled     <= '0';
        r.IsNew      <= '0';
        r.OutValid   <= '0';
        r.FaultSeen  <= '0';
        r.Drops      <= '0';
        r.Dropped    <= '0';
        r.WasAsked   <= '0';
        r.Draining   <= '0';
        r.Done       <= '0';
      end if;
    end if;
  end process;

end architecture;
