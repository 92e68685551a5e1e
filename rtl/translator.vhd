-- Translates the addresses of one reader or writer: those of the card's window to places in the
-- card's memories; others go through as they are.
--
-- It holds one translation, that of the page which was asked for last, and has the walks of up to
-- Depth_g requests under way. A request for the same page as the one before it shares that one's
-- walk, also while it is under way. Answers come in the order of the requests.
--
-- An invalidation is in force from the cycle after it was taken: a request accepted from then on is
-- answered by a walk that began after it. Inval_Done tells that every request which was accepted
-- before has been answered. Faults are answers with a status; they are never kept.
-- Timing, ports and generics: docs/rtl/translator.md.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
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
    -- Of what a request carries with it.
    TagBits_g    : positive := 8;
    -- Requests that wait for their answer.
    Depth_g      : positive := 32
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
    Resp_Frame    : in    std_logic_vector(PhysBits_g - PageBits_g - 1 downto 0);
    -- Invalidation of the pages from First to Last
    Inval_Valid   : in    std_logic;
    Inval_Ready   : out   std_logic;
    Inval_First   : in    std_logic_vector(WindowBits_g - 1 downto 0);
    Inval_Last    : in    std_logic_vector(WindowBits_g - 1 downto 0);
    -- For one cycle: what was accepted before the last invalidation has been answered.
    Inval_Done    : out   std_logic
  );
end entity;

architecture rtl of translator is

  constant FrameBits_c  : positive := PhysBits_g - PageBits_g;
  constant InsideBits_c : positive := PageBits_g + WindowBits_g;

  subtype Page_t is std_logic_vector(WindowBits_g - 1 downto 0);
  subtype Frame_t is std_logic_vector(FrameBits_c - 1 downto 0);
  subtype Kind_t is std_logic_vector(1 downto 0);

  -- Not of the window.
  constant Pass_c : Kind_t := "00";
  -- The page of the request before it.
  constant Same_c : Kind_t := "01";
  -- A walk is made for it.
  constant Walk_c : Kind_t := "10";

  constant ItemBits_c : positive := Kind_t'length + 1 + TagBits_g + AddrBits_g;

  type Result_t is record
    Status   : Status_t;
    Writable : std_logic;
    Memory   : std_logic_vector(MemoryBits_c - 1 downto 0);
    Frame    : Frame_t;
  end record;

  type Registers_t is record
    -- The page that was asked for last, if later requests may share its result.
    LastValid  : std_logic;
    LastPage   : Page_t;
    -- Its result, once the request has gone on to the output.
    Result     : Result_t;
    WalkValid  : std_logic;
    WalkPage   : Page_t;
    OutValid   : std_logic;
    OutAddr    : std_logic_vector(AddrBits_g - 1 downto 0);
    OutWrite   : std_logic;
    OutTag     : std_logic_vector(TagBits_g - 1 downto 0);
    OutInside  : std_logic;
    OutMemory  : std_logic_vector(MemoryBits_c - 1 downto 0);
    OutStatus  : Status_t;
    -- The invalidation that was taken in the cycle before.
    InvalValid : std_logic;
    InvalFirst : Page_t;
    InvalLast  : Page_t;
    -- Answers that are still to come before the invalidation is done.
    Draining   : std_logic;
    Left       : natural range 0 to Depth_g + 1;
    Done       : std_logic;
  end record;

  signal r : Registers_t;

  signal Accept      : std_logic;
  signal IsInside      : std_logic;
  signal InReady     : std_logic;
  signal Page        : Page_t;
  signal Stale       : std_logic;
  signal Kind        : Kind_t;
  signal QueueReady  : std_logic;
  signal QueueIn     : std_logic_vector(ItemBits_c - 1 downto 0);
  signal QueueOut    : std_logic_vector(ItemBits_c - 1 downto 0);
  signal QueueLevel  : natural range 0 to Depth_g;
  signal HeadValid   : std_logic;
  signal HeadKind    : Kind_t;
  signal HeadWrite   : std_logic;
  signal HeadTag     : std_logic_vector(TagBits_g - 1 downto 0);
  signal HeadAddr    : std_logic_vector(AddrBits_g - 1 downto 0);
  signal OutFree     : std_logic;
  signal Load        : std_logic;
  signal Answered    : std_logic;
  signal HeadResult  : Result_t;
  signal InvalReady  : std_logic;

begin

  assert AddrBits_g > InsideBits_c
    report "translator: the window leaves no bit of the address for its base" severity failure;
  assert AddrBits_g >= PhysBits_g and PhysBits_g > PageBits_g and FrameBits_c <= NumberBits_c
    report "translator: frames have 1 to 32 bits and their addresses fit those that come in" severity failure;

  ------------------------------------------------------------------------------------------------
  -- Requests
  ------------------------------------------------------------------------------------------------
  InReady  <= QueueReady and (not r.WalkValid or Walk_Ready);
  In_Ready <= InReady;
  Accept   <= In_Valid and InReady;

  IsInside <= '1' when In_Addr(AddrBits_g - 1 downto InsideBits_c) = Window_Base else '0';
  Page   <= In_Addr(InsideBits_c - 1 downto PageBits_g);
  Stale  <= '1' when r.InvalValid = '1' and unsigned(r.LastPage) >= unsigned(r.InvalFirst)
            and unsigned(r.LastPage) <= unsigned(r.InvalLast) else '0';

  Kind <= Pass_c when IsInside = '0' else
          Same_c when r.LastValid = '1' and Stale = '0' and Page = r.LastPage else
          Walk_c;

  QueueIn <= Kind & In_Write & In_Tag & In_Addr;

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
      Level     => QueueLevel
    );

  ------------------------------------------------------------------------------------------------
  -- Answers
  ------------------------------------------------------------------------------------------------
  HeadAddr  <= QueueOut(AddrBits_g - 1 downto 0);
  HeadTag   <= QueueOut(AddrBits_g + TagBits_g - 1 downto AddrBits_g);
  HeadWrite <= QueueOut(AddrBits_g + TagBits_g);
  HeadKind  <= QueueOut(ItemBits_c - 1 downto ItemBits_c - Kind_t'length);

  OutFree    <= not r.OutValid or Out_Ready;
  Load       <= HeadValid and OutFree when HeadKind /= Walk_c else
                HeadValid and OutFree and Resp_Valid;
  Resp_Ready <= HeadValid and OutFree when HeadKind = Walk_c else '0';
  Answered   <= r.OutValid and Out_Ready;

  HeadResult <= (Status => Resp_Status, Writable => Resp_Writable, Memory => Resp_Memory, Frame => Resp_Frame)
                when HeadKind = Walk_c else r.Result;

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
  -- Invalidation
  ------------------------------------------------------------------------------------------------
  InvalReady  <= not r.InvalValid and not r.Draining;
  Inval_Ready <= InvalReady;
  Inval_Done  <= r.Done;

  p_registers : process (Clk) is
    variable left_v   : natural range 0 to Depth_g + 1;
    variable status_v : Status_t;
  begin
    if rising_edge(Clk) then

      -- The page that was asked for last. A fault that somebody has seen is forgotten.
      if Accept = '1' and IsInside = '1' then
        r.LastPage  <= Page;
        r.LastValid <= '1';
      elsif Stale = '1' then
        r.LastValid <= '0';
      end if;
      if Answered = '1' and r.OutStatus /= StatusOk_c then
        r.LastValid <= '0';
      end if;

      -- Its walk
      if Walk_Ready = '1' then
        r.WalkValid <= '0';
      end if;
      if Accept = '1' and Kind = Walk_c then
        r.WalkValid <= '1';
        r.WalkPage  <= Page;
      end if;

      -- The answer to the oldest request
      if Out_Ready = '1' then
        r.OutValid <= '0';
      end if;
      if Load = '1' then
        r.OutValid  <= '1';
        r.OutAddr   <= HeadAddr;
        r.OutWrite  <= HeadWrite;
        r.OutTag    <= HeadTag;
        r.OutInside <= '0';
        r.OutMemory <= (others => '0');
        r.OutStatus <= StatusOk_c;
        if HeadKind /= Pass_c then
          status_v := HeadResult.Status;
          if status_v = StatusOk_c and HeadWrite = '1' and HeadResult.Writable = '0' then
            status_v := StatusReadOnly_c;
          end if;
          r.Result    <= HeadResult;
          r.OutInside <= '1';
          r.OutStatus <= status_v;
          if status_v = StatusOk_c then
            r.OutMemory <= HeadResult.Memory;
            r.OutAddr   <= (others => '0');
            r.OutAddr(PhysBits_g - 1 downto 0) <= HeadResult.Frame & HeadAddr(PageBits_g - 1 downto 0);
          end if;
        end if;
      end if;

      -- Invalidation: those that were accepted up to the cycle in which it was taken are counted out.
      r.InvalValid <= Inval_Valid and InvalReady;
      r.InvalFirst <= Inval_First;
      r.InvalLast  <= Inval_Last;
      r.Done       <= '0';
      if r.InvalValid = '1' or r.Draining = '1' then
        if r.Draining = '1' then
          left_v := r.Left;
        elsif r.OutValid = '1' then
          left_v := QueueLevel + 1;
        else
          left_v := QueueLevel;
        end if;
        if Answered = '1' and left_v /= 0 then
          left_v := left_v - 1;
        end if;
        r.Left <= left_v;
        if left_v = 0 then
          r.Draining <= '0';
          r.Done     <= '1';
        else
          r.Draining <= '1';
        end if;
      end if;

      if Rst = '1' then
        r.LastValid  <= '0';
        r.WalkValid  <= '0';
        r.OutValid   <= '0';
        r.InvalValid <= '0';
        r.Draining   <= '0';
        r.Done       <= '0';
      end if;
    end if;
  end process;

end architecture;
