-- Walks the two levels of the window's page tables, up to Walks_g pages at a time; and those of the driver's space, if
-- there is one (SpaceBits_g), which have the same words.
--
-- The root is in block RAM. A walk reads its page's word there; where that leads to a table, the walk
-- needs the line of the table which has the word of the page. A read brings a whole line. A walk whose
-- line is held, or on its way, uses that and reads nothing. Responses come in the order of requests.
-- Where walks go through a line, the next line of the table is read before it is needed.
--
-- Of a page of the space space_directory says what the root says of one of the window; where it has to walk for that,
-- the look waits. All else is the same.
--
-- Every line has its place before it is asked for, so that whatever the memory answers is taken at
-- once: Axi_RReady is always 1. Drop is an invalidation of any page: no walk that is looked up in a later
-- cycle uses a line which was asked for up to that cycle. A word that is a fault is kept for nobody who
-- comes after its response.
-- Timing, ports and generics: docs/rtl/walker.md.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.window_pkg.all;

entity walker is
  generic (
    -- Of a place in a memory of the card.
    PhysBits_g  : positive := 40;
    -- Bytes of a page, as a power of two.
    PageBits_g  : positive := 12;
    -- Words of the root and of a table of the leaf level, as powers of two.
    RootBits_g  : positive := 13;
    LeafBits_g  : positive := 13;
    -- Of the data that the memory gives in a beat: a line. 64, 128, 256 or 512.
    DataBits_g  : positive := 512;
    -- Walks under way.
    Walks_g     : positive := 32;
    -- Lines that are held or on their way.
    Lines_g     : positive := 32;
    -- A walk that finds its line, and whose word is this one of the line or a later one, has the next
    -- line read. None has, if the number is not one of a line's words.
    AheadFrom_g : natural  := 4;
    -- An allocator is asked for what is not mapped; of its tickets.
    Touches_g    : boolean  := false;
    TicketBits_g : positive := 1;
    -- Pages of the driver's space, as a power of two, more than the window's; none: there is no space.
    SpaceBits_g  : natural  := 0;
    -- Tables of the leaf level and runs of the space that are held, as a power of two.
    HeldBits_g   : positive := 4
  );
  port (
    Clk           : in    std_logic;
    Rst           : in    std_logic;
    -- Words of the root; not taken while it clears itself after a reset
    Root_Valid    : in    std_logic;
    Root_Ready    : out   std_logic;
    Root_Index    : in    std_logic_vector(RootBits_g - 1 downto 0);
    Root_Word     : in    std_logic_vector(WordBits_c - 1 downto 0);
    -- The driver's root word, and the number of the space's first page
    Space_Root    : in    std_logic_vector(WordBits_c - 1 downto 0);
    Space_First   : in    std_logic_vector(LevelsMax_c * SpaceStep_c - 1 downto 0);
    -- Pages to walk for: of the space, or else of the window, whose bits are the lowest
    Req_Valid     : in    std_logic;
    Req_Ready     : out   std_logic;
    Req_Page      : in    std_logic_vector(maximum(SpaceBits_g, RootBits_g + LeafBits_g) - 1 downto 0);
    Req_IsSpace   : in    std_logic;
    -- Responses
    Resp_Valid    : out   std_logic;
    Resp_Ready    : in    std_logic;
    Resp_Status   : out   Status_t;
    Resp_Writable : out   std_logic;
    Resp_Memory   : out   std_logic_vector(MemoryBits_c - 1 downto 0);
    -- Pages of the aligned run that the page is part of, as a power of two.
    Resp_Size     : out   std_logic_vector(SizeBits_c - 1 downto 0);
    Resp_Frame    : out   std_logic_vector(PhysBits_g - PageBits_g - 1 downto 0);
    -- For an allocator, with a page that is not mapped: whether the walk has seen its word, what the word says of
    -- it, and the ticket that there was when the word was read.
    Resp_Seen     : out   std_logic;
    Resp_Word     : out   std_logic_vector(WordBits_c - 1 downto 0);
    Resp_Ticket   : out   std_logic_vector(TicketBits_g - 1 downto 0);
    Ticket        : in    std_logic_vector(TicketBits_g - 1 downto 0);
    -- For one cycle: pages are invalidated, no matter which.
    Drop          : in    std_logic;
    -- AXI4: reads of one line, answered in their order.
    Axi_ArValid   : out   std_logic;
    Axi_ArReady   : in    std_logic;
    Axi_ArAddr    : out   std_logic_vector(PhysBits_g - 1 downto 0);
    Axi_ArLen     : out   std_logic_vector(7 downto 0);
    Axi_ArSize    : out   std_logic_vector(2 downto 0);
    Axi_ArBurst   : out   std_logic_vector(1 downto 0);
    Axi_RValid    : in    std_logic;
    Axi_RReady    : out   std_logic;
    Axi_RData     : in    std_logic_vector(DataBits_g - 1 downto 0);
    Axi_RResp     : in    std_logic_vector(1 downto 0);
    -- For counters, for one cycle each: a walk is looked up; it needs no read of its own; a line is read
    -- that no walk has asked for; the response of the oldest walk is known.
    Event_Walk    : out   std_logic;
    Event_Found   : out   std_logic;
    Event_Ahead   : out   std_logic;
    Event_Resp    : out   std_logic
  );
end entity;

architecture rtl of walker is

  constant FrameBits_c : positive := PhysBits_g - PageBits_g;
  constant TableBits_c : positive := PhysBits_g - LeafBits_g - WordShift_c;
  constant WindowBits_c : positive := RootBits_g + LeafBits_g;
  constant PageBits_c  : positive := maximum(SpaceBits_g, WindowBits_c);

  -- Words of a line.
  constant Words_c    : positive := DataBits_g / WordBits_c;
  constant LineBits_c : natural  := exponent(Words_c);
  constant TagBits_c  : positive := PageBits_c - LineBits_c;

  -- Of the number in an entry as it is kept: of a frame, or, for an allocator, of what it has hidden in a word that
  -- is not valid.
  function numberBits return positive is
  begin
    if Touches_g then
      return maximum(FrameBits_c, HiddenBits_c);
    end if;
    return FrameBits_c;
  end function;

  constant NumBits_c  : positive := numberBits;
  constant KeptBits_c : positive := AspectBits_c + NumBits_c;

  subtype Page_t is std_logic_vector(PageBits_c - 1 downto 0);

  subtype Tag_t is std_logic_vector(TagBits_c - 1 downto 0);

  -- Of a line, as they are kept. Two at least: tools stumble over an index that has no bits.
  type Words_t is array (0 to maximum(Words_c, 2) - 1) of std_logic_vector(KeptBits_c - 1 downto 0);

  -- What is kept of a walk that waits for its response: that it needs a line, then the number of its
  -- word there and the line's place; or what the root says.
  constant PlaceBits_c : positive := bitsOf(Lines_g);
  constant UserBits_c  : positive := 1 + KeptBits_c;

  -- What a read under way brings: words of the window's leaf level, of the space's, or of a table above.
  subtype Read_t is std_logic_vector(1 downto 0);

  constant ReadWindow_c : Read_t := "00";
  constant ReadSpace_c  : Read_t := "01";
  constant ReadAbove_c  : Read_t := "10";

  signal Clearing    : std_logic;
  signal WaitIn      : std_logic;
  signal WaitReady   : std_logic;
  signal WaitData    : std_logic_vector(PageBits_c downto 0);
  signal WaitValid   : std_logic;
  signal WaitTake    : std_logic;
  signal WaitPage    : std_logic_vector(PageBits_c downto 0);

  -- The line that is to be read before it is needed.
  signal AheadValid  : std_logic;
  signal AheadTag    : Tag_t;
  signal AheadSpace  : std_logic;

  -- What is looked up.
  signal LookValid   : std_logic;
  signal LookAhead   : std_logic;
  signal LookPage    : Page_t;
  signal LookSpace   : std_logic;
  signal LookTag     : Tag_t;
  signal LookDone    : std_logic;
  signal LookFree    : std_logic;
  signal NextPage    : Page_t;
  signal NextSpace   : std_logic;
  -- What the root says of a page of the window, and a table above of one of the space; of that which is looked up.
  signal Root        : Entry_t;
  signal Above       : Entry_t;
  signal AboveKnown  : std_logic;
  signal AboveDone   : std_logic;
  signal AboveAsk    : std_logic;
  signal Top         : Entry_t;
  signal TopKnown    : std_logic;
  signal NeedsLine   : std_logic;
  -- The page's line is the last one of its table.
  signal IsLast      : std_logic;
  signal Found       : std_logic;
  signal FoundPlace  : natural range 0 to Lines_g - 1;
  signal NextFree    : std_logic;
  signal NextPlace   : natural range 0 to Lines_g - 1;
  signal CanFetch    : std_logic;
  signal Fetch       : std_logic;
  signal Push        : std_logic;
  signal UsePlace    : natural range 0 to Lines_g - 1;
  signal UseValid    : std_logic;

  signal ArValid     : std_logic;
  signal ArAddr      : std_logic_vector(PhysBits_g - 1 downto 0);
  signal ArFree      : std_logic;
  signal LineAddr    : std_logic_vector(PhysBits_g - 1 downto 0);
  signal AboveRead   : std_logic;
  signal AboveAddr   : std_logic_vector(PhysBits_g - 1 downto 0);
  signal Coming      : Read_t;
  signal LineCame    : std_logic;
  signal AboveCame   : std_logic;

  signal UserIn      : std_logic_vector(UserBits_c - 1 downto 0);
  signal UserOut     : std_logic_vector(UserBits_c - 1 downto 0);
  signal UserRoom    : std_logic;
  signal UserPlace   : natural range 0 to Walks_g;
  signal OldValid    : std_logic;
  signal OldPlace    : natural range 0 to Walks_g;
  signal OldIsLine   : std_logic;
  signal OldLine     : natural range 0 to Lines_g - 1;
  signal OldWord     : natural range Words_t'range;

  signal ReadFailed  : std_logic;
  signal LineIn      : std_logic_vector(Words_c * KeptBits_c - 1 downto 0);
  signal LineOut     : std_logic_vector(Words_c * KeptBits_c - 1 downto 0);
  signal LineReady   : std_logic;
  signal LineDone    : std_logic;
  signal LineFault   : std_logic;

  signal Result      : Entry_t;
  signal Pop         : std_logic;
  signal RespFree    : std_logic;
  signal RespValid   : std_logic;
  signal Resp        : Entry_t;

  -- Of each line, the ticket that there was when it was asked for.
  type Tickets_t is array (0 to 2 ** PlaceBits_c - 1) of std_logic_vector(TicketBits_g - 1 downto 0);

  signal Tickets     : Tickets_t;

  -- The number of the page's word in its line.
  function wordOf (page : Page_t) return natural is
  begin
    if LineBits_c = 0 then
      return 0;
    end if;
    return to_integer(unsigned(page(maximum(LineBits_c, 1) - 1 downto 0)));
  end function;

  -- Whether the page's line is the last one of its table, which has so many words, as a power of two.
  function isLastLine (page : Page_t; table_bits : positive) return boolean is
    variable last_v : std_logic := '1';
  begin
    for i in LineBits_c to table_bits - 1 loop
      last_v := last_v and page(i);
    end loop;
    return last_v = '1';
  end function;

  -- The first page of a line.
  function firstPage (tag : Tag_t) return Page_t is
    variable page_v : Page_t := (others => '0');
  begin
    page_v(PageBits_c - 1 downto LineBits_c) := tag;
    return page_v;
  end function;

begin

  assert DataBits_g = 64 or DataBits_g = 128 or DataBits_g = 256 or DataBits_g = 512
    report "walker: a beat has 64, 128, 256 or 512 bits" severity failure;
  assert PlaceBits_c + LineBits_c < KeptBits_c
    report "walker: too many lines" severity failure;
  assert LineBits_c <= LeafBits_g
    report "walker: a table has at least the words of a line" severity failure;
  assert FrameBits_c <= NumberBits_c and TableBits_c <= NumberBits_c
    report "walker: numbers of frames and tables have at most 32 bits" severity failure;
  assert SpaceBits_g = 0 or SpaceBits_g > WindowBits_c
    report "walker: the space has more pages than the window" severity failure;
  assert LeafBits_g < 2 ** SizeBits_c and FrameBits_c > LeafBits_g
    report "walker: a run of the root has at most 2**31 pages, and fewer than a memory has frames" severity failure;

  ------------------------------------------------------------------------------------------------
  -- Requests: two wait, so that nobody who asks waits for what is looked up
  ------------------------------------------------------------------------------------------------
  Req_Ready <= WaitReady and not Clearing;
  WaitIn    <= Req_Valid and not Clearing;
  WaitTake  <= LookFree;
  WaitData  <= Req_IsSpace & Req_Page;

  i_waiting : entity work.fifo
    generic map (
      Width_g => PageBits_c + 1,
      Depth_g => 2
    )
    port map (
      Clk       => Clk,
      Rst       => Rst,
      In_Valid  => WaitIn,
      In_Ready  => WaitReady,
      In_Data   => WaitData,
      Out_Valid => WaitValid,
      Out_Ready => WaitTake,
      Out_Data  => WaitPage,
      Level     => open
    );

  ------------------------------------------------------------------------------------------------
  -- The look: what the root says, and whether the line is there, in one cycle. The root is read in the
  -- cycle before, again and again while it takes longer.
  ------------------------------------------------------------------------------------------------
  LookFree <= not LookValid or LookDone;
  NextPage <= LookPage when LookFree = '0' else
              WaitPage(PageBits_c - 1 downto 0) when WaitValid = '1' else firstPage(AheadTag);

  i_root : entity work.root_table
    generic map (
      RootBits_g  => RootBits_g,
      LeafBits_g  => LeafBits_g,
      FrameBits_g => FrameBits_c,
      TableBits_g => TableBits_c
    )
    port map (
      Clk         => Clk,
      Rst         => Rst,
      Clearing    => Clearing,
      Write_Valid => Root_Valid,
      Write_Ready => Root_Ready,
      Write_Index => Root_Index,
      Write_Word  => Root_Word,
      Read_Index  => NextPage(WindowBits_c - 1 downto LeafBits_g),
      Read_Entry  => Root
    );

  LookTag   <= LookPage(PageBits_c - 1 downto LineBits_c);
  NeedsLine <= TopKnown when Top.Status = StatusOk_c and Top.IsTable = '1' else '0';
  CanFetch  <= ArFree and NextFree;
  -- What nobody waits for is not waited for either.
  LookDone  <= LookAhead or (UserRoom and TopKnown and (not NeedsLine or Found or CanFetch));
  Fetch     <= LookValid and NeedsLine and not Found and CanFetch and (LookAhead or UserRoom);
  Push      <= LookValid and LookDone and not LookAhead;
  UsePlace  <= FoundPlace when Found = '1' else NextPlace;
  UseValid  <= Push and NeedsLine;

  Event_Walk  <= Push;
  Event_Found <= Push and not Fetch;
  Event_Ahead <= Fetch and LookAhead;

  p_look : process (Clk) is
  begin
    if rising_edge(Clk) then
      if LookFree = '1' then
        LookValid <= WaitValid;
        LookAhead <= '0';
        -- Only if nothing is looked up now, which might want another line.
        if WaitValid = '0' and LookValid = '0' and AheadValid = '1' then
          LookValid  <= '1';
          LookAhead  <= '1';
          AheadValid <= '0';
        end if;
      end if;
      LookPage  <= NextPage;
      LookSpace <= NextSpace;
      if UseValid = '1' and Found = '1' and wordOf(LookPage) >= AheadFrom_g and IsLast = '0' then
        AheadValid <= '1';
        AheadTag   <= std_logic_vector(unsigned(LookTag) + 1);
        AheadSpace <= LookSpace;
      end if;
      if Rst = '1' then
        LookValid  <= '0';
        AheadValid <= '0';
      end if;
    end if;
  end process;

  ------------------------------------------------------------------------------------------------
  -- What the tables above say of a page of the space, and which reads are whose
  ------------------------------------------------------------------------------------------------
  g_space : if SpaceBits_g > 0 generate
    constant SpaceTableBits_c : positive := PhysBits_g - SpaceStep_c - WordShift_c;

    signal AboveValid : std_logic;
    signal IsRead     : std_logic;
    signal ReadIn     : Read_t;
  begin

    NextSpace <= LookSpace when LookFree = '0' else WaitPage(PageBits_c) when WaitValid = '1' else AheadSpace;
    Top       <= Above when LookSpace = '1' else Root;
    TopKnown  <= AboveKnown or not LookSpace;
    AboveAsk  <= LookValid and LookSpace and not LookAhead;
    AboveDone <= AboveAsk and LookDone;
    AboveRead <= AboveValid and ArFree;
    -- The window is aligned to its size: the next line is one of it where this one is.
    p_last : process (all) is
    begin
      IsLast <= '1' when isLastLine(LookPage, LeafBits_g) else '0';
      if LookSpace = '1' then
        IsLast <= '1' when isLastLine(LookPage, minimum(SpaceStep_c, WindowBits_c)) else '0';
      end if;
    end process;

    LineAddr  <= Top.Number(SpaceTableBits_c - 1 downto 0) & LookPage(SpaceStep_c - 1 downto 0) & "000"
                 when LookSpace = '1' else
                 Top.Number(TableBits_c - 1 downto 0) & LookPage(LeafBits_g - 1 downto 0) & "000";

    i_directory : entity work.space_directory
      generic map (
        PhysBits_g  => PhysBits_g,
        PageBits_g  => PageBits_g,
        SpaceBits_g => SpaceBits_g,
        DataBits_g  => DataBits_g,
        HeldBits_g  => HeldBits_g
      )
      port map (
        Clk         => Clk,
        Rst         => Rst,
        Root        => Space_Root,
        First       => Space_First,
        Look_Valid  => AboveAsk,
        Look_Page   => LookPage,
        Look_Known  => AboveKnown,
        Look_Entry  => Above,
        Look_Done   => AboveDone,
        Read_Valid  => AboveValid,
        Read_Ready  => ArFree,
        Read_Addr   => AboveAddr,
        Come_Valid  => AboveCame,
        Come_Failed => ReadFailed,
        Come_Data   => Axi_RData,
        Drop        => Drop
      );

    -- Reads are answered in their order.
    IsRead <= Fetch or AboveRead;
    ReadIn <= ReadAbove_c when Fetch = '0' else ReadSpace_c when LookSpace = '1' else ReadWindow_c;

    i_coming : entity work.fifo
      generic map (
        Width_g => Read_t'length,
        Depth_g => Lines_g + 1
      )
      port map (
        Clk       => Clk,
        Rst       => Rst,
        In_Valid  => IsRead,
        In_Ready  => open,
        In_Data   => ReadIn,
        Out_Valid => open,
        Out_Ready => Axi_RValid,
        Out_Data  => Coming,
        Level     => open,
        In_Place  => open,
        Out_Place => open
      );

  else generate
    NextSpace  <= '0';
    Top        <= Root;
    TopKnown   <= '1';
    Above      <= Root;
    AboveKnown <= '0';
    AboveAsk   <= '0';
    AboveDone  <= '0';
    AboveRead  <= '0';
    AboveAddr  <= (others => '0');
    IsLast     <= '1' when isLastLine(LookPage, LeafBits_g) else '0';
    LineAddr   <= Top.Number(TableBits_c - 1 downto 0) & LookPage(LeafBits_g - 1 downto 0) & "000";
    Coming     <= ReadWindow_c;
  end generate;

  AboveCame <= Axi_RValid when Coming = ReadAbove_c else '0';
  LineCame  <= Axi_RValid and not AboveCame;

  ------------------------------------------------------------------------------------------------
  -- Reads
  ------------------------------------------------------------------------------------------------
  ArFree <= not ArValid or Axi_ArReady;

  p_reads : process (Clk) is
  begin
    if rising_edge(Clk) then
      if Axi_ArReady = '1' then
        ArValid <= '0';
      end if;
      if Fetch = '1' then
        Tickets(NextPlace) <= Ticket;
      end if;
      if Fetch = '1' or AboveRead = '1' then
        ArValid <= '1';
        ArAddr  <= LineAddr when Fetch = '1' else AboveAddr;
        ArAddr(LineBits_c + WordShift_c - 1 downto 0) <= (others => '0');
      end if;
      if Rst = '1' then
        ArValid <= '0';
      end if;
    end if;
  end process;

  Axi_ArValid <= ArValid;
  Axi_ArAddr  <= ArAddr;
  Axi_ArLen   <= (others => '0');
  Axi_ArSize  <= std_logic_vector(to_unsigned(LineBits_c + WordShift_c, 3));
  Axi_ArBurst <= "01";
  Axi_RReady  <= '1';

  ------------------------------------------------------------------------------------------------
  -- Lines
  ------------------------------------------------------------------------------------------------
  ReadFailed <= '1' when Axi_RResp /= "00" else '0';

  p_line : process (all) is
    variable word_v : std_logic_vector(WordBits_c - 1 downto 0);
    variable e_v    : Entry_t;
  begin
    for i in 0 to Words_c - 1 loop
      word_v := Axi_RData((i + 1) * WordBits_c - 1 downto i * WordBits_c);
      e_v    := leafEntry(word_v, ReadFailed = '1', FrameBits_c, LeafBits_g);
      if SpaceBits_g > 0 and Coming = ReadSpace_c then
        e_v := spaceEntry(word_v, ReadFailed = '1', FrameBits_c, SpaceStep_c);
      end if;
      if Touches_g then
        e_v := hiddenIn(e_v, word_v);
      end if;
      LineIn((i + 1) * KeptBits_c - 1 downto i * KeptBits_c) <= toVector(e_v, NumBits_c);
    end loop;
  end process;

  LineDone  <= Pop and OldIsLine;
  LineFault <= '1' when Result.Status /= StatusOk_c else '0';

  i_lines : entity work.line_store
    generic map (
      Lines_g    => Lines_g,
      Words_g    => Words_c,
      TagBits_g  => TagBits_c,
      WordBits_g => KeptBits_c,
      Users_g    => Walks_g + 1
    )
    port map (
      Clk         => Clk,
      Rst         => Rst,
      Look_Tag    => LookTag,
      Look_Found  => Found,
      Look_Place  => FoundPlace,
      Next_Free   => NextFree,
      Next_Place  => NextPlace,
      Fetch       => Fetch,
      Use_Valid   => UseValid,
      Use_Place   => UsePlace,
      Use_User    => UserPlace,
      Come_Valid  => LineCame,
      Come_Failed => ReadFailed,
      Come_Words  => LineIn,
      Read_Place  => OldLine,
      Read_Ready  => LineReady,
      Read_Words  => LineOut,
      Read_Done   => LineDone,
      Read_User   => OldPlace,
      Read_Fault  => LineFault,
      Drop        => Drop
    );

  ------------------------------------------------------------------------------------------------
  -- Walks that wait for their line and their response
  ------------------------------------------------------------------------------------------------
  p_user : process (all) is
    variable e_v : Entry_t;
  begin
    -- Of a run, with the frame of the page.
    e_v := Top;
    for i in 0 to PageBits_c - 1 loop
      if (LookSpace = '0' and i < LeafBits_g) or (LookSpace = '1' and i < SpaceStep_c) then
        e_v.Number(i) := LookPage(i);
      end if;
    end loop;
    UserIn <= '0' & toVector(e_v, NumBits_c);
    if NeedsLine = '1' then
      UserIn                           <= (others => '0');
      UserIn(UserBits_c - 1)           <= '1';
      UserIn(PlaceBits_c - 1 downto 0) <= std_logic_vector(to_unsigned(UsePlace, PlaceBits_c));
      UserIn(PlaceBits_c + LineBits_c downto PlaceBits_c) <=
        std_logic_vector(to_unsigned(wordOf(LookPage), LineBits_c + 1));
    end if;
  end process;

  i_users : entity work.fifo
    generic map (
      Width_g => UserBits_c,
      Depth_g => Walks_g
    )
    port map (
      Clk       => Clk,
      Rst       => Rst,
      In_Valid  => Push,
      In_Ready  => UserRoom,
      In_Data   => UserIn,
      Out_Valid => OldValid,
      Out_Ready => Pop,
      Out_Data  => UserOut,
      Level     => open,
      In_Place  => UserPlace,
      Out_Place => OldPlace
    );

  OldIsLine <= UserOut(UserBits_c - 1);
  -- Of the same word, so that what the root says is never taken for a place.
  OldLine   <= to_integer(unsigned(UserOut(PlaceBits_c - 1 downto 0))) when UserOut(UserBits_c - 1) = '1' else 0;
  OldWord   <= to_integer(unsigned(UserOut(PlaceBits_c + LineBits_c downto PlaceBits_c))) mod Words_t'length;

  p_result : process (all) is
    variable words_v : Words_t;
  begin
    for i in words_v'range loop
      words_v(i) := LineOut((i mod Words_c + 1) * KeptBits_c - 1 downto (i mod Words_c) * KeptBits_c);
    end loop;
    Result <= toEntry(UserOut(KeptBits_c - 1 downto 0), NumBits_c);
    if OldIsLine = '1' then
      Result <= toEntry(words_v(OldWord), NumBits_c);
    end if;
  end process;

  RespFree   <= not RespValid or Resp_Ready;
  Pop        <= OldValid and RespFree and (not OldIsLine or LineReady);
  Event_Resp <= Pop;

  p_response : process (Clk) is
  begin
    if rising_edge(Clk) then
      if Resp_Ready = '1' then
        RespValid <= '0';
      end if;
      if Pop = '1' then
        RespValid <= '1';
        Resp      <= Result;
        Resp_Seen   <= OldIsLine;
        Resp_Ticket <= Tickets(OldLine);
      end if;
      if Rst = '1' then
        RespValid <= '0';
      end if;
    end if;
  end process;

  Resp_Valid    <= RespValid;
  Resp_Status   <= Resp.Status;
  Resp_Writable <= Resp.Writable;
  Resp_Memory   <= Resp.Memory;
  Resp_Size     <= Resp.Size;
  Resp_Frame    <= Resp.Number(FrameBits_c - 1 downto 0);
  Resp_Word     <= hiddenWord(Resp);

end architecture;
