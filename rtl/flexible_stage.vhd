-- A TLB of flexible length beside who else knows where pages are: what it has is answered from it, and of the others
-- what is said there. Responses come in the order of requests.
--
-- Both look for a page in the same cycles, so that who is held nowhere has lost none. He who is asked takes it with its
-- request, and is told in the next cycle if it is held here: then he forgets it. A page that is held here is answered
-- three cycles after it was accepted.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.window_pkg.all;

entity flexible_stage is
  generic (
    -- Pages of the window, as a power of two.
    WindowBits_g : positive := 26;
    -- Of a frame's number.
    FrameBits_g  : positive := 28;
    -- Pages of the longest run, as a power of two.
    RunBits_g    : positive := 15;
    Entries_g    : positive := 32;
    -- Requests that wait for their response; who asks sees to it that there are no more.
    Depth_g      : positive := 32
  );
  port (
    Clk           : in    std_logic;
    Rst           : in    std_logic;
    -- Pages, and their responses
    Req_Valid     : in    std_logic;
    Req_Ready     : out   std_logic;
    Req_Page      : in    std_logic_vector(WindowBits_g - 1 downto 0);
    Req_Write     : in    std_logic;
    Resp_Valid    : out   std_logic;
    Resp_Ready    : in    std_logic;
    Resp_Status   : out   Status_t;
    Resp_Writable : out   std_logic;
    Resp_Memory   : out   std_logic_vector(MemoryBits_c - 1 downto 0);
    Resp_Size     : out   std_logic_vector(SizeBits_c - 1 downto 0);
    Resp_Frame    : out   std_logic_vector(FrameBits_g - 1 downto 0);
    -- The requests; from the cycle after one was taken until the next one is, whether an entry has its page. Of those
    -- that no entry has what is said of them, in their order.
    Ask_Valid     : out   std_logic;
    Ask_Ready     : in    std_logic;
    Ask_Page      : out   std_logic_vector(WindowBits_g - 1 downto 0);
    Ask_Write     : out   std_logic;
    Ask_Skip      : out   std_logic;
    Came_Valid    : in    std_logic;
    Came_Ready    : out   std_logic;
    Came_Status   : in    Status_t;
    Came_Writable : in    std_logic;
    Came_Memory   : in    std_logic_vector(MemoryBits_c - 1 downto 0);
    Came_Size     : in    std_logic_vector(SizeBits_c - 1 downto 0);
    Came_Frame    : in    std_logic_vector(FrameBits_g - 1 downto 0);
    -- Commands, as flexible_tlb takes them
    Cmd_Valid     : in    std_logic;
    Cmd_Ready     : out   std_logic;
    Cmd_Kind      : in    std_logic_vector(1 downto 0);
    Cmd_First     : in    std_logic_vector(WindowBits_g - 1 downto 0);
    Cmd_Bound     : in    std_logic_vector(WindowBits_g downto 0);
    Cmd_Writable  : in    std_logic;
    Cmd_Memory    : in    std_logic_vector(MemoryBits_c - 1 downto 0);
    Cmd_Frame     : in    std_logic_vector(FrameBits_g - 1 downto 0);
    Evictions     : out   std_logic_vector(31 downto 0)
  );
end entity;

architecture rtl of flexible_stage is

  constant WhereBits_c : positive := 1 + MemoryBits_c + FrameBits_g;

  signal LookValid  : std_logic;
  signal LookReady  : std_logic;
  signal IsHit      : std_logic;
  -- A page was accepted in the cycle before; whether that which was accepted last is held.
  signal IsNew      : std_logic;
  signal WasHit     : std_logic;
  signal FoundValid : std_logic;
  signal FoundHeld  : std_logic;
  signal Found      : std_logic_vector(WhereBits_c - 1 downto 0);
  signal HeadValid  : std_logic;
  signal HeadHeld   : std_logic;
  signal Head       : std_logic_vector(WhereBits_c downto 0);
  signal RespValid  : std_logic;
  signal Responded  : std_logic;

begin

  LookValid <= Req_Valid and Ask_Ready;
  Ask_Valid <= Req_Valid and LookReady;
  Req_Ready <= LookReady and Ask_Ready;
  Ask_Page  <= Req_Page;
  Ask_Write <= Req_Write;
  Ask_Skip  <= IsHit when IsNew = '1' else WasHit;

  p_new : process (Clk) is
  begin
    if rising_edge(Clk) then
      IsNew <= LookValid and LookReady;
      if IsNew = '1' then
        WasHit <= IsHit;
      end if;
      if Rst = '1' then
        IsNew <= '0';
      end if;
    end if;
  end process;

  i_tlb : entity work.flexible_tlb
    generic map (
      KeyBits_g   => WindowBits_g,
      FrameBits_g => FrameBits_g,
      RunBits_g   => RunBits_g,
      Entries_g   => Entries_g
    )
    port map (
      Clk            => Clk,
      Rst            => Rst,
      Look_Valid     => LookValid,
      Look_Ready     => LookReady,
      Look_Key       => Req_Page,
      Look_Hit       => IsHit,
      Found_Valid    => FoundValid,
      Found_Held     => FoundHeld,
      Found_Writable => Found(WhereBits_c - 1),
      Found_Memory   => Found(WhereBits_c - 2 downto FrameBits_g),
      Found_Frame    => Found(FrameBits_g - 1 downto 0),
      Found_Pages    => open,
      Cmd_Valid      => Cmd_Valid,
      Cmd_Ready      => Cmd_Ready,
      Cmd_Kind       => Cmd_Kind,
      Cmd_First      => Cmd_First,
      Cmd_Bound      => Cmd_Bound,
      Cmd_Writable   => Cmd_Writable,
      Cmd_Memory     => Cmd_Memory,
      Cmd_Frame      => Cmd_Frame,
      Evictions      => Evictions,
      Twice          => open
    );

  -- There is room: no more are asked for.
  i_order : entity work.fifo
    generic map (
      Width_g => WhereBits_c + 1,
      Depth_g => Depth_g
    )
    port map (
      Clk       => Clk,
      Rst       => Rst,
      In_Valid  => FoundValid,
      In_Ready  => open,
      In_Data   => FoundHeld & Found,
      Out_Valid => HeadValid,
      Out_Ready => Responded,
      Out_Data  => Head,
      Level     => open,
      In_Place  => open,
      Out_Place => open
    );

  HeadHeld   <= Head(WhereBits_c);
  RespValid  <= HeadValid and (HeadHeld or Came_Valid);
  Resp_Valid <= RespValid;
  Responded  <= RespValid and Resp_Ready;
  Came_Ready <= HeadValid and not HeadHeld and Resp_Ready;

  -- A run of flexible length is not aligned: a translator gets the page.
  Resp_Status   <= StatusOk_c when HeadHeld = '1' else Came_Status;
  Resp_Writable <= Head(WhereBits_c - 1) when HeadHeld = '1' else Came_Writable;
  Resp_Memory   <= Head(WhereBits_c - 2 downto FrameBits_g) when HeadHeld = '1' else Came_Memory;
  Resp_Size     <= (others => '0') when HeadHeld = '1' else Came_Size;
  Resp_Frame    <= Head(FrameBits_g - 1 downto 0) when HeadHeld = '1' else Came_Frame;

end architecture;
